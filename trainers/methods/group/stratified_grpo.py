"""Stratified GRPO: advantages within strata of similar trajectories, blended with the group's advantages (arXiv 2510.06214).

A_GN = (R - mean_G) / (std_G + eps) over the group; A_SAN is the same over the rows of the group with the same structure (number of searches); A =
alpha A_SAN + (1 - alpha) A_GN. A stratum with one row or equal rewards has A_SAN = 0. It differs from GRPO only in the advantage: the share alpha of
it is free of the cross-stratum bias mean_k - mean_G, which comes from comparing different kinds of trajectories.

This is our interpretation of the abstract and of reviews that quote the equations. They do not say whether the standard deviation is the population
or the sample one; the default is population, as in the example of our paper summary. We did not find the paper's alpha; ours is 0.5. In tasks without
searches, the stratum is the number of steps shown in the reasoning. Equal rewards are detected by their range; with eps = 1e-8, rounding would give
advantages near 1.
"""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.strata import compute_stratum_sizes, mean_within, strata_of, z_score_within
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.texts.segments import find_search_spans, find_step_spans

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch

MOST = 8  # steps or searches told apart in the histogram


def blend_advantages(rewards: Tensor, keys: Tensor, group_size: int, alpha: float, epsilon: float, ddof: int) -> Tensor:
    """(B,), (B,) keys -> (B,): alpha x the advantage within the stratum + (1 - alpha) x the group's."""
    own = z_score_within(rewards, strata_of(keys, group_size), epsilon, ddof)
    group = z_score_within(rewards, strata_of(torch.zeros_like(keys), group_size), epsilon, ddof)
    return alpha * own + (1 - alpha) * group


def cross_stratum_bias(rewards: Tensor, keys: Tensor, group_size: int) -> Tensor:
    """(B,), (B,) keys -> (B,): mean of the row's stratum minus mean of its group."""
    group = mean_within(rewards, strata_of(torch.zeros_like(keys), group_size))
    return mean_within(rewards, strata_of(keys, group_size)) - group


class Config(Strict):
    alpha: float = param(
        0.5, "Weight of the advantage within the stratum; 0 is GRPO. The paper's value is unknown.", title="Blend (alpha)", ge=0, le=1
    )
    strata: Literal["auto", "searches", "steps"] = param("auto", "What defines a stratum; auto uses searches if there are any, else steps.")
    deviation: Literal["population", "sample"] = param("population", "Standard deviation used as the divisor.", advanced=True)
    epsilon: float = param(1e-8, "Added to the standard deviations.", advanced=True, gt=0, le=1)


class StratifiedGRPO(Method):
    card = Card(
        name="stratified-grpo",
        title="Stratified advantage normalisation",
        arxiv="2510.06214",
        system="Stratified GRPO",
        base="grpo",
        provenance="abstract",
        source="abstract; a review that quotes Proposition 1 and Theorem 1, and a third-party port",
        fit="core",
        idea="Compare completions with others of the same structure (such as the same number of searches), and only partly with the whole group.",
        formula=(
            r"A_{SAN,i} = \frac{R_i - \mathrm{mean}_{k(i)}}{\mathrm{std}_{k(i)} + \epsilon}",
            r"A_i = \alpha A_{SAN,i} + (1 - \alpha) \frac{R_i - \mathrm{mean}_G}{\mathrm{std}_G + \epsilon}",
        ),
        reading="alpha and the kind of standard deviation are our choices; the equations are second-hand",
        departures=("In tasks without searches, a stratum is the number of steps in the reasoning.",),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"advantages": "makes"}
    owns = frozenset({"advantages"})

    def keys(self, batch: "RolloutBatch") -> Tensor:
        """(B,) int64."""
        kind = self.config.strata
        if kind == "auto":
            kind = "searches" if any(find_search_spans(text) for text in batch.texts) else "steps"
        split = find_search_spans if kind == "searches" else find_step_spans
        return torch.tensor([len(split(text)) for text in batch.texts], device=batch.rewards.device)

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        keys, config = self.keys(batch), self.config
        strata = strata_of(keys, batch.group_size)
        self.log("structure", keys.float().mean())
        self.log("strata", (int(strata.max()) + 1) * batch.group_size / len(keys))
        self.log("alone", (compute_stratum_sizes(strata) == 1).float().mean())
        self.log("bias", cross_stratum_bias(batch.shaped, keys, batch.group_size).abs().mean())
        self.log_histogram("structures", keys, 0, MOST)
        return blend_advantages(batch.shaped, keys, batch.group_size, config.alpha, config.epsilon, int(config.deviation == "sample"))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Cross-stratum bias",
                (
                    Series(f"{name}/bias", "stratum mean minus group mean"),
                    Series(f"{name}/alone", "rows alone in their stratum", dashed=True),
                ),
                help="The part of the group's advantage that comes only from a trajectory's structure.",
            ),
            Panel("Strata per group", (Series(f"{name}/strata", "strata"), Series(f"{name}/structure", "mean searches or steps"))),
            Panel("Searches or steps", (Series(f"{name}/structures"),), "histogram", low=0, high=MOST),
        )
