"""A critic by classification: values of prefixes from a histogram in place of a regression (HL-Gauss, arXiv 2403.03950).

    p_b(R) = (F(e_b) - F(e_{b-1})) / (F(e_B) - F(e_0)),  F(e) = erf((e - R) / (sqrt(2) sigma)),  sigma = ratio (v_max - v_min) / bins
    L_V = -sum_b p_b(R) log softmax(z(s_t))_b,  V(s_t) = sum_b softmax(z(s_t))_b c_b
    d_t = [t = T] R + gamma V(s_{t+1}) - V(s_t),  A_t = sum_k (gamma lam)^k d_{t+k},  then standardised over the batch's tokens

s_t is what the policy's last layer holds where token t is predicted, R the completion's reward after shaping, which every prefix of it has as target:
a noisy label of success. With ``loss`` at mse it is the same critic by squared error, the parent it is compared with. It differs from GRPO in the
baseline, which is learned over prefixes and not the group's mean. The same loss is an option of the value heads of searches (cpl-step-apo,
rlm-blueprint-x1).
"""

from typing import TYPE_CHECKING, Any

import torch
from pydantic import model_validator
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Contradiction, Problem
from trainers.maths.credit import estimate_advantages, z_score_unmasked
from trainers.maths.value_histogram import BINS, RATIO, ValueLoss, choose_value_bins, measure_calibration_error
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.value_head import ValueHead, explain_variance

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext


def pay_last_tokens(rewards: Tensor, mask: Tensor) -> Tensor:
    """(B,) rewards, (B, T) 1 = written by the policy -> (B, T): the reward at each row's last token, 0 elsewhere and in rows without one."""
    left = mask.flip(1).cumsum(1).flip(1)  # tokens of the policy from here on
    return rewards[:, None] * ((left == 1) & (mask > 0))


class Config(Strict):
    loss: ValueLoss = param("hl-gauss", "hl-gauss: cross-entropy to a histogram around the return. mse: squared error.", title="Value loss")
    bins: int = param(BINS, "Bins of the histogram.", title="Bins", ge=2, le=1001)
    ratio: float = param(RATIO, "Standard deviation around a target, in bins; a third-party port takes 2.", title="Sigma / bin", gt=0, le=20)
    v_min: float = param(0.0, "Least return; what is below counts as this.", title="Least value", ge=-1000, le=1000)
    v_max: float = param(1.0, "Largest return.", title="Largest value", ge=-1000, le=1000)
    gamma: float = param(1.0, "How much less a token later counts (not published for text).", title="Discount (gamma)", gt=0, le=1, advanced=True)
    lam: float = param(0.95, "Decay of the generalised advantages (not published for text).", title="Decay (lambda)", ge=0, le=1, advanced=True)
    value_rate: float = param(3e-3, "Learning rate of the value head (ours).", title="Value head's learning rate", gt=0, le=1, advanced=True)
    value_passes: int = param(20, "Gradient steps of the value head on each batch (ours).", title="Value head's passes", ge=1, le=1000, advanced=True)

    @model_validator(mode="after")
    def check_range(self) -> "Config":
        if self.v_max <= self.v_min:
            raise Contradiction(Problem("v_max", self.v_max, "the range of values is empty", f"use more than v_min, {self.v_min:g}"))
        return self


class HLGaussValues(Method):
    card = Card(
        name="hl-gauss-values",
        title="Critic by classification",
        arxiv="2403.03950",
        system="HL-Gauss",
        base="grpo",
        provenance="paper",
        source="arXiv 2403.03950, section 3 and appendix A; github lucidrains/hl-gauss-pytorch hl_gauss.py, a port by others",
        fit="variant",
        idea="Train the value of prefixes by cross-entropy to a histogram around the return, which noisy targets upset less than squared error.",
        formula=(
            r"p_b = \frac{F(e_b) - F(e_{b-1})}{F(e_B) - F(e_0)}, \quad F(e) = \mathrm{erf}\left(\frac{e - R}{\sqrt{2}\,\sigma}\right)",
            r"L_V = -\sum_b p_b \log \mathrm{softmax}(z)_b, \quad V = \sum_b \mathrm{softmax}(z)_b\, c_b",
            r"A_t = \sum_{k \ge 0} (\gamma \lambda)^k \left([t+k = T] R + \gamma V(s_{t+k+1}) - V(s_{t+k})\right)",
        ),
        departures=(
            "The paper trains Q-functions of games, robots and a word game; a critic of a policy gradient over text is ours.",
            "The critic is a head on the policy's last layer, whose gradient stops there; the paper trains whole networks.",
            "Targets are the returns of the batch, not bootstrapped ones.",
        ),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"advantages"})
    roles = {"advantages": "makes"}

    def prepare(self, run: "RunContext") -> None:
        config = self.config
        bins = choose_value_bins(config.loss, config.v_min, config.v_max, config.bins, config.ratio)
        self.head = ValueHead(run, config.value_rate, config.value_passes, bins)

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        config, mask = self.config, batch.mask
        places = [row.nonzero()[:, 0].tolist() for row in mask]
        states = self.head.read_states(batch.prompt_ids, batch.ids.tolist(), places)
        values, there = torch.zeros_like(mask), mask > 0
        values[there] = self.head.estimate(states).to(values)
        targets = batch.shaped.to(values).clamp(config.v_min, config.v_max)[:, None].expand_as(values)[there]
        self.report(values[there], targets)
        self.log("clamped", ((batch.shaped < config.v_min) | (batch.shaped > config.v_max)).float().mean())
        self.log("value_error", self.head.fit(states, targets))
        made = estimate_advantages(pay_last_tokens(batch.shaped.to(values), mask), values, mask, config.gamma, config.lam)
        return z_score_unmasked(made, mask)

    def report(self, values: Tensor, targets: Tensor) -> None:
        """Of prefixes that the head has not learned from yet."""
        config = self.config
        self.log("calibration_error", measure_calibration_error(values, targets, config.v_min, config.v_max))
        self.log("explained", explain_variance(values, targets))
        self.log_histogram("values", values, config.v_min, config.v_max)

    def state(self) -> dict[str, Any]:
        return {"head": self.head.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.head.restore(state["head"])

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Calibration error of the values",
                (Series(f"{name}/calibration_error", "of prefixes not learned from yet"),),
                help="Mean distance of predicted and observed returns within ten bins of the prediction.",
            ),
            Panel("Value head", (Series(f"{name}/explained", "explained variance"), Series(f"{name}/value_error", "squared error", dashed=True))),
            Panel("Values of prefixes", (Series(f"{name}/values"),), kind="histogram", low=0.0, high=1.0),
            Panel("Returns outside the range", (Series(f"{name}/clamped", "share of completions"),)),
        )
