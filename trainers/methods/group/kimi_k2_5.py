"""The RL of Kimi K2.5: masked ratios, a squared log-ratio penalty, and Toggle (arXiv 2602.02276, sections 3 and 4.4.2).

Maximises (1 / N) sum over tokens of clip(rho, a, b) (r_j - rbar) - tau (log rho)^2 with rho = pi / pi_old, N = number of all tokens and rbar the
group's mean. Outside [a, b], a token has no gradient from the first term, whatever the sign of its advantage; PPO's minimum keeps one side. It
differs from GRPO in this, in the penalty, and in not dividing by the standard deviation. Toggle changes phase every m steps. In the limited phase, if
a prompt's mean reward reaches the gate, completions longer than the prompt's budget earn 0; in the free phase nothing changes, so the policy keeps
the benefit of longer completions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import centre_by_group, group_mean
from trainers.maths.reduce import masked_mean
from trainers.maths.thresholds import is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch

NO_BUDGET = float("inf")


def masked_ratio_loss(log_ratio: Tensor, advantages: Tensor, low: float, high: float, tau: float) -> Tensor:
    """(B, T), (B, T) or (B, 1) -> (B, T), to be minimised."""
    return -log_ratio.exp().clamp(low, high) * advantages + tau * log_ratio**2


def mask_ratios_in_bounds(log_ratio: Tensor, low: float, high: float) -> Tensor:
    """(B, T) float: 1 where the ratio lies within its bounds."""
    ratio = log_ratio.exp()
    return ((ratio >= low) & (ratio <= high)).to(log_ratio.dtype)


def limited_phase(step: int, period: int) -> bool:
    """Whether the budgets apply at a step counted from 1."""
    return (step - 1) // period % 2 == 0


def toggle_rewards(rewards: Tensor, lengths: Tensor, budgets: Tensor, group_size: int, gate: float) -> Tensor:
    """(B,) each -> (B,): rewards in the limited phase."""
    able = is_at_least(group_mean(rewards, group_size), gate)
    return torch.where(able & (lengths > budgets), torch.zeros_like(rewards), rewards)


def parl_reward(performance: float, parallel: float, finished: int, assigned: int, weights: tuple[float, float], share: float) -> float:
    """An orchestrator's reward at ``share`` of training (0 to 1): the auxiliary weights fall to 0 (linearly; the report does not say how)."""
    first, second = (weight * max(0.0, 1 - share) for weight in weights)
    return first * parallel + second * (finished / assigned if assigned else 0.0) + performance


def critical_steps(stages: Sequence[tuple[int, Sequence[int]]]) -> int:
    """Steps on the critical path: for each stage, the orchestrator's own steps plus those of its slowest sub-agent."""
    return sum(main + max(agents, default=0) for main, agents in stages)


class Config(Strict):
    low: float = param(0.5, "Below this ratio a token has no policy gradient.", title="Ratio lower bound (a)", gt=0, lt=1)
    high: float = param(2.0, "Above this ratio a token has no policy gradient.", title="Ratio upper bound (b)", gt=1, le=100)
    tau: float = param(1e-3, "Weight of the squared log-ratio.", title="Regularisation (tau)", ge=0, le=100)
    period: int = param(10, "Steps per phase; 0 = no Toggle, always free.", title="Phase length (m)", ge=0)
    gate: float = param(0.7, "Mean reward of a prompt from which its budget applies.", title="Gate (lambda)", ge=0, le=1)
    percentile: float = param(
        50.0, "Length budget: this percentile of the lengths of a prompt's first correct completions.", title="Budget percentile", ge=0, le=100
    )


class KimiK25(Method):
    card = Card(
        name="kimi-k2.5",
        title="Masked ratios and Toggle",
        arxiv="2602.02276",
        system="Kimi K2.5",
        base="dapo",
        provenance="paper",
        source="technical report, sections 3 and 4.4.2, in a public transcription",
        fit="core",
        idea=(
            "Mask tokens whose probability moved too far in either direction; in every other phase, limit completion length on "
            "prompts that are mostly solved."
        ),
        formula=(
            r"J = \frac{1}{N}\sum_j \sum_t \mathrm{clip}(\rho_{jt}, a, b)\left(r_j - \bar r\right) - \tau \left(\log \rho_{jt}\right)^2",
            r"\tilde r_j = r_j\, 1\left[\bar r < \lambda \ \mathrm{or}\ |y_j| \le budget\right]",
        ),
        departures=(
            "The values are our choices: bounds, tau, phase length, gate and percentile are not given.",
            "The clip applies to the ratio, as the report's formula does; its text speaks of the log-ratio.",
            "A budget comes from the first group with a correct completion; the report estimates it from initial rollouts.",
            "The mean reward is computed after Toggle; the report does not say when.",
            "Of PARL, only the reward and the episode budget are implemented, as functions.",
        ),
        claim=("completions/mean_length", "lower"),
    )
    Config = Config
    roles = {"rewards": "maps", "advantages": "makes"}
    owns = frozenset({"advantages", "policy loss"})
    requires = (
        Requirement(
            "training.num_iterations",
            "at least",
            2,
            "in a single pass every ratio is 1, so nothing is masked and only Toggle has an effect",
            hard=False,
            or_field="training.steps_per_generation",
        ),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.budgets: dict[int, float] = {}  # by example

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        self.estimate(batch)
        limited = self.config.period > 0 and limited_phase(batch.step, self.config.period)
        self.log("phase", 0.0 if limited else 1.0)
        known = [self.budgets.get(example, NO_BUDGET) for example in batch.example_ids]
        budgets = torch.tensor(known, device=rewards.device)
        over = batch.lengths > budgets
        self.log("over_budget", over.float().mean())
        if self.budgets:
            self.log("budget", sum(self.budgets.values()) / len(self.budgets))
        shaped = toggle_rewards(rewards, batch.lengths, budgets, batch.group_size, self.config.gate) if limited else rewards
        self.log("reward_lost", (rewards - shaped).mean())
        return shaped

    def estimate(self, batch: "RolloutBatch") -> None:
        """Sets the budgets of prompts that have a correct completion for the first time."""
        lengths, right = batch.grouped(batch.lengths), batch.grouped(batch.correct)
        for group, example in enumerate(batch.example_ids[:: batch.group_size]):
            if example not in self.budgets and right[group].any():
                self.budgets[example] = float(torch.quantile(lengths[group][right[group]].float(), self.config.percentile / 100))

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        return centre_by_group(batch.shaped, batch.group_size)

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        config, log_ratio = self.config, batch.logprobs - batch.old_logprobs
        self.log("masked_share", masked_mean(1 - mask_ratios_in_bounds(log_ratio.detach(), config.low, config.high), batch.mask))
        self.log("squared_log_ratio", masked_mean(log_ratio**2, batch.mask))
        return batch.token_mean(masked_ratio_loss(log_ratio, batch.token_advantages(), config.low, config.high, config.tau))

    def state(self) -> dict[str, Any]:
        return {"budgets": dict(self.budgets)}

    def restore(self, state: dict[str, Any]) -> None:
        self.budgets = {int(example): budget for example, budget in state["budgets"].items()}

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Length by phase",
                (Series("completions/mean_length", "mean length"), Series(f"{name}/budget", "mean budget", dashed=True)),
                "phases",
                unit="tokens",
                phase=f"{name}/phase",
                phase_names=("limited", "free"),
                help="A prompt's budget applies in the limited phase only.",
            ),
            Panel(
                "Effect of Toggle",
                (Series(f"{name}/over_budget", "completions over budget"), Series(f"{name}/reward_lost", "mean reward lost")),
                "phases",
                phase=f"{name}/phase",
                phase_names=("limited", "free"),
            ),
            Panel("Masked tokens", (Series(f"{name}/masked_share", "share"), Series(f"{name}/squared_log_ratio", "mean squared log-ratio"))),
        )
