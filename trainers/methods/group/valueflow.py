"""VALUEFLOW: how strongly an answer shows a property, from comparisons with anchors, and a reward for an intensity (arXiv 2602.03160; our reading).

    sum_i sigmoid(s^(y) - s_i) = sum_i o_i,   o_i = 1 if y shows the property more than anchor a_i, 0 if less, 0.5 for a tie
    R <- R - weight |s^(y) - target|

Anchors are texts that have the property in known amounts, evenly from ``lowest`` to ``highest``; their intensities s_i are evenly spaced on
[-10, 10]. The judge is a rule that counts, or the policy that the run starts from, asked in both orders: what it says differently in each is a tie.
With weight 0 nothing is paid and the intensities are only measured; that is the parent. It differs from GRPO in the reward.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.pair_judgements import FIRST, SECOND, write_judge_question
from trainers.contract.problems import Contradiction, Problem
from trainers.judges.pair_judge import NamePlaces, compare_verdict_likelihoods
from trainers.maths.intensity import MARGIN, compare_values, compute_rank_correlation, estimate_intensity
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.texts.properties import PROPERTIES, TextProperty

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

SCALE = 10.0  # intensities of the outermost anchors are -SCALE and SCALE


def space_anchors(lowest: int, highest: int, count: int) -> tuple[list[int], list[float]]:
    """Amounts of the anchors, as evenly as whole numbers are, and their intensities, linear in the amount."""
    amounts = list(dict.fromkeys(round(lowest + (highest - lowest) * place / (count - 1)) for place in range(count)))
    return amounts, [SCALE * (2 * (amount - lowest) / (highest - lowest) - 1) for amount in amounts]


def ask_both_orders(texts: Sequence[str], anchors: Sequence[str], question: str, name_places: NamePlaces) -> Tensor:
    """(B, m): the share of the two orders in which the text was named, a half for an order without a verdict. Equal questions are asked once."""
    orders = [(pair, place) for text in texts for anchor in anchors for pair, place in (((text, anchor), FIRST), ((anchor, text), SECOND))]
    asked = [write_judge_question(question, *pair) for pair, _ in orders]
    distinct = list(dict.fromkeys(asked))
    named = dict(zip(distinct, name_places(distinct), strict=True))
    shares = [0.5 if named[one] is None else float(named[one] == place) for one, (_, place) in zip(asked, orders, strict=True)]
    return torch.tensor(shares).view(len(texts), len(anchors), 2).mean(2)


class Config(Strict):
    measured: Literal["length", "digits", "politeness"] = param(
        "length", "length: characters. digits: how many. politeness: polite words.", title="Property"
    )
    target: float = param(4.0, "Intensity that is paid most, from -10 (the lowest anchor) to 10 (the highest).", title="Target", ge=-10, le=10)
    weight: float = param(0.05, "Of the distance to the target; 0 only measures (our value).", title="Weight", ge=0, le=100)
    anchors: int = param(9, "Texts of known intensity that an answer is compared with.", title="Anchors", ge=2, le=64)
    lowest: int = param(20, "Amount of the property in the lowest anchor, as counted.", title="Lowest anchor", ge=0, le=100_000)
    highest: int = param(120, "Amount in the highest anchor.", title="Highest anchor", ge=1, le=100_000)
    judge: Literal["rule", "policy"] = param(
        "rule", "rule: counts. policy: the policy that the run starts from names one of two texts, in both orders.", title="Judge"
    )

    @model_validator(mode="after")
    def check_anchors(self) -> "Config":
        if self.highest <= self.lowest:
            raise Contradiction(Problem("highest", self.highest, "the anchors have no range", f"use more than lowest, {self.lowest}"))
        return self


class ValueFlow(Method):
    card = Card(
        name="valueflow",
        title="Intensity by anchors as a reward",
        arxiv="2602.03160",
        system="VALUEFLOW",
        base="grpo",
        provenance="abstract",
        source="the abstract",
        fit="variant",
        idea="Place an answer on a scale by comparing it with anchors of known intensity, and pay for being near a wanted one.",
        formula=(
            r"\sum_i \sigma(\hat s(y) - s_i) = \sum_i o_i",
            r"r(y) = -\left|\hat s(y) - s^*\right|",
        ),
        reading="the estimate by pairwise comparisons is Bradley-Terry's; the reward, its weight and the scale of the anchors are ours",
        departures=(
            "Values are properties that can be counted (length, digits, polite words), so that what was recovered can be checked.",
            "Anchors are written by rule with known amounts; the paper ranks texts of many sources.",
            "Prompts do not ask for an intensity, and interference between values is not measured.",
        ),
        claim=("valueflow/distance", "lower"),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "maps"}
    idle = {"rewards": ("weight", 0.0)}

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.amounts, self.intensities = space_anchors(self.config.lowest, self.config.highest, self.config.anchors)
        self.name_places: NamePlaces | None = None

    @property
    def counted(self) -> TextProperty:
        return PROPERTIES[self.config.measured]

    def prepare(self, run: "RunContext") -> None:
        if self.config.judge == "policy":
            self.name_places = compare_verdict_likelihoods(run, run.frozen(""))

    def compare(self, texts: Sequence[str]) -> Tensor:
        """(B, m) outcomes."""
        if self.name_places is None:
            return compare_values([self.counted.count(text) for text in texts], self.amounts)
        return ask_both_orders(texts, [self.counted.write(amount) for amount in self.amounts], self.counted.question, self.name_places)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config = self.config
        found = estimate_intensity(torch.tensor(self.intensities), self.compare(batch.texts)).to(rewards)
        distance = (found - config.target).abs()
        self.report(found, distance, batch.texts)
        return rewards - config.weight * distance if config.weight else rewards

    def report(self, found: Tensor, distance: Tensor, texts: Sequence[str]) -> None:
        """``rank_correlation``: of the intensities with what the rule counts, 0 where one of them is the same for all."""
        counted = torch.tensor([self.counted.count(text) for text in texts], device=found.device)
        self.log("intensity", found.mean())
        self.log("distance", distance.mean())
        self.log("counted", counted.float().mean())
        self.log("rank_correlation", compute_rank_correlation(found, counted))
        self.log("beyond", (found.abs() > SCALE).float().mean())
        self.log_histogram("intensities", found, -SCALE - MARGIN, SCALE + MARGIN)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Intensity of answers", (Series(f"{name}/intensities"),), kind="histogram", low=-SCALE - MARGIN, high=SCALE + MARGIN),
            Panel(
                "Distance to the target",
                (Series(f"{name}/distance", "mean"), Series(f"{name}/intensity", "mean intensity", dashed=True)),
                help="From -10, the lowest anchor, to 10, the highest.",
            ),
            Panel("Recovered against counted", (Series(f"{name}/rank_correlation", "rank correlation within a batch"),), help="Spearman's."),
            Panel("Beyond all anchors", (Series(f"{name}/beyond", "share of answers"),)),
        )
