"""What the adapters on TRL's trainers of groups share: every rollout and its token statistics are kept, and the hooks of the run's methods called.

The statistics are the tensors that TRL's loss computes anyway; nothing is computed twice. A row of the generation batch carries its number
through TRL's shuffling and splitting, so that each slice of the loss knows which rollouts it holds.

Where TRL computes what a hook changes: ``_generate_and_score_completions`` (prompts, rollouts, rewards, advantages), ``_get_per_token_logps_and_
entropies`` (the loss's forward pass: token weights and log ratios are worked out right after it, before TRL reads the advantages) and
``_compute_loss`` (loss terms; the policy-gradient term vanishes with the advantages where a method brings its own).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl.trainer.utils import RepeatSampler

from trainers.adapters.added_rows import ROW, AddedRows
from trainers.adapters.alternatives import AlternativesRecorder
from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.edited_sampling import PromptMix, change_temperature, find_fused_heads
from trainers.adapters.micro_batch import MicroBatch
from trainers.adapters.passes import Arrays, Passes, Slice, copy_planes_to_host, first_planes
from trainers.adapters.resumable import Resumable
from trainers.adapters.rollouts import GenerationBatch, build_events
from trainers.adapters.sampler import SamplerGap
from trainers.adapters.scoring import Scoring
from trainers.attempt import ranks
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.attempt.shadows import Shadows
from trainers.contract.edits import TEMPERATURE, pick_reward_weights
from trainers.contract.hyperparameters import GroupRollouts
from trainers.contract.spec import HUMAN
from trainers.judges.human import Batch as Asking
from trainers.judges.human import People
from trainers.methods.stack import Stack
from trainers.policies.loading import build_lora_config
from trainers.policies.sampling import Completion, as_rows
from trainers.tasks.base import Example
from trainers.worlds.base import World


class SeekableRepeatSampler(RepeatSampler):  # type: ignore[misc]
    """TRL's order of prompts, and the same order again when a resumed run starts in a later epoch."""

    def set_epoch(self, epoch: int) -> None:
        self.generator.manual_seed(self.seed)
        for _ in range(epoch):
            torch.randperm(self.num_samples, generator=self.generator)


class RewardedAdapter(Resumable):
    """Of trainers that sample answers to a task's examples: its reward functions, as TRL calls them."""

    def take_examples(self, attempt: Attempt, examples: Sequence[Example]) -> None:
        self.examples = list(examples)
        self.task = attempt.task
        self.weights = attempt.weights
        self.scores: dict[str, list[float | None]] = {}

    def reward_function(self, name: str) -> Callable[..., list[float | None]]:
        def function(completions: list[list[dict[str, str]]], **columns: Any) -> list[float | None]:
            rows = self.scored_rows(completions, columns)
            scores = self.attempt.columns.score_column(name, rows, self.state.global_step + 1)
            for metric, value in self.attempt.columns.measure(name, scores).items():
                self.log_reward_metric(metric, ranks.count() * value)  # a sum, which TRL averages over the processes
            told = self.told_scores()
            self.scores[name] = [told[place].get(name, score.value) if told else score.value for place, score in enumerate(scores)]
            return self.scores[name]

        function.__name__ = name  # TRL names its metrics after it
        return function

    def scored_rows(self, completions: list[list[dict[str, str]]], columns: Mapping[str, Any]) -> list[tuple[str, Example]]:
        """What reward functions are asked about. ``columns``: of the data set, as TRL hands them on."""
        return [(completion[-1]["content"], self.examples[i]) for completion, i in zip(completions, columns["example"], strict=True)]

    def told_scores(self) -> Sequence[Mapping[str, float | None]]:
        """Of each row, what its world says of the state the episode ended in, in place of its text; () where there are texts alone."""
        return ()

    def log_reward_metric(self, name: str, value: float) -> None:
        """What a reward function measures of itself, averaged over the micro-batches of the step."""
        raise NotImplementedError


class GroupAdapter(RewardedAdapter):
    """Mixed in before TRL's GRPOTrainer or RLOOTrainer. What differs between the two is said by the properties and methods that raise here."""

    def build(self, attempt: Attempt, examples: Sequence[Example], heldout: HeldOut | None, stack: Stack, config: Any, **rest: Any) -> None:
        """The constructor of both; ``rest`` are further arguments of TRL's."""
        self.take_examples(attempt, examples)
        self.batch: GenerationBatch | None = None
        self.episodes: Sequence[Completion] | None = None
        self.micro: MicroBatch | None = None  # the slice whose loss is being computed
        between = BetweenSteps()
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=config,
            reward_funcs=[*(self.reward_function(name) for name in self.task.rewards), *([self.people_function()] if attempt.spec.human else [])],
            train_dataset=build_prompt_dataset(examples),
            callbacks=[between],
            peft_config=build_lora_config(attempt.spec.lora) if attempt.spec.lora else None,
            **rest,
        )
        self.attach(attempt, heldout, between, stack)
        self.scoring = Scoring(self, stack)
        self.added = AddedRows(self)
        self.fused_heads = find_fused_heads(self)
        self.mix = PromptMix(self)
        self.passes = Passes(self.write)
        self.alternatives = AlternativesRecorder(attempt.spec.telemetry, attempt.spec.seed)
        self.gap = SamplerGap()
        wanted = attempt.spec.human
        self.shadows = Shadows(self.task.shadows, attempt)
        self.people = People(wanted, attempt.folder, attempt.reporter, attempt.stop, attempt.spec.seed) if wanted else None

    def log_reward_metric(self, name: str, value: float) -> None:
        self._log_metric(name, value)

    def told_scores(self) -> Sequence[Mapping[str, float | None]]:
        return [episode.scores for episode in self.episodes] if self.episodes is not None else ()

    def scored_rows(self, completions: list[list[dict[str, str]]], columns: Mapping[str, Any]) -> list[tuple[str, Example]]:
        if self.task.trl is None or self.episodes is None:
            return super().scored_rows(completions, columns)
        answers = [episode.answer or "" for episode in self.episodes]
        return [(answer, self.examples[row["example"]]) for answer, row in zip(answers, self.rows, strict=True)]

    def read_texts(self, completions: list[list[dict[str, str]]]) -> list[str]:
        """All that stands in each completion, as its tokens say it: of a task that TRL answers the messages are only the last one's content."""
        if self.task.trl is None or self.episodes is None:
            return [completion[-1]["content"] for completion in completions]
        return [episode.text for episode in self.episodes]

    def rows_for_trl(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of the batch as TRL is given them."""
        return rows

    @property
    def scores_what_it_sampled(self) -> bool:
        """Whether TRL computes the log-probabilities of a batch right after sampling it."""
        raise NotImplementedError

    @property
    def corrects_sampler(self) -> bool:
        """Whether TRL corrects for the distance between sampler and trainer, and says it itself."""
        raise NotImplementedError

    def reference_kept(self) -> AbstractContextManager[None]:
        """Around TRL's scoring of a batch."""
        raise NotImplementedError

    def last_planes(self, micro: MicroBatch) -> dict[str, Tensor]:
        """(B, T) each: the importance ratio that TRL's loss formed and where its clip took the gradient away."""
        raise NotImplementedError

    def people_function(self) -> Callable[..., list[float | None]]:
        """The last reward function: it waits, so the task's own come before it."""

        def function(completions: list[list[dict[str, str]]], log_metric: Callable[[str, float], None], **rest: Any) -> list[float | None]:
            assert self.people is not None
            people, rows = self.people, ranks.all_of_list(self.rows)
            texts = ranks.all_of_list(self.read_texts(completions))
            references = [self.examples[row["example"]].reference for row in rows]
            asking = Asking(self.scoring.step, self.first_group, self.num_generations, self.scoring.prompts_of(rows), references, texts)
            scored = ranks.done_by_first(lambda: people.score(asking))
            self.attempt.reporter.phase("training", self.state.global_step, self.state.max_steps)
            for name, value in scored.metrics.items():
                log_metric(f"{HUMAN}/{name}", value)
            self.scores[HUMAN] = scored.values[ranks.own_share(len(completions))]
            return self.scores[HUMAN]

        function.__name__ = HUMAN
        return function

    def forget_silence(self) -> None:
        """A batch that nobody said anything about has no mean of what people said: TRL's nan would look like something broken."""
        metrics = self._metrics["train"]
        for name in (f"rewards/{HUMAN}/mean", f"rewards/{HUMAN}/std"):
            known = [value for value in metrics.pop(name, []) if value == value]
            if known:
                metrics[name] = known

    @property
    def hears_sampler(self) -> bool:
        return bool(self.attempt.spec.telemetry.sampler_logprobs)

    def _calculate_rewards(self, inputs: list[dict[str, Any]], prompts: Any, completions: Any, completion_ids_list: list[list[int]]) -> Tensor:
        scores: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)  # (B, F), of all processes
        texts = self.read_texts(completions)
        texts, ids, rows, *values = ranks.all_of_columns(texts, completion_ids_list, self.rows, *self.scores.values())
        self.all_rows = rows  # a rollout method may have asked something else in a row
        examples = [self.examples[row["example"]] for row in self.all_rows]
        columns = dict(zip(self.scores, values, strict=True))
        self.batch = GenerationBatch(examples, self.scoring.prompts_of(self.all_rows), texts, ids, columns)
        self.batch.masks_cut_off = self.mask_truncated_completions
        self.component_scores = scores
        return scores

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        own = ranks.own_share(len(inputs))
        every = self.scoring.choose(ranks.all_of_list(inputs))  # the rows of all processes, the same in each
        self.rows = every[own]  # TRL's rollout function is given the prompts only
        groups = [self.first_group + row // self.num_generations for row in range(len(every))]
        self.alternatives.begin(self.scoring.step, groups, self.scores_what_it_sampled, own.start)
        with self.reference_kept():
            output: dict[str, Any] = super()._generate_and_score_completions(self.rows_for_trl(self.rows))
        assert self.batch is not None
        widen_completions(output, max(map(len, self.batch.ids)), self.attempt.policy.tokenizer.pad_token_id)
        self.batch.episodes = ranks.all_of_list(self.episodes) if self.episodes is not None else None
        self.batch.first_group = self.first_group
        self.note_cut_off(self.batch)
        if self.people is not None:
            self.forget_silence()
        advantages = self.scoring.apply(self.all_rows, output, self.component_scores, self.batch)  # (B,) or (B, T), of all processes
        output["advantages"] = advantages[own]
        output[ROW] = torch.arange(len(every))[own]
        self.added.apply(output, advantages, self.batch)
        return output

    def _generate(self, prompts: Any) -> Any:
        with ranks.gather_weights(self.model):
            return super()._generate(prompts)

    def note_cut_off(self, batch: GenerationBatch) -> None:
        """TRL takes every completion without an end token for one that was cut off; episodes of a world say themselves how they ended."""
        batch.ends_by_reason = isinstance(self.task, World)
        if batch.ends_by_reason and batch.episodes:
            cut_off = [not batch.has_ended(row, self.eos_token_ids) for row in range(len(batch.ids))]
            self._metrics["train"]["completions/clipped_ratio"][-1] = sum(cut_off) / len(cut_off)

    def change_settings(self, changes: Mapping[str, float]) -> None:
        super().change_settings(changes)
        if TEMPERATURE in changes:
            change_temperature(self, changes[TEMPERATURE])
        self.mix.change(changes)
        if weights := pick_reward_weights(changes):
            for name in [name for name in weights if name in self.shadows.names]:
                self.promote(name)
            merged = {**self.weights, **weights}
            order = [*self.task.rewards, *([HUMAN] if HUMAN in merged else [])]
            self.weights = self.attempt.weights = {name: merged[name] for name in order}
            self.reward_weights = torch.tensor(list(self.weights.values()), dtype=torch.float32)

    def promote(self, name: str) -> None:
        """From the coming generation batch on a shadow is a column like any other, before people's, with the weight that the edit gives it."""
        self.attempt.columns.add(name, self.shadows.take(name))
        self.scores.clear()  # it keeps the columns' order
        place = len(self.reward_funcs) - (self.people is not None)
        self.reward_funcs.insert(place, self.reward_function(name))
        self.reward_func_names.insert(place, name)
        self.reward_processing_classes.insert(place, None)

    def _get_per_token_logps_and_entropies(self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, **rest: Any) -> Any:
        asked = (model, input_ids, attention_mask, logits_to_keep)
        if self.micro is None or not rest.get("compute_entropy"):  # only the loss asks for entropies
            with self.alternatives.after_sampling(input_ids, attention_mask, logits_to_keep, rest.get("batch_size")):
                return super()._get_per_token_logps_and_entropies(*asked, **rest)
        logits = None
        if "logits" in self.stack.needs:
            logprobs, entropies, logits = self.with_logits(*asked)
            aux_loss = None
            self.alternatives.read_logits(self.micro.rows, logits, input_ids, attention_mask, logits_to_keep)
        else:
            with self.alternatives.in_loss(self.micro.rows, input_ids, attention_mask, logits_to_keep):
                logprobs, entropies, aux_loss = super()._get_per_token_logps_and_entropies(*asked, **rest)
        self.statistics = (logprobs.detach(), entropies.detach())  # (B, T) each
        return self.micro.after_forward(logprobs, entropies, logits), entropies, aux_loss

    def with_logits(self, model: Any, input_ids: Tensor, attention_mask: Tensor, keep: int) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities and entropies (B, T), and the logits (B, T, V) at the sampling temperature, which TRL's fused head never builds."""
        with self.accelerator.autocast():
            logits = model(input_ids=input_ids, attention_mask=attention_mask, logits_to_keep=keep + 1, use_cache=False).logits
        logits = logits[:, -keep - 1 : -1].float() / self.temperature
        every = torch.log_softmax(logits, -1)
        there = attention_mask[:, -keep:].bool()
        logprobs = every.gather(2, input_ids[:, -keep:, None])[..., 0].masked_fill(~there, 0.0)
        entropies = -(every.exp() * every).sum(-1)
        return logprobs, entropies.masked_fill(~there, 0.0), logits

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        number, slices = self._step % self.generate_every, self.args.steps_per_generation
        first_pass, last_pass = number < slices, number >= self.generate_every - slices
        self.micro = MicroBatch(self, self.stack, dict(inputs), inputs[ROW], first_pass)
        loss: Tensor = super()._compute_loss(model, self.micro.inputs)
        loss = loss * self.micro.row_scale + self.micro.terms() / self.current_gradient_accumulation_steps
        self.report(number % slices, self.micro, first_pass, last_pass)
        self.micro = None
        return loss

    def report(self, place: int, micro: MicroBatch, first_pass: bool, last_pass: bool) -> None:
        """Hands a slice of the batch to the writer's thread once its last pass is over, with one copy from the device in each of the two passes."""
        assert self.batch is not None
        planes = first_planes(micro, *self.statistics) if first_pass else {}
        if last_pass:
            planes |= self.last_planes(micro)
        found = gather_planes(planes)
        rows = ranks.all_of_list(micro.rows.tolist()) if first_pass or self.added.count else []
        if first_pass and self.alternatives.chosen:
            self.batch.alternatives = merge_mappings(ranks.all_of_list([self.alternatives.found]))
        if found is None:  # the first process reports for all
            return
        arrays, rows = drop_added(copy_planes_to_host(found), rows, len(self.batch.texts))
        if first_pass:
            step = self.state.global_step + 1  # the update they lead to
            scored = [self.batch.scored(row, step, self.num_generations, self.weights, self.eos_token_ids) for row in rows]
            own = self._metrics["train"] if not self.corrects_sampler else None  # TRL says it itself
            self.gap.add(arrays, own, place == self.args.steps_per_generation - 1)
            self.passes.first(place, Slice(scored, arrays, self.attempt.reporter.stamp(), self.batch, rows))
        if last_pass:
            self.passes.last(place, arrays)

    def write(self, slice_: Slice) -> None:
        self.attempt.reporter.later(partial(build_events, slice_.scored, slice_.arrays, self.attempt.pieces, slice_.stamp))
        if self.shadows.names:  # after its rollouts, which the scores are added to
            slice_.batch.reported |= dict(zip(slice_.rows, slice_.scored, strict=True))
            if len(slice_.batch.reported) == len(slice_.batch.texts):
                self.shadows.offer(slice_.batch.list_reported())

    def train(self, *args: Any, **rest: Any) -> Any:
        """Nothing that was sampled is lost when training fails between two passes."""
        try:
            return super().train(*args, **rest)
        finally:
            self.passes.flush()
            self.shadows.close()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.passes.flush()  # the last step of a run may be between two passes
        super()._save_checkpoint(model, trial)

    @property
    def first_group(self) -> int:
        """Number of the first group of the generation batch: another one where several batches are sampled for one step."""
        earlier = self._step % self.args.gradient_accumulation_steps // self.generate_every
        return int(earlier * (self.args.generation_batch_size // self.num_generations))

    @property
    def generate_every(self) -> int:
        """Micro-batches for which one generation batch is used."""
        return int(self.args.steps_per_generation * self.num_iterations)

    def at_boundary(self) -> bool:
        return bool(self._step % self.generate_every == 0)

    def counters(self) -> dict[str, int]:
        return {"micro_steps": self._step}

    def restore_counters(self, counters: dict[str, int]) -> None:
        self._step = counters["micro_steps"]

    def tokens_seen(self) -> int:
        return int(self.state.num_input_tokens_seen)

    def _get_train_sampler(self, dataset: Dataset | None = None) -> SeekableRepeatSampler:
        return SeekableRepeatSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=self.num_generations,
            batch_size=self.args.generation_batch_size // self.num_generations,
            repeat_count=self.generate_every,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )


def widen_completions(output: dict[str, Any], width: int, pad: int) -> None:
    """The tensors (B, T) of completions as wide as in the process with the longest one."""
    fill = {"completion_ids": pad, "tool_mask": 1}
    names = ("completion_ids", "completion_mask", "tool_mask", "old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps")
    for name in (*names, "importance_sampling_ratio"):
        values = output.get(name)
        if values is not None and values.shape[1] != 1:  # a ratio of whole sequences has one column
            output[name] = torch.nn.functional.pad(values, (0, width - values.shape[1]), value=fill.get(name, 0))


def gather_planes(planes: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """(B, T) each of every process -> (N B, T) each, in one message; None in the processes beside the first."""
    if not ranks.is_joined() or not planes:
        return planes if ranks.is_first() else None
    shape = next(iter(planes.values())).shape
    stacked = torch.stack([plane.detach().float().expand(shape) for plane in planes.values()], 1)  # (B, planes, T)
    found = ranks.gather_to_first(stacked)
    return None if found is None else dict(zip(planes, found.unbind(1), strict=True))


def drop_added(arrays: Arrays, rows: list[int], count: int) -> tuple[Arrays, list[int]]:
    """Of a slice, what belongs to one of the ``count`` rollouts' own rows; ``rows``: of the slice, or none where it holds no other."""
    kept = [place for place, row in enumerate(rows) if row < count]
    if len(kept) == len(rows):
        return arrays, rows
    return {name: values[kept] for name, values in arrays.items()}, [rows[place] for place in kept]


def merge_mappings(found: Sequence[Mapping[int, Any]]) -> dict[int, Any]:
    return {row: value for one in found for row, value in one.items()}


def build_prompt_dataset(examples: Sequence[Example]) -> Dataset:
    """Prompts, and the number of the example each one belongs to: everything else about it stays here."""
    prompts = [as_rows(example.prompt) for example in examples]
    return Dataset.from_dict({"prompt": prompts, "example": list(range(len(examples)))})


def build_group_arguments(attempt: Attempt) -> dict[str, Any]:
    training = attempt.spec.training
    assert isinstance(training, GroupRollouts)
    return {
        **build_common_arguments(attempt),
        "num_generations": training.num_generations,
        "max_completion_length": training.max_completion_length,
        "temperature": training.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "beta": training.beta,
        "epsilon": training.epsilon,
        "num_iterations": training.num_iterations,
        "steps_per_generation": training.steps_per_generation,
        "reward_weights": list(attempt.weights.values()),
        "use_vllm": training.uses_vllm,
        **(attempt.generation_server.build_arguments() if attempt.generation_server else {"vllm_mode": "colocate"}),
        "log_completions": False,
    }
