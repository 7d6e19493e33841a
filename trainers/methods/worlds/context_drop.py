"""Context drop: in training, what the world tells loses a random sentence in some turns. Our own, after FlickerFusion.

h_t = hits of the search in turn t
h_t <- h_t without i,  i ~ Uniform(h_t),     with probability p, drawn anew in every turn; in training only

It differs from GRPO in what the world tells. Members of a group lose the same sentence after the same search in the same turn, and an expert asks
again, because the next turn draws anew. With p = 0 it is GRPO in the world without losses. Held-out episodes lose as many sentences as the world's
option ``missing`` says, by default none.

FlickerFusion (arXiv 2410.15876) is not about language models: several agents act together, and entities are dropped from what they observe, so that
they cope with numbers of entities that training has never shown. Only the dropping is here, with sentences for entities.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.replays import replay_texts
from trainers.worlds.search import MISSING

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext


class Config(Strict):
    share: float = param(0.3, "Share of the turns whose result loses a sentence; 0: the base.", title="Drop rate (p)", ge=0, le=1)


class ContextDrop(Method):
    card = Card(
        name="context-drop",
        title="Results that lose a sentence",
        arxiv="",
        system="our own",
        base="grpo",
        provenance="abstract",
        source="our own, after the dropped observations of FlickerFusion (arXiv 2410.15876), of which we know the abstract",
        fit="variant",
        idea="Drop a random sentence from what the world tells in some turns of training, so that the policy copes with parts that are missing.",
        formula=(r"h_t \leftarrow h_t \setminus \{i\}, \quad i \sim \mathrm{Uniform}(h_t), \quad \text{with probability } p \text{ in each turn}",),
        reading="sentences of a search result for entities of an observation, at most one of them in a turn, at a constant rate",
        departures=(
            "FlickerFusion trains several agents in a game; nothing but the dropping of what they observe is used.",
            "At most one sentence of a result is dropped; how many entities FlickerFusion drops we have not read.",
            "Nothing is dropped from held-out episodes unless the world's option says so.",
        ),
        parallel=False,
    )
    Config = Config
    roles = {"data": "maps"}
    worlds = frozenset({"search"})
    requires = (
        Requirement("task.options.alone", "differs from", True, "the policy writes the results itself, and none is told"),
        Requirement("task.options.missing", "at least", 0.05, "held-out results are whole: what it trains for is not seen", hard=False),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        return [replace(example, data={**example.data, MISSING: self.config.share}) for example in rows]

    def observe(self, batch: "RolloutBatch") -> None:
        replays = replay_texts(self.run.task, batch.examples, batch.texts)
        searches = [["lost" in turn.step.facts for turn in replay.turns if "hits" in turn.step.facts] for replay in replays]
        self.log("lost", sum(map(sum, searches)) / max(1, sum(map(len, searches))))
        self.log("searches", sum(map(len, searches)) / len(searches))
        short = torch.tensor([any(lost) for lost in searches], device=batch.rewards.device)
        self.report("accuracy_short", batch.correct[short])
        self.report("accuracy_whole", batch.correct[~short])

    def report(self, name: str, right: Tensor) -> None:
        if len(right):
            self.log(name, right.float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Accuracy with and without losses",
                (Series(f"{name}/accuracy_whole", "episodes that lost nothing"), Series(f"{name}/accuracy_short", "episodes that lost a sentence")),
            ),
            Panel("Results that lost a sentence", (Series(f"{name}/lost", "share of the searches"),)),
            Panel("Searches of an episode", (Series(f"{name}/searches", "mean"),)),
        )
