"""Online DPO on TRL's experimental OnlineDPOTrainer, with every answer, its token statistics and its rewards kept.

TRL samples two answers to each prompt inside a training step: of B prompts, row r and row B + r of what it computes are the pair of prompt r. The
statistics are those of its own forward passes, at temperature 1. The reference is the policy the run starts from.

Methods may change what is trained on, gradients and the reference policy; rewards and the loss are TRL's.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

from trainers.adapters.alternatives import AlternativesRecorder
from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.groups import RewardedAdapter, build_prompt_dataset
from trainers.adapters.passes import copy_planes_to_host
from trainers.adapters.recorder import record_outputs
from trainers.adapters.rollouts import build_events
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.attempt.telemetry import Scored
from trainers.contract.hyperparameters import OnlineDPO
from trainers.judges import rewards
from trainers.methods.stack import Stack
from trainers.policies.loading import build_lora_config
from trainers.tasks.base import Example

PENALISED = "missing EOS penalty"  # under which a rollout says what its reward is after it


class OnlineDPOAdapter(RewardedAdapter, OnlineDPOTrainer):  # type: ignore[misc]
    stats: dict[str, list[float]]  # TRL's, by the metric

    def __init__(self, attempt: Attempt, examples: Sequence[Example], heldout: HeldOut | None, stack: Stack) -> None:
        self.take_examples(attempt, examples)
        self.totals = torch.zeros(0)  # (2B,) weighted rewards of the micro-batch
        self.planes: dict[str, Tensor] = {}  # (2B, T) each
        self.place = (0, 0)  # the step, and how many of its micro-batches were sampled
        between = BetweenSteps()
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=online_dpo_config(attempt, stack),
            reward_funcs=[self.reward_function(name) for name in self.task.rewards],
            train_dataset=build_prompt_dataset(examples),
            callbacks=[between],
            peft_config=build_lora_config(attempt.spec.lora) if attempt.spec.lora else None,
        )
        self._total_train_tokens = 0
        self.trl_stats = tuple(self.stats)
        self.alternatives = AlternativesRecorder(attempt.spec.telemetry, attempt.spec.seed)
        self.attach(attempt, heldout, between, stack)

    @property
    def beta(self) -> float:
        return float(self._beta)

    @beta.setter
    def beta(self, value: float) -> None:  # an edit's
        self._beta = value

    def log_reward_metric(self, name: str, value: float) -> None:
        self.stats.setdefault(name, []).append(value)

    def _maybe_log_save_evaluate(self, *args: Any, **rest: Any) -> Any:
        """TRL divides by how often a metric was said in the step, and a reward function may not say one of its own in every step."""
        self.stats = {name: values for name, values in self.stats.items() if values}
        logged = super()._maybe_log_save_evaluate(*args, **rest)
        self.stats = {name: [] for name in self.trl_stats} | self.stats
        return logged

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        step, prompts = self.state.global_step + 1, len(inputs["prompt"])
        number = self.place[1] if self.place[0] == step else 0
        self.place = (step, number + 1)
        self.first_group = number * self.args.per_device_train_batch_size
        self.planes = {}
        self.alternatives.begin(step, [self.first_group + row % prompts for row in range(2 * prompts)], scored_next=False)
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        self.report(step, [self.examples[number] for number in inputs["example"]])
        return loss

    def _generate(self, *args: Any, **rest: Any) -> Any:
        found = super()._generate(*args, **rest)
        _, prompt_mask, self.ids, self.there, _ = found  # (2B, T) each
        self._total_train_tokens += int(prompt_mask.sum() + self.there.sum())
        return found

    def _forward(self, model: Any, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, there: Tensor, *rest: Any) -> Tensor:
        asked = (model, prompt_ids, prompt_mask, ids, there, *rest)
        if not torch.is_grad_enabled():  # the reference's
            logprobs: Tensor = super()._forward(*asked)
            self.planes["reference_logprobs"] = logprobs * there
            return logprobs
        with record_outputs(model) as outputs:
            logprobs = super()._forward(*asked)
        logits = outputs.pop().logits[:, -ids.shape[1] - 1 : -1].detach()
        self.planes |= {"logprobs": logprobs.detach() * there, "entropies": compute_entropies(logits) * there}
        rows = torch.arange(len(ids), device=ids.device)
        self.alternatives.read_logits(rows, logits.float(), ids, there, ids.shape[1])
        return logprobs

    def _calculate_rewards_from_functions(self, prompts: Any, completions: Any, completion_ids_list: Any, **rest: Any) -> Tensor:
        totals: Tensor = super()._calculate_rewards_from_functions(prompts, completions, completion_ids_list, **rest)
        self.totals = totals  # TRL takes its penalty from the same tensor
        self.prompts, self.texts = prompts, [completion[-1]["content"] for completion in completions]
        return totals

    def report(self, step: int, examples: Sequence[Example]) -> None:
        """Hands the micro-batch to the writer's thread, with one copy from the device, and adds to the step's metrics what TRL does not say."""
        arrays = copy_planes_to_host(self.planes)
        ids = [row[:length] for row, length in zip(self.ids.tolist(), self.there.sum(1).tolist(), strict=True)]
        totals = self.totals.tolist() if self.args.missing_eos_penalty is not None else None
        scored = [self.scored(row, step, examples, ids[row], None if totals is None else totals[row]) for row in range(len(ids))]
        self.attempt.reporter.later(partial(build_events, scored, arrays, self.attempt.pieces, self.attempt.reporter.stamp()))
        for name, value in compute_batch_metrics(scored, self.scores, arrays["entropies"]).items():
            self.stats.setdefault(name, []).append(value)

    def scored(self, row: int, step: int, examples: Sequence[Example], ids: list[int], penalised: float | None) -> Scored:
        example = examples[row % len(examples)]
        score = {name: values[row] for name, values in self.scores.items()}
        return Scored(
            step=step,
            phase="train",
            group=self.first_group + row % len(examples),
            sample=row // len(examples),
            prompt=example.prompt,
            reference=example.reference,
            text=self.texts[row],
            rewards=score,
            reward=rewards.weighted_sum(score, self.weights),
            shaped={} if penalised is None else {PENALISED: penalised},
            finish_reason="stop" if ids[-1] in self.eos_token_ids else "length",
            ids=ids,
            alternatives=self.alternatives.found.get(row),
        )


@torch.no_grad()
def compute_entropies(logits: Tensor) -> Tensor:
    """(N, T, V) -> (N, T) nats, a sequence at a time: all of them in fp32 at once would be two more copies of the largest tensor there is."""
    found = []
    for row in logits:
        every = torch.log_softmax(row.float(), -1)
        found.append(-(every.exp() * every).sum(-1))
    return torch.stack(found)


def compute_batch_metrics(scored: Sequence[Scored], scores: Mapping[str, Sequence[float | None]], entropies: Any) -> dict[str, float]:
    """Means over the answers, under the names that GRPO's have; of a reward function, over those it has an opinion on."""
    known = torch.tensor([one.reward for one in scored if one.reward is not None])
    lengths = torch.tensor([len(one.ids) for one in scored], dtype=torch.float32)
    found = {
        "reward": known.mean(),
        "reward_std": known.std(),
        "entropy": entropies.sum() / lengths.sum(),
        "completions/mean_length": lengths.mean(),
        "completions/clipped_ratio": sum(one.finish_reason == "length" for one in scored) / len(scored),
    }
    for name, values in scores.items():
        found[f"rewards/{name}/mean"] = torch.tensor([value for value in values if value is not None]).mean()
    return {name: float(value) for name, value in found.items()}


def online_dpo_config(attempt: Attempt, stack: Stack) -> OnlineDPOConfig:
    training = attempt.spec.training
    assert isinstance(training, OnlineDPO)
    settings: dict[str, Any] = {
        **build_common_arguments(attempt),
        "max_new_tokens": training.max_completion_length,
        "max_length": training.max_length,
        "temperature": training.temperature,
        "beta": training.beta,
        "reward_weights": list(attempt.weights.values()),
    }
    return OnlineDPOConfig(**settings | stack.base.arguments())
