"""Search-R2: an episode is cut at its first flawed step and goes on otherwise from there (arXiv 2602.03647), our interpretation of the abstract.

y ~ pi(. | x);  k = the first flawed step of y, if any;  y' = y_{<k} + y'_{>=k},  y'_{>=k} ~ pi(. | x, y_{<k})
R = r_out (1 + lam r_proc),  r_proc = hits that the answer needs / hits (0 without a search)

r_out is 1 for a right answer. Groups are compared over their final episodes, and the kept prefix and the new suffix are trained on alike; what was
cut is not. It differs from GRPO in the cut and in r_proc: without revisions and with lam = 0 it is GRPO on r_out.

The paper has the policy itself judge whether an episode is coherent and name the step, with the tokens of both verdicts trained on the same
advantage. Here a rule of the world does it: a search is flawed when none of its hits is new evidence for the answer. It knows the evidence, so it
acts in training alone; held-out episodes are never cut. With ``keep`` at "nothing" a flagged episode is sampled again as a whole: rejection sampling.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.rollouts.tree import Place
from trainers.worlds.base import World, replay_episode

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node
    from trainers.tasks.base import Example


def find_flawed_turn(facts: Sequence[dict[str, Any]]) -> int | None:
    """The first search without new evidence, of the ``facts`` of turns in their order; None where there is none."""
    return next((place for place, said in enumerate(facts) if said.get("tool") and not said.get("evidence")), None)


def measure_useful_share(facts: Sequence[dict[str, Any]]) -> float:
    """r_proc: the share of all hits that the answer needs; one found twice counts once."""
    hits = sum(len(said.get("hits", ())) for said in facts)
    return sum(len(said.get("evidence", ())) for said in facts) / hits if hits else 0.0


def combine_rewards(right: Tensor, useful: Tensor, weight: float, combine: str) -> Tensor:
    """(B,) each. ``times``: r_out (1 + lam r_proc); ``plus``: r_out + lam r_proc."""
    return right * (1 + weight * useful) if combine == "times" else right + weight * useful


class Config(Strict):
    revisions: int = param(1, "How often an episode may be cut.", title="Revisions", ge=0, le=5)
    keep: Literal["prefix", "nothing"] = param("prefix", "What stays of a flagged episode; nothing: it is sampled again.", title="What is kept")
    weight: float = param(1.0, "What useful hits add to the reward of a right answer.", title="Process weight (lam)", ge=0, le=10)
    combine: Literal["times", "plus"] = param("times", "plus pays for useful hits without a right answer too.", title="Reward", advanced=True)


class SearchR2(Method):
    card = Card(
        name="search-r2",
        title="Cut at the first flawed search",
        arxiv="2602.03647",
        system="Search-R2",
        base="grpo",
        provenance="abstract",
        source="the abstract and summaries of others; no official code was found",
        fit="core",
        idea="A refiner names the first flawed step of an episode; what comes before it is kept, what follows is written again.",
        formula=(
            r"y' = y_{<k} + y'_{\ge k}, \quad y'_{\ge k} \sim \pi(\cdot \mid x, y_{<k})",
            r"R = r_{\mathrm{out}}\,(1 + \lambda\, r_{\mathrm{proc}})",
        ),
        reading="How both rewards are combined is ours: summaries say that full marks need a right answer and that useful searches add to it.",
        departures=(
            "The refiner is a rule: a search is flawed when it finds no new evidence. The paper asks the policy, and trains those tokens too.",
        ),
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"rewards": "makes"}
    worlds = frozenset({"search"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        leaves = session.play([episode.root for episode in session.begin()])
        for revision in range(self.config.revisions):
            leaves = self.revise(session, leaves, revision)
        self.log("written", sum(len(node.ids) for leaf in leaves for node in leaf.episode.nodes if node.by == "policy") / len(leaves))
        return session.finish(leaves)

    def revise(self, session: "Session", leaves: "list[Node]", revision: int) -> "list[Node]":
        """Where the episodes lead to after each flagged one was cut and went on."""
        found = [find_flawed_turn([turn[-1].facts for turn in leaf.episode.turns(leaf)]) for leaf in leaves]
        flagged = [(place, turn) for place, turn in enumerate(found) if turn is not None]
        if revision == 0:
            self.log("flagged", len(flagged) / len(leaves))
        if not flagged:
            return leaves
        before = [session.is_right(leaves[place]) for place, _ in flagged]
        start = [turn if self.config.keep == "prefix" else 0 for _, turn in flagged]
        at = [session.cut(leaves[place], Place(turn=turn), "first flawed step") for (place, _), turn in zip(flagged, start, strict=True)]
        played = list(leaves)
        for (place, _), leaf in zip(flagged, session.play(at), strict=True):
            played[place] = leaf
        self.log("place", sum(turn for _, turn in flagged) / len(flagged))
        self.log("right_before", sum(before) / len(before))
        self.log("right_after", sum(session.is_right(played[place]) for place, _ in flagged) / len(flagged))
        return played

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        useful = [self.measure_episode(example, text) for example, text in zip(batch.examples, batch.texts, strict=True)]
        shares = torch.tensor(useful, dtype=rewards.dtype, device=rewards.device)
        self.log("useful", shares.mean())
        return combine_rewards(batch.correct.to(rewards.dtype), shares, self.config.weight, self.config.combine)

    def measure_episode(self, example: "Example", text: str) -> float:
        assert isinstance(self.run.task, World)
        return measure_useful_share([turn.step.facts for turn in replay_episode(self.run.task, example, text).turns])

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Episodes that are cut", (Series(f"{name}/flagged", "share with a flawed search"), Series(f"{name}/place", "turn of the cut"))),
            Panel(
                "Right answers of flagged episodes",
                (Series(f"{name}/right_after", "after the cut"), Series(f"{name}/right_before", "before", dashed=True)),
            ),
            Panel("Hits that the answer needs", (Series(f"{name}/useful", "share"),)),
            Panel("Tokens written for a rollout", (Series(f"{name}/written", "those that were cut counted"),), unit="tokens"),
        )
