"""Query-specific rubrics: a policy learns to write the criteria by which the report that people preferred is the better one (arXiv 2602.03619).

z = {(criterion_c, weight_c)} ~ pi(. | x)                          x a query, (a, b) two reports on it, of which people preferred a
score(y | z) = sum_c weight_c judge_c(y) / sum_c weight_c           judge_c in [0, 1]
r_pref = 1[score(a | z) > score(b | z)];  r_quality = quality of the rubric;  r_form = 1 where all of z can be read
R(z) = r_pref + lambda r_quality where r_form = 1, else -1

Cohen's d = (mean score(a) - mean score(b)) / pooled deviation is reported. It differs from GRPO in the reward.

Our reading of the abstract: the sum, its weight and the punishment. The world is ``stories`` with the option ``write: rubric``: reports are stories,
a criterion is a word with a weight of 1 to 5, and readers of a genre prefer by weights that nobody is told. The judge of a criterion is a rule, as is
the one of a rubric's quality: the share of its criteria that tell the two reports apart. How near the weights are to the readers' is measured and
never paid. The report policy that a trained rubric is to train (MaMs) is not implemented.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.base import World, replay_episode
from trainers.worlds.criteria import judge_criterion

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

UNREADABLE = -1.0  # reward of a rubric that is none
Judgements = Sequence[float]  # of a report by each criterion of a rubric


def score_report(weights: Sequence[float], judgements: Judgements) -> float:
    """score(y | z); 0 by an empty rubric."""
    return sum(weight * one for weight, one in zip(weights, judgements, strict=True)) / sum(weights) if weights else 0.0


def rate_discrimination(preferred: Judgements, other: Judgements) -> float:
    """r_quality by rule: the share of the criteria that judge the two reports differently."""
    return sum(one != two for one, two in zip(preferred, other, strict=True)) / len(preferred) if preferred else 0.0


def reward_rubric(agrees: bool, quality: float, is_readable: bool, weight: float) -> float:
    """R(z); ``weight``: lambda."""
    return agrees + weight * quality if is_readable else UNREADABLE


def compute_effect_size(preferred: Tensor, other: Tensor) -> Tensor:
    """Cohen's d of two samples (n,) each; 0 where neither varies."""
    pooled = ((preferred.var(correction=0) + other.var(correction=0)) / 2).sqrt()
    return (preferred.mean() - other.mean()) / pooled if pooled > 0 else pooled


class Config(Strict):
    quality: float = param(0.4, "Weight of the rubric's quality beside the preference (ours).", title="Quality weight (lambda)", ge=0, le=10)


class QueryRubrics(Method):
    card = Card(
        name="query-rubrics",
        title="Rubrics from preferences",
        arxiv="2602.03619",
        system="Query-specific rubric generators",
        base="grpo",
        provenance="abstract",
        source="abstract; a short review (GRPO with preference consistency, judged quality and form)",
        fit="variant",
        idea="Learn to write a weighted rubric for a query by whether it prefers the report that people preferred.",
        formula=(
            r"\mathrm{score}(y|z) = \frac{\sum_c w_c\, \mathrm{judge}_c(y)}{\sum_c w_c}",
            r"R(z) = 1[\mathrm{score}(a|z) > \mathrm{score}(b|z)] + \lambda\, r_{quality} \ \mathrm{if\ readable}, \quad -1",
        ),
        reading="the sum of the three parts, lambda, and the punishment of a rubric that cannot be read",
        departures=(
            "Stories take the place of reports, and readers by rule that of annotators.",
            "Criteria and rubrics are judged by rules, not by a large model; a rubric's quality is the share of its criteria that tell the reports"
            " apart.",
            "A rubric has as many criteria as the world asks for, two.",
            "Training a report policy by the rubrics is not implemented.",
        ),
        claim=("query-rubrics/preferred", "higher"),
    )
    Config = Config
    worlds = frozenset({"stories"})
    roles = {"rewards": "makes"}
    requires = (
        Requirement("task.options.write", "equals", "rubric", "rubrics are written in the world with this option"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        world = self.run.task
        assert isinstance(world, World)
        made, scores = [], []
        for example, text in zip(batch.examples, batch.texts, strict=True):
            rubric = read_rubric(world, example, text)
            judged = judge_pair(rubric or {}, example.data["pair"])
            preferred, other = (score_report(list((rubric or {}).values()), one) for one in judged)
            made.append(reward_rubric(preferred > other, rate_discrimination(*judged), rubric is not None, self.config.quality))
            if rubric is not None:
                scores.append((preferred, other))
                self.log("quality", rate_discrimination(*judged))
        self.log("readable", len(scores) / len(made))
        self.log("preferred", sum(one > two for one, two in scores) / len(made))
        if scores:
            self.log("effect_size", compute_effect_size(*torch.tensor(scores).T))
        return torch.tensor(made).to(rewards)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Rubrics", (Series(f"{name}/preferred", "prefer as people do"), Series(f"{name}/readable", "readable", dashed=True))),
            Panel("Quality of a rubric", (Series(f"{name}/quality", "criteria that tell the reports apart"),)),
            Panel("Scores of preferred and other reports", (Series(f"{name}/effect_size", "Cohen's d"),)),
        )


def read_rubric(world: World, example: "Example", text: str) -> dict[str, int] | None:
    """Criteria and weights of an episode; None for one with a turn that is no new criterion, or with too few of them."""
    replay = replay_episode(world, example, text)
    rubric: dict[str, int] = replay.state["rubric"]
    whole = len(rubric) == example.data["steps"] and not (replay.rest or replay.state["errors"] or replay.state["wrong"])
    return rubric if whole else None


def judge_pair(rubric: Mapping[str, int], pair: Sequence[Sequence[str]]) -> tuple[list[float], list[float]]:
    """What each criterion says of the preferred report and of the other."""
    preferred, other = ([judge_criterion(criterion, report) for criterion in rubric] for report in pair)
    return preferred, other
