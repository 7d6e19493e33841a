"""RLOO on TRL's RLOOTrainer; what it shares with GRPO is in ``groups.py``.

TRL forms one importance ratio for a whole completion and takes the KL penalty from its reward. The token statistics are those of the same forward
passes: the one right after sampling, which TRL always runs, and the loss's.

Methods on RLOO may change what it trains on, gradients and the reference policy; rewards, advantages and the loss are TRL's.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from trl import RLOOConfig, RLOOTrainer

from trainers.adapters.groups import GroupAdapter, build_group_arguments
from trainers.adapters.micro_batch import MicroBatch
from trainers.adapters.passes import last_planes
from trainers.adapters.sampler import hear_sampler
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.methods.bases.rloo import leave_one_out
from trainers.methods.stack import Stack
from trainers.tasks.base import Example

PENALISED = "KL penalty"  # under which a rollout says what its reward is after it


class RLOOAdapter(GroupAdapter, RLOOTrainer):  # type: ignore[misc]
    def __init__(self, attempt: Attempt, examples: Sequence[Example], heldout: HeldOut | None, stack: Stack) -> None:
        self.passed: list[Tensor] = []  # (B, T) log-probabilities of the passes right after sampling: the policy's, then its reference's
        self.heard: Tensor | None = None  # (B, T) what the sampler said
        self.build(attempt, examples, heldout, stack, RLOOConfig(**build_group_arguments(attempt) | stack.base.arguments()))

    def _generate_single_turn(self, *args: Any, **rest: Any) -> Any:
        if self.use_vllm or not self.hears_sampler:
            return super()._generate_single_turn(*args, **rest)
        with hear_sampler(self.accelerator.unwrap_model(self.model_wrapped), self.temperature) as heard:
            ids = super()._generate_single_turn(*args, **rest)
        rows = [row[: len(own)] for row, own in zip(heard[0], ids, strict=True)]
        self.heard = pad_sequence(rows, batch_first=True)
        return ids

    def _get_per_token_logps_and_entropies(  # type: ignore[override]  # TRL's RLOOTrainer hands the batch size over by its place
        self, model: Any, ids: Tensor, there: Tensor, keep: int, batch_size: int | None = None, **rest: Any
    ) -> Any:
        found = super()._get_per_token_logps_and_entropies(model, ids, there, keep, batch_size=batch_size, **rest)
        if self.micro is None:
            self.passed.append(found[0])
        return found

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.passed.clear()
        self.heard = None
        output = super()._generate_and_score_completions(inputs)
        for name, values in zip(("old_per_token_logps", "ref_per_token_logps"), self.passed, strict=False):
            output[name] = values * output["completion_mask"]
        if self.heard is not None:
            output["sampling_per_token_logps"] = self.heard
        self.report_rewards(output)
        return output

    def report_rewards(self, output: dict[str, Any]) -> None:
        """What TRL's advantages are worked out from, where that is not the reward as it is."""
        assert self.batch is not None
        reward = (self.component_scores * self.reward_weights.to(self.component_scores.device)).nansum(1)
        reward = reward.masked_fill(self.component_scores.isnan().all(1), torch.nan)
        if "ref_per_token_logps" in output:
            reward = reward - self.beta * (output["old_per_token_logps"] - output["ref_per_token_logps"]).sum(1)
            self.batch.shaped[PENALISED] = reward.nan_to_num().tolist()
        if self.normalize_advantages:
            self.batch.contributions["base"] = leave_one_out(reward, self.num_generations).nan_to_num().tolist()

    def reference_kept(self) -> nullcontext[None]:
        """Nothing: the penalty is in the reward, so a batch needs its reference exactly where beta was not 0 while it was scored."""
        return nullcontext()

    @property
    def scores_what_it_sampled(self) -> bool:
        return True

    @property
    def corrects_sampler(self) -> bool:
        return False

    def last_planes(self, micro: MicroBatch) -> dict[str, Tensor]:
        return last_planes(micro, (self.epsilon_low, self.epsilon_high), "rloo", "completion")
