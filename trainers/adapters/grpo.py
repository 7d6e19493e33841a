"""GRPO on TRL's GRPOTrainer, with every rollout and its token statistics kept.

The statistics are the tensors that TRL's loss computes anyway; nothing is computed twice. A row of the generation batch carries its number
through TRL's shuffling and splitting, so that each slice of the loss knows which rollouts it holds.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy.typing as npt
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import RepeatSampler

from trainers import rewards
from trainers.adapters.arguments import common
from trainers.adapters.resumable import Resumable
from trainers.attempt import Attempt
from trainers.callbacks import BetweenSteps
from trainers.evaluate import HeldOut
from trainers.events import AnyEvent
from trainers.hyperparameters import GRPO
from trainers.policies import adapters
from trainers.sampling import Completion, Sampler, Sampling, prompt_ids
from trainers.tasks.base import Example
from trainers.telemetry import Pieces, Scored, rollout

ROW = "rollout_row"  # key under which a row's number travels with TRL's tensors


class GenerationBatch:
    """B completions sampled together, in the order they were sampled: G for each prompt, one prompt after the other."""

    def __init__(
        self, examples: Sequence[Example], texts: Sequence[str], ids: Sequence[Sequence[int]], scores: dict[str, list[float | None]]
    ) -> None:
        self.examples = examples
        self.texts = texts
        self.ids = ids
        self.scores = scores
        self.first_group = 0  # another one where several batches are sampled for one step
        self.advantages: list[float] = []
        self.episodes: Sequence[Completion] | None = None  # of a task with several turns

    def scored(self, row: int, step: int, group_size: int, weights: dict[str, float], ends: Sequence[int]) -> Scored:
        score = {name: values[row] for name, values in self.scores.items()}
        episode = self.episodes[row] if self.episodes else None
        return Scored(
            step=step,
            phase="train",
            group=self.first_group + row // group_size,
            sample=row % group_size,
            prompt=self.examples[row].prompt,
            reference=self.examples[row].reference,
            text=self.texts[row],
            rewards=score,
            reward=rewards.weighted_sum(score, weights),
            advantage=self.advantages[row],
            finish_reason=episode.finish_reason if episode else "stop" if self.ids[row][-1] in ends else "length",
            ids=self.ids[row],
            mask=episode.mask if episode else (),
            turns=episode.turns if episode else [],
        )


def build_events(scored: Sequence[Scored], statistics: npt.NDArray[Any], pieces: Pieces, stamp: dict[str, Any]) -> list[AnyEvent]:
    """``statistics``: log-probabilities and entropies, (2, B, T), padded on the right."""
    logprobs, entropies = statistics
    return [rollout(one, logprobs[i, : len(one.ids)], entropies[i, : len(one.ids)], pieces, stamp) for i, one in enumerate(scored)]


class SeekableRepeatSampler(RepeatSampler):  # type: ignore[misc]
    """TRL's order of prompts, and the same order again when a resumed run starts in a later epoch."""

    def set_epoch(self, epoch: int) -> None:
        self.generator.manual_seed(self.seed)
        for _ in range(epoch):
            torch.randperm(self.num_samples, generator=self.generator)


class GRPOAdapter(Resumable, GRPOTrainer):  # type: ignore[misc]
    """Where hooks of methods will be called: ``_calculate_rewards`` (rewards), ``_generate_and_score_completions`` (advantages, token weights)
    and ``_compute_loss`` (loss). Each overrides one TRL method and hands its result on unchanged."""

    def __init__(self, attempt: Attempt, examples: Sequence[Example], heldout: HeldOut | None) -> None:
        self.examples = examples
        self.task = attempt.task
        self.weights = attempt.weights
        self.scores: dict[str, list[float | None]] = {}
        self.batch: GenerationBatch | None = None
        self.episodes: Sequence[Completion] | None = None
        between = BetweenSteps()
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=grpo_config(attempt),
            reward_funcs=[self.reward_function(name) for name in self.task.rewards],
            train_dataset=as_dataset(examples),
            callbacks=[between],
            peft_config=adapters(attempt.spec.lora) if attempt.spec.lora else None,
            rollout_func=self.roll_out if self.task.max_turns > 1 else None,
        )
        self.attach(attempt, heldout, between)

    def reward_function(self, name: str) -> Callable[..., list[float | None]]:
        def function(completions: list[list[dict[str, str]]], example: list[int], **rest: Any) -> list[float | None]:
            texts = [completion[-1]["content"] for completion in completions]
            self.scores[name] = [rewards.score(self.task, name, text, self.examples[i]) for text, i in zip(texts, example, strict=True)]
            return self.scores[name]

        function.__name__ = name  # TRL names its metrics after it
        return function

    def roll_out(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """TRL's rollout function: several turns, the world's tokens masked out of the loss. ``prompts`` holds every prompt G times."""
        examples = [self.examples[row["example"]] for row in self.rows]
        how = Sampling(self.temperature, self.max_completion_length, len(prompts), statistics=False)
        sampler = Sampler(self.accelerator.unwrap_model(self.model), self._tokenizer, self.task, how)
        self.episodes = sampler.complete_batch(examples, prompt_ids(self._tokenizer, examples))
        return {
            "prompt_ids": [episode.prompt_ids for episode in self.episodes],
            "completion_ids": [episode.ids for episode in self.episodes],
            "logprobs": None,
            "env_mask": [episode.mask for episode in self.episodes],
        }

    def _calculate_rewards(self, inputs: list[dict[str, Any]], prompts: Any, completions: Any, completion_ids_list: list[list[int]]) -> torch.Tensor:
        scores: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)  # (B, F)
        texts = [completion[-1]["content"] for completion in completions]
        self.batch = GenerationBatch([self.examples[row["example"]] for row in inputs], texts, completion_ids_list, dict(self.scores))
        return scores

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.rows = inputs  # TRL's rollout function is given the prompts only
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        assert self.batch is not None
        self.batch.advantages = output["advantages"].tolist()  # (B,)
        self.batch.episodes = self.episodes
        earlier = self._step % self.args.gradient_accumulation_steps // self.generate_every  # batches sampled for this step before
        self.batch.first_group = earlier * (len(inputs) // self.num_generations)
        output[ROW] = torch.arange(len(inputs))  # (B,)
        return output

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        logprobs, entropies, aux_loss = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if kwargs.get("compute_entropy"):  # only the loss asks for them
            self.statistics = (logprobs.detach(), entropies.detach())  # (B, T) each
        return logprobs, entropies, aux_loss

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        if self._step % self.generate_every < self.args.steps_per_generation:  # the first pass over this batch
            self.report(inputs[ROW].tolist())
        return loss

    def report(self, rows: list[int]) -> None:
        """Hands a slice of the batch to the writer's thread, with one copy from the device."""
        assert self.batch is not None
        statistics = torch.stack(self.statistics).float().cpu().numpy()  # (2, B, T)
        step = self.state.global_step + 1  # the update they lead to
        scored = [self.batch.scored(row, step, self.num_generations, self.weights, self.eos_token_ids) for row in rows]
        reporter = self.attempt.reporter
        reporter.later(partial(build_events, scored, statistics, self.attempt.pieces, reporter.stamp()))

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


def as_dataset(examples: Sequence[Example]) -> Dataset:
    """Prompts, and the number of the example each one belongs to: everything else about it stays here."""
    prompts = [[{"role": message.role, "content": message.content} for message in example.prompt] for example in examples]
    return Dataset.from_dict({"prompt": prompts, "example": list(range(len(examples)))})


def grpo_config(attempt: Attempt) -> GRPOConfig:
    training = attempt.spec.training
    assert isinstance(training, GRPO)
    return GRPOConfig(
        **common(attempt),
        num_generations=training.num_generations,
        max_completion_length=training.max_completion_length,
        temperature=training.temperature,
        top_p=1.0,
        top_k=0,
        beta=training.beta,
        epsilon=training.epsilon,
        num_iterations=training.num_iterations,
        steps_per_generation=training.steps_per_generation,
        loss_type="dapo",
        scale_rewards="group",
        reward_weights=list(attempt.weights.values()),
        use_vllm=training.use_vllm,
        vllm_mode="colocate",
        log_completions=False,
    )
