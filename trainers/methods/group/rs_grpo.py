"""RS-GRPO: risk-sensitive advantages (arXiv 2509.24261).

Maximises J(pi) = E_x (1/b) log E_y exp(b r(y)) instead of the mean reward: with b > 0, a rare success counts more and a nearly solved prompt counts
less, which preserves pass@k. In a group, A_i = (exp(b (r_i - V)) - 1) / b with V = (logsumexp(b r) - log G) / b, and A_i = r_i - mean for b = 0. It
differs from GRPO only in the advantage, which is not divided by the group's standard deviation and always sums to 0 over the group.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import centre_by_group
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch


def risk_sensitive(rewards: Tensor, group_size: int, risk: float) -> Tensor:
    """(B,) -> (B,): the gradient of the exponential utility with risk parameter ``risk`` (b above)."""
    if group_size == 1 or risk == 0.0:
        return centre_by_group(rewards, group_size)
    groups = rewards.view(-1, group_size)  # (N, G)
    value = (torch.logsumexp(risk * groups, 1, keepdim=True) - math.log(group_size)) / risk  # (N, 1)
    flat = (groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True)).expand_as(groups)
    return (torch.expm1(risk * (groups - value)) / risk).masked_fill(flat, 0.0).flatten()


class Config(Strict):
    risk: float = param(
        2.0, "Risk parameter b: 0 optimises the mean; larger values optimise towards the group's best.", title="Risk (beta)", ge=0, le=64
    )


class RSGRPO(Method):
    card = Card(
        name="rs-grpo",
        title="Risk-sensitive GRPO",
        arxiv="2509.24261",
        system="RS-GRPO",
        base="dr-grpo",
        provenance="code",
        source="github Jackory/RS-GRPO: codes/risk_sensitive_adv.py",
        fit="core",
        idea=(
            "Optimise a soft maximum of the reward instead of its mean: rare successes count more and easy prompts less, so completions stay diverse."
        ),
        formula=(
            r"V = \frac{1}{b}\log \frac{1}{G}\sum_j e^{b r_j}",
            r"A_i = \frac{1}{b}\left(e^{b (r_i - V)} - 1\right)",
        ),
        departures=("A group of one gets advantage 0; the authors' code keeps a raw value.",),
        claim=("entropy", "higher"),
    )
    Config = Config
    roles = {"advantages": "makes"}
    owns = frozenset({"advantages"})

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        shaped = risk_sensitive(batch.shaped, batch.group_size, self.config.risk)
        right = batch.correct
        for name, chosen in (("right", right), ("wrong", ~right)):
            if chosen.any():
                self.log(f"advantage_{name}", shaped[chosen].mean())
        self.log("solve_rate", right.float().mean())
        return shaped

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Risk-sensitive advantage",
                (
                    Series("rs-grpo/advantage_right", "correct completions"),
                    Series("rs-grpo/advantage_wrong", "wrong completions"),
                    Series("rs-grpo/solve_rate", "solve rate", dashed=True),
                ),
                help="The rarer a success, the larger its advantage; it shrinks as the solve rate rises.",
            ),
        )
