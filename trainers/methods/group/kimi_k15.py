"""Kimi k1.5: online policy mirror descent with a length reward and hard prompts first (arXiv 2501.12599), our interpretation of second-hand notes.

At the start of each iteration the policy is frozen as the reference pi_i. k completions are sampled per prompt, and with lp = the sum of a
completion's token log-probabilities, L = mean_j [-(r_j - rbar) lp_j + (tau / 2) (lp_j - lp_j^ref)^2]; then the reference becomes the policy. It
differs from GRPO in three ways: there is no importance ratio and no clipping; instead, the squared log-ratio of the whole completion to the start of
the iteration is penalised; and advantages are not divided by the standard deviation. rbar is the group's mean, or the exact tau log mean exp(r /
tau). Sequence sums are large, so L is divided by the max completion length, as in Dr. GRPO: with tau = 0 the first pass equals Dr. GRPO. Length
reward over the k completions: lambda = 0.5 - (len - min) / (max - min); a correct completion gets lambda, a wrong one min(0, lambda), and all get 0
if their lengths are equal. Sampling weight of a prompt: 1 minus its last success rate, and 1 for a prompt not sampled yet.

Unlike an earlier summary says, the length weight is not warmed up from 0 to 1: the report uses no length penalty at first and then a constant one,
whose size it does not give; here it is 0.2 from half of the run on. Length counts response tokens, as in the report (the quoted code counts
characters). tau and the length of an iteration are not disclosed either. The reference is updated when an iteration begins, before its first batch is
sampled, so that its log-ratio is exactly 0 there. Not implemented: the reset of Adam at each iteration (a method has no access to the optimiser),
partial rollouts and long-to-short distillation. It costs the reference's forward pass: about 1.2 times a Dr. GRPO step.
"""

import math
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import centre_by_group
from trainers.maths.reduce import masked_row_mean
from trainers.maths.thresholds import is_above
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History


def exact_baseline(rewards: Tensor, group_size: int, tau: float) -> Tensor:
    """(B,) -> (B,): tau log mean exp(r / tau) of each group, the normaliser of the mirror-descent step."""
    groups = rewards.view(-1, group_size)
    value = tau * (torch.logsumexp(groups / tau, 1) - math.log(group_size))
    return value.repeat_interleave(group_size)


def length_reward(lengths: Tensor, correct: Tensor, group_size: int) -> Tensor:
    """(B,), (B,) bool -> (B,) in [-0.5, 0.5]: shorter completions in a group earn more, but a wrong one never earns more than 0."""
    groups = lengths.view(-1, group_size)
    low, high = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
    value = torch.where(high > low, 0.5 - (groups - low) / (high - low).clamp(min=1), torch.zeros_like(groups)).flatten()
    return torch.where(correct, value, value.clamp(max=0.0))


def mirror_descent_loss(gaps: Tensor, log_p: Tensor, log_reference: Tensor, tau: float) -> Tensor:
    """(B,) each -> (B,): reward minus baseline, and log-probability of the whole completion under policy and reference."""
    return -gaps * log_p + 0.5 * tau * (log_p - log_reference) ** 2


class Config(Strict):
    tau: float = param(
        0.1, "Strength of the pull towards the policy at the start of the iteration; not disclosed.", title="Regularisation (tau)", ge=0, le=1000
    )
    baseline: Literal["mean", "exact"] = param("mean", "Baseline subtracted from the reward: the group's mean, or its soft maximum at tau.")
    refresh_every: int = param(5, "Optimiser steps per iteration, after which the reference becomes the policy.", title="Iteration length", ge=1)
    length_weight: float = param(0.2, "Weight of the length reward once it is on; not disclosed.", title="Length weight", ge=0, le=100)
    length_from: float = param(0.5, "Share of the run after which the length reward is on.", title="Length reward from", ge=0, le=1)
    hard_prompts: bool = param(True, "Draw prompts in proportion to 1 minus their last success rate.", title="Hard prompts first")


class KimiK15(Method):
    card = Card(
        name="kimi-k15",
        title="Online policy mirror descent",
        arxiv="2501.12599",
        system="Kimi k1.5",
        base="dr-grpo",
        provenance="abstract",
        source="a public study note that quotes equations 1 to 3 and section 2.3; open-r1's length reward",
        fit="core",
        idea=(
            "Optimise the policy relative to its own state at the start of each iteration, with a squared log-ratio penalty; "
            "later, also reward brevity."
        ),
        formula=(
            r"L = \frac{1}{k}\sum_j -\left(r_j - \bar r\right) \log \pi_\theta(y_j)"
            r" + \frac{\tau}{2}\left(\log \frac{\pi_\theta(y_j)}{\pi_i(y_j)}\right)^2",
            r"\lambda_j = \frac{1}{2} - \frac{len_j - \min len}{\max len - \min len}",
        ),
        reading="the report was not read; tau, the length weight and the length of an iteration are our choices, and Adam is not reset",
        departures=(
            "Adam is not reset at each iteration.",
            "Partial rollouts and long-to-short distillation are not implemented.",
        ),
        claim=("completions/mean_length", "lower"),
    )
    Config = Config
    roles = {"rewards": "maps", "advantages": "makes"}
    owns = frozenset({"advantages", "policy loss", "reference", "curriculum"})
    whole_answers = True
    needs = frozenset({"reference"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.began = 1  # step the iteration began with

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def curriculum(self, history: "History") -> Tensor | None:
        """Called before each batch is sampled, where an iteration can begin."""
        if history.step - self.began >= self.config.refresh_every:
            self.run.reference.load_state_dict(self.run.model.state_dict())
            self.began = history.step
        if not self.config.hard_prompts:
            return None
        weights = 1 - torch.tensor(history.last_accuracy(0.0))
        self.log("seen_prompts", float(len(history.visits)))
        self.log("prompt_weight", weights.mean())
        return weights

    def reference(self, step: int, policy: Any, reference: Any) -> bool:
        return step > 1 and step == self.began

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        for name, chosen in (("right", batch.correct), ("wrong", ~batch.correct)):
            if chosen.any():
                self.log(f"length_{name}", batch.lengths[chosen].mean())
                self.log_histogram(f"lengths_{name}", batch.lengths[chosen], 0.0, float(batch.max_tokens))
        weight = self.config.length_weight if is_above(batch.step, self.config.length_from * batch.total_steps) else 0.0
        self.log("length_weight", weight)
        return rewards + weight * length_reward(batch.lengths, batch.correct, batch.group_size).to(rewards.dtype)

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        if self.config.baseline == "exact" and self.config.tau > 0:
            return batch.shaped - exact_baseline(batch.shaped, batch.group_size, self.config.tau)
        return centre_by_group(batch.shaped, batch.group_size)

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        assert batch.reference_logprobs is not None
        gaps = batch.advantages if batch.advantages.dim() == 1 else masked_row_mean(batch.advantages, batch.mask)
        log_p, log_reference = (batch.logprobs * batch.mask).sum(1), (batch.reference_logprobs * batch.mask).sum(1)
        self.log("squared_log_ratio", ((log_p - log_reference) ** 2).mean())
        return mirror_descent_loss(gaps, log_p, log_reference, self.config.tau).mean() / batch.max_tokens

    def state(self) -> dict[str, Any]:
        return {"began": self.began}

    def restore(self, state: dict[str, Any]) -> None:
        self.began = state["began"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Distance from the start of the iteration",
                (
                    Series("kimi-k15/squared_log_ratio", "mean squared log-ratio"),
                    Series("kimi-k15/reference_updated", "reference updated", dashed=True),
                ),
            ),
            Panel(
                "Completion length",
                (Series("kimi-k15/length_right", "right"), Series("kimi-k15/length_wrong", "wrong")),
                unit="tokens",
            ),
            Panel("Lengths of correct completions", (Series("kimi-k15/lengths_right"),), "histogram", unit="tokens"),
            Panel("Lengths of wrong completions", (Series("kimi-k15/lengths_wrong"),), "histogram", unit="tokens"),
            Panel(
                "Sampling weight of prompts",
                (Series("kimi-k15/prompt_weight", "mean over prompts"),),
                help="1 minus the last success rate; 1 for prompts not sampled yet.",
            ),
        )
