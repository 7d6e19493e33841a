"""LLDS: keeps the likelihood of good actions from falling (arXiv 2512.04220).

Several passes over one batch lower the likelihood even of correct completions, until a run collapses. d_t = log pi_old(y_t) - log pi(y_t), with old
detached. Preserved tokens are loss tokens with advantage >= 0. An action is a maximal run of them (a turn of the policy between two observations; in
a single-turn task, one completion is one action). Loss term = lambda / N * sum of max(0, d_t) over the tokens of actions whose d sums to more than 0,
where N is the number of loss tokens of the batch. The gate "response" (LLDS-R) treats the preserved tokens of a completion as one action; "action" is
LLDS-A. It differs from GRPO only in that term. The term is 0 while the policy is still the sampling policy, so it needs several passes over a batch
or several optimiser steps per batch. The three phases (stagnation, decay, collapse) are the paper's terms: decay starts when the mean log-likelihood
of correct completions is ``decay`` nats per token below its best value, collapse at five times that.
"""

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.reduce import masked_mean, masked_row_mean
from trainers.maths.thresholds import is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch

SMOOTHING = 0.8  # of the running mean that says the phase
COLLAPSE = 5  # times the fall that begins the decay
PHASES = ("stagnation", "decay", "collapse")


def number_token_runs(kept: Tensor) -> Tensor:
    """(B, T) bool -> (B, T) int64: index of the maximal run that a kept token belongs to, from 1 in each row; 0 on other tokens."""
    before = torch.nn.functional.pad(kept, (1, 0))[:, :-1]
    return (kept & ~before).cumsum(1) * kept


def mask_displaced_tokens(drop: Tensor, kept: Tensor, gate: Literal["action", "response"]) -> Tensor:
    """(B, T) d_t, (B, T) bool -> (B, T) bool: kept tokens of actions whose total likelihood has fallen."""
    action = number_token_runs(kept) if gate == "action" else kept.long()
    sums = torch.zeros(drop.shape[0], drop.shape[1] + 1, dtype=drop.dtype, device=drop.device)
    sums.scatter_add_(1, action, drop * kept)
    return (sums.gather(1, action) > 0) & kept


def displacement_loss(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, gate: Literal["action", "response"], count: Tensor | float | None = None
) -> tuple[Tensor, Tensor]:
    """(B, T) each, advantages (B, T) or (B, 1) -> the unweighted term, and the gated tokens (B, T) bool. ``count``: N, or the mask's own."""
    drop = old.detach() - logprobs
    gated = mask_displaced_tokens(drop.detach(), (mask > 0) & (advantages >= 0), gate)
    return masked_mean(torch.relu(drop) * gated, mask, count), gated


class Config(Strict):
    weight: float = param(0.2, "Weight of the term.", title="Weight (lambda)", ge=0, le=100)
    gate: Literal["action", "response"] = param(
        "action", "Unit whose total likelihood must have fallen: a run of tokens (LLDS-A) or the response (LLDS-R)."
    )
    decay: float = param(
        0.1, "Drop in the likelihood of correct completions that counts as decay; only shown in charts.", unit="nats per token", gt=0, le=10
    )


class LLDS(Method):
    card = Card(
        name="llds",
        title="Likelihood displacement regularisation",
        arxiv="2512.04220",
        system="LLDS",
        base="grpo",
        provenance="code",
        source="github vengdeng/LLDS-On-Group-Relative-Policy-Optimization-Collapse-in-Search-R1: verl/workers/actor/dp_actor.py",
        fit="core",
        idea=(
            "If an action with a non-negative advantage has become less likely than when it was sampled, penalise only its "
            "tokens that became less likely."
        ),
        formula=(
            r"d_t = \log \pi_{old}(y_t) - \log \pi_\theta(y_t)",
            r"L = L_{GRPO} + \frac{\lambda}{N} \sum_{a:\, A_a \ge 0} 1\left[\sum_{t \in a} d_t > 0\right] \sum_{t \in a} \max(0, d_t)",
        ),
        departures=(
            "The term is divided by the loss tokens of the batch; the authors' code uses those of the micro-batch.",
            "A threshold that the released code never reads and a weight of the answer region that is off there are not implemented.",
            "The boundary between stagnation and decay is our choice; it is only shown in charts.",
        ),
        claim=("llds/likelihood_right", "higher"),
        parallel=False,
    )
    Config = Config
    requires = (
        Requirement(
            "training.num_iterations",
            "at least",
            2,
            "the term is 0 while the policy is the sampling policy: use several passes over a batch",
            hard=False,
            or_field="training.steps_per_generation",
        ),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.likelihood: float | None = None  # running mean over right completions, nats per token
        self.best: float | None = None

    def loss(self, batch: "LossBatch") -> Tensor:  # type: ignore[override]
        advantages = batch.token_advantages()
        term, gated = displacement_loss(batch.logprobs, batch.old_logprobs, advantages, batch.mask, self.config.gate, batch.token_count)
        self.log("displacement", term)
        self.log("gated_tokens", gated.sum() / batch.mask.sum().clamp(min=1.0))
        if batch.first_pass:
            self.watch(batch)
        return self.config.weight * term

    def watch(self, batch: "LossBatch") -> None:
        """Logs the likelihood of correct and wrong completions under the sampling policy, and the phase it implies."""
        means, right = masked_row_mean(batch.old_logprobs, batch.mask), batch.of(batch.rollout.correct)
        there = batch.mask.sum(1) > 0
        for name, chosen in (("right", right & there), ("wrong", ~right & there)):
            if chosen.any():
                self.log(f"likelihood_{name}", means[chosen].mean())
        if (right & there).any():
            now = float(means[right & there].mean())
            self.likelihood = now if self.likelihood is None else SMOOTHING * self.likelihood + (1 - SMOOTHING) * now
            self.best = self.likelihood if self.best is None else max(self.best, self.likelihood)
        self.log("phase", float(self.phase()))

    def phase(self) -> int:
        fall = 0.0 if self.best is None or self.likelihood is None else self.best - self.likelihood
        return int(is_at_least(fall, self.config.decay)) + int(is_at_least(fall, COLLAPSE * self.config.decay))

    def state(self) -> dict[str, Any]:
        return {"likelihood": self.likelihood, "best": self.best}

    def restore(self, state: dict[str, Any]) -> None:
        self.likelihood, self.best = state["likelihood"], state["best"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Likelihood of completions",
                (Series("llds/likelihood_right", "right"), Series("llds/likelihood_wrong", "wrong")),
                "phases",
                unit="nats per token",
                phase="llds/phase",
                phase_names=PHASES,
                help="Mean log-likelihood under the sampling policy. Falling likelihood of correct completions is an early sign of collapse.",
            ),
            Panel("Displaced tokens", (Series("llds/gated_tokens", "share of tokens in the term"), Series("llds/loss", "term", dashed=True))),
        )
