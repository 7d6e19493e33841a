"""CANON: conditional advantage estimation (arXiv 2509.23962).

Each group is sorted by a metric c (length, or mean token entropy at sampling time) and split in two: Low = the first floor(G / 2) responses, High =
the rest. The inter term compares a response with the mean of the other half (does this direction of the metric pay?); the intra term compares it with
the mean of its own half (which response is better at a similar metric?): A = mu inter + (1 - mu) intra. CANON differs from Dr. GRPO only in the
advantage; mu = 1/2 with equal halves is Dr. GRPO. alpha < 1 biases the inter term towards short responses, Low: r - alpha R_High, High: alpha r -
R_Low, or, with entropy, towards the uncertain half, High: r - alpha R_Low, Low: alpha r - R_High. With alpha < 1, a group of equal non-zero rewards
therefore still has non-zero advantages.

Schedules: mu = the batch's mean reward (first intra, later inter) or 1 minus it, or cosine restarts of the intra weight 1 - mu. Two details of the
authors' code are easy to get wrong. The 30 warm-up steps are part of the 150, so cycles are 40 steps long, and they continue after step 150; in the
mirrored schedule, the intra weight falls from 1 to 0 during the warm-up and then rises from 0 to 0.6 in each cycle. The "random split" control is not
random: Low is the first half in batch order. Entropy as the metric needs the log-probabilities of the sampled batch: one more forward pass, about 1.2
times the step time.
"""

import math
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.reduce import masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch

WARM_UP, CYCLE, HIGHEST = 30, 40, 0.6

Schedule = Literal["constant", "first intra, later inter", "first inter, later intra", "cosine restarts", "mirrored cosine restarts"]


def high_half(metric: Tensor, group_size: int) -> Tensor:
    """(B,) -> (B,) bool: whether a row is in its group's High half."""
    order = torch.argsort(metric.view(-1, group_size), dim=1, stable=True)
    rank = torch.argsort(order, dim=1)
    return (rank >= group_size // 2).flatten()


def half_means(rewards: Tensor, high: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """(B,), (B,) bool -> mean rewards of each row's Low and High half, (B,) each."""
    groups, upper = rewards.view(-1, group_size), high.view(-1, group_size).to(rewards.dtype)
    low = (groups * (1 - upper)).sum(1) / (1 - upper).sum(1).clamp(min=1)
    top = (groups * upper).sum(1) / upper.sum(1).clamp(min=1)
    return low.repeat_interleave(group_size), top.repeat_interleave(group_size)


def compute_inter_advantages(rewards: Tensor, high: Tensor, group_size: int, alpha: float, prefer_high: bool) -> Tensor:
    """(B,) -> (B,): compared with the mean of the other half; alpha below 1 favours the preferred half."""
    low_mean, high_mean = half_means(rewards, high, group_size)
    other = torch.where(high, low_mean, high_mean)
    preferred = high if prefer_high else ~high
    return torch.where(preferred, rewards - alpha * other, alpha * rewards - other)


def compute_intra_advantages(rewards: Tensor, high: Tensor, group_size: int) -> Tensor:
    """(B,) -> (B,): compared with the mean of its own half."""
    low_mean, high_mean = half_means(rewards, high, group_size)
    return rewards - torch.where(high, high_mean, low_mean)


def compute_conditional_advantages(
    rewards: Tensor, high: Tensor, group_size: int, mu: float, alpha: float = 1.0, prefer_high: bool = False
) -> Tensor:
    """(B,) -> (B,): CANON's advantage before the division by the longest response; 0 in groups of one."""
    if group_size == 1:
        return torch.zeros_like(rewards)
    return mu * compute_inter_advantages(rewards, high, group_size, alpha, prefer_high) + (1 - mu) * compute_intra_advantages(
        rewards, high, group_size
    )


def cosine_intra(step: int, mirrored: bool) -> float:
    """Weight of the intra term with cosine restarts; steps count from 1."""
    if step < WARM_UP:
        share = (step + 1) / WARM_UP
        return 1 - share if mirrored else HIGHEST * share
    fall = 0.5 * (1 + math.cos(math.pi * ((step - WARM_UP) % CYCLE) / CYCLE))  # 1 -> 0
    return HIGHEST * (1 - fall if mirrored else fall)


def scheduled_mu(schedule: Schedule, mu: float, step: int, mean_reward: float) -> float:
    """Weight of the inter term."""
    if schedule == "constant":
        return mu
    if schedule.endswith("cosine restarts"):
        return 1 - cosine_intra(step, mirrored=schedule.startswith("mirrored"))
    share = min(1.0, max(0.0, mean_reward))
    return share if schedule == "first intra, later inter" else 1 - share


class Config(Strict):
    metric: Literal["length", "entropy", "batch order"] = param("length", "Metric that splits each group in two; batch order is the control.")
    mu: float = param(
        1.0,
        "Weight of the comparison between the halves; 1 - mu is the weight of the comparison within a half.",
        title="Inter weight (mu)",
        ge=0,
        le=1,
    )
    alpha: float = param(1.0, "Below 1, favours short (length) or uncertain (entropy) completions.", title="Bias (alpha)", gt=0, le=1)
    schedule: Schedule = param("constant", "How mu changes during training.")


class CANON(Method):
    card = Card(
        name="canon",
        title="Conditional advantage estimation",
        arxiv="2509.23962",
        system="CANON",
        base="dr-grpo",
        provenance="code",
        source="github biuboomc/CANON: verl/trainer/ppo/core_algos.py, scripts/setups.sh",
        fit="core",
        idea="Split each group in two by length or entropy and compare the halves: this shows which direction pays, without fixing it in advance.",
        formula=(
            r"A_i = \mu \left(r_i - R_{other\ half}\right) + (1 - \mu) \left(r_i - R_{own\ half}\right)",
            r"R_{Low} = \frac{1}{\lfloor G/2 \rfloor}\sum_{c_j\ low} r_j, \quad R_{High} = \frac{1}{\lceil G/2 \rceil}\sum_{c_j\ high} r_j",
        ),
        departures=(
            "A group of one gets advantage 0; the authors' code keeps the raw reward.",
            "Ties keep the batch order.",
            "The division by the longest response is left to the base (dr-grpo).",
        ),
        claim=("completions/mean_length", "lower"),
    )
    Config = Config
    roles = {"advantages": "makes"}
    owns = frozenset({"advantages"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        if self.config.metric == "entropy":
            self.needs = frozenset({"logprobs"})  # type: ignore[misc]  # only this metric costs a forward pass

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        config, group = self.config, batch.group_size
        metric = self.metric(batch)
        high = high_half(metric, group)
        mu = scheduled_mu(config.schedule, config.mu, batch.step, float(batch.shaped.mean()))
        made = compute_conditional_advantages(batch.shaped, high, group, mu, config.alpha, prefer_high=config.metric == "entropy")
        low_mean, high_mean = half_means(batch.shaped, high, group)
        self.log("reward_low", low_mean.mean())
        self.log("reward_high", high_mean.mean())
        self.log("high_pays", (high_mean - low_mean).mean())
        self.log("mu", mu)
        self.log("inter", compute_inter_advantages(batch.shaped, high, group, 1.0, prefer_high=False).abs().mean())
        self.log("intra", compute_intra_advantages(batch.shaped, high, group).abs().mean())
        for name, chosen in (("low", ~high), ("high", high)):
            if chosen.any():
                self.log(f"metric_{name}", metric[chosen].mean())
        return made

    def metric(self, batch: "RolloutBatch") -> Tensor:
        """(B,)"""
        if self.config.metric == "length":
            return batch.lengths
        if self.config.metric == "entropy":
            assert batch.entropies is not None
            return masked_row_mean(batch.entropies, batch.mask)
        return torch.arange(len(batch.mask), device=batch.mask.device, dtype=torch.float32)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Reward of the two halves",
                (
                    Series("canon/reward_low", "low half"),
                    Series("canon/reward_high", "high half"),
                    Series("canon/high_pays", "difference", dashed=True),
                ),
                help="A positive difference means that the high half of the metric earns more reward.",
            ),
            Panel("Metric of the two halves", (Series("canon/metric_low", "low half"), Series("canon/metric_high", "high half"))),
            Panel(
                "Magnitude of the two comparisons",
                (Series("canon/inter", "between halves"), Series("canon/intra", "within halves"), Series("canon/mu", "mu", dashed=True)),
            ),
        )
