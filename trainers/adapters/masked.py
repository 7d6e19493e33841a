"""GRPO on a masked diffusion policy: TRL's loop and all hooks as they are, another estimate of log-probabilities.

``MaskedScoring`` stands between the lab's adapter and TRL's trainer, so that whatever asks TRL for log-probabilities (the loss, those of the policy
that sampled, of the reference) gets the coupled estimate.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from trainers.adapters.grpo import GRPOAdapter
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.masked.scoring import open_window
from trainers.methods.masked_base import MaskedBase
from trainers.methods.stack import Stack
from trainers.tasks.base import Example


class MaskedScoring(GRPOTrainer):  # type: ignore[misc]
    """Mixed in behind ``GRPOAdapter``, which says how often a batch is used and has the run's stack."""

    stack: Any

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **rest: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """(B, T) log-probabilities and entropies of the completions, 0 behind their ends."""
        found, entropies = [], []
        seed = self.args.seed + 1_000_003 * (self._step // self.generate_every)  # other masks for every generation batch
        for start in range(0, len(input_ids), batch_size or len(input_ids)):
            part = slice(start, start + (batch_size or len(input_ids)))
            there = attention_mask[part]
            window = open_window(input_ids[part], there, logits_to_keep, self.max_completion_length, self.processing_class.eos_token_id, seed)
            with self.accelerator.autocast():
                logprobs, own = self.stack.base.score(model, window, self.processing_class.pad_token_id, self.temperature)
            behind = there[:, -logits_to_keep:] == 0
            found.append(logprobs[:, :logits_to_keep].masked_fill(behind, 0.0))
            entropies.append(own[:, :logits_to_keep].masked_fill(behind, 0.0))
        return torch.cat(found), torch.cat(entropies) if compute_entropy else None, None


class MaskedAdapter(GRPOAdapter, MaskedScoring):  # type: ignore[misc]
    def __init__(self, attempt: Attempt, examples: Sequence[Example], heldout: HeldOut | None, stack: Stack) -> None:
        base, model = stack.base, attempt.policy.model
        assert isinstance(base, MaskedBase)
        model.config.diffusion_steps, model.config.remasks = base.config.diffusion_steps, base.remasks
        super().__init__(attempt, examples, heldout, stack)
