"""The hooks of one micro-batch of the GRPO loss."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.batch import LossBatch
from trainers.methods.stack import Stack

if TYPE_CHECKING:
    from trainers.adapters.groups import GroupAdapter


class MicroBatch:
    """``inputs`` is a copy of TRL's: what the hooks change in it is gone after this pass."""

    def __init__(self, trainer: "GroupAdapter", stack: Stack, inputs: dict[str, Any], rows: Tensor, first_pass: bool) -> None:
        self.trainer = trainer
        self.stack = stack
        self.inputs = inputs
        self.rows = rows
        self.first_pass = first_pass
        self.batch: LossBatch | None = None
        self.weights: Tensor | None = None  # (B, T) product of the methods' token weights
        self.sampled_logprobs: Tensor | None = inputs.get("old_per_token_logps")  # (B, T); None: the policy of this pass is the one that sampled
        self.used_logprobs: Tensor | None = None  # (B, T) those that TRL forms the importance ratio with

    @property
    def mask(self) -> Tensor:
        """(B, T): 1 = in the loss."""
        there: Tensor = self.inputs["completion_mask"]
        return there * self.inputs["tool_mask"] if "tool_mask" in self.inputs else there

    @property
    def token_count(self) -> Tensor:
        """Loss tokens of the sampled batch over its micro-batches, as TRL counts them."""
        everywhere: Tensor = self.inputs["num_items_in_batch"]
        return everywhere / self.trainer.accelerator.num_processes / self.trainer.args.steps_per_generation

    @property
    def row_scale(self) -> float:
        """Takes the completions that a method left out from what TRL divides its loss by."""
        return self.batch.row_scale if self.batch is not None else 1.0

    def after_forward(self, logprobs: Tensor, entropies: Tensor, logits: Tensor | None) -> Tensor:
        """Called when the policy's log-probabilities (B, T) are known and TRL has not read the advantages yet. Returns those TRL is to use."""
        used = self.apply(logprobs, entropies, logits)
        self.used_logprobs = used.detach()
        return used

    def apply(self, logprobs: Tensor, entropies: Tensor, logits: Tensor | None) -> Tensor:
        """The hooks of the forward pass."""
        if not self.stack.shapes_rollouts:
            return logprobs
        kept = self.kept()
        logprobs, entropies = without_gradient(logprobs, kept), without_gradient(entropies, kept)
        self.batch = self.batch_of(logprobs, entropies, None if logits is None else without_gradient(logits, kept))
        self.weigh()
        if (method := self.stack.one("log_ratios")) is not None:
            ratios = method.log_ratios(self.batch)
            if ratios is not None:
                self.inputs["old_per_token_logps"] = self.batch.old_logprobs
                logprobs = self.batch.old_logprobs + ratios * self.batch.mask
        if self.stack.one("policy_loss") is not None:  # TRL's own term is 0 without advantages; what is left of its loss is the KL penalty
            self.inputs["advantages"] = torch.zeros_like(self.inputs["advantages"])
        return logprobs

    def kept(self) -> Tensor | None:
        """(B, 1) or (B, T) bool of this slice: False where a method left a completion, or some of its tokens, out of the loss; None: nowhere."""
        batch = self.trainer.scoring.rollout_batch
        if batch is None or batch.kept is None:
            return None
        rows, count = self.rows.to(batch.kept.device), len(batch.kept)
        kept = batch.kept[rows.clamp(max=count - 1)]
        kept = kept if kept.dim() == 2 else kept[:, None]
        kept = kept | (rows >= count)[:, None]  # of a row beside a member's first its mask alone decides
        width = self.inputs["completion_mask"].shape[1]  # of the longest of all rows
        return kept if kept.shape[1] in (1, width) else torch.nn.functional.pad(kept, (0, width - kept.shape[1]), value=True)

    def batch_of(self, logprobs: Tensor, entropies: Tensor, logits: Tensor | None) -> LossBatch:
        inputs, trainer = self.inputs, self.trainer
        old = inputs.get("old_per_token_logps")
        assert trainer.scoring.rollout_batch is not None
        return LossBatch(
            rollout=trainer.scoring.rollout_batch,
            rows=self.rows,
            logprobs=logprobs,
            old_logprobs=logprobs.detach() if old is None else old,
            entropies=entropies,
            mask=self.mask.float(),
            advantages=inputs["advantages"],
            step=int(trainer.state.global_step) + 1,
            total_steps=trainer.args.max_steps,
            max_tokens=trainer.max_completion_length,
            first_pass=self.first_pass,
            epsilon=(trainer.epsilon_low, trainer.epsilon_high),
            reference_logprobs=inputs.get("ref_per_token_logps"),
            logits=logits,
            token_count=self.token_count,
            loss_type=trainer.loss_type,
        )

    def weigh(self) -> None:
        """Multiplies the advantages by the methods' token weights: in TRL's losses both are the same for weights of 0 and more."""
        assert self.batch is not None
        methods = self.stack.filling("token_weights")
        if not methods:
            return
        scoring = self.trainer.scoring
        if scoring.token_weights is None:
            scoring.token_weights = torch.ones_like(self.batch.rollout.mask)
        if self.first_pass:
            scoring.token_weights[self.rows] = weights_of(methods, self.batch)
        self.weights = scoring.token_weights[self.rows]
        weighted = self.batch.token_advantages() * self.weights  # (B, T)
        self.batch.advantages = self.inputs["advantages"] = weighted

    def terms(self) -> Tensor:
        """Scalar: what the methods add to the loss of this micro-batch."""
        total = torch.zeros((), device=self.rows.device)
        if self.batch is None:
            return total
        if (owner := self.stack.one("policy_loss")) is not None:
            own = owner.policy_loss(self.batch)
            owner.log("policy_loss", own)
            total = total + own
        for method in self.stack.filling("loss"):
            if (term := method.loss(self.batch)) is not None:
                term = self.batch.token_mean(term) if term.dim() == 2 else term
                method.log("loss", term)
                total = total + term
        return total


def without_gradient(values: Tensor, kept: Tensor | None) -> Tensor:
    """(B, T) or (B, T, V) with the same numbers and, where nothing is kept, no gradient: no term of the loss, whoever adds it, moves those tokens.

    The mask stays as it is, so that what is reported goes on counting them; rows left out whole leave the loss's means by ``Scoring.leave_out``.
    """
    if kept is None:
        return values
    return torch.where(kept if values.dim() == 2 else kept[..., None], values, values.detach())


def weights_of(methods: Sequence[Method], batch: LossBatch) -> Tensor:
    """(B, T) product of the methods' token weights."""
    weights = torch.ones_like(batch.mask)
    for method in methods:
        if (found := method.token_weights(batch)) is not None:
            weights = weights * found.detach()
            log_weights(method, found, batch.mask)
    return weights


def log_weights(method: Method, weights: Tensor, mask: Tensor) -> None:
    method.log("token_weight", masked_mean(weights.detach().float().expand_as(mask), mask))
