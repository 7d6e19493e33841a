"""Worst variant: training begins on the mildest settings of a world and adds those it does worst in, one by one. Our own, after IWOCS.

V = settings of the world: rates of junk x relations that a question chains;  L_0 = {the mildest}
every k steps:  v = argmin_{u in V} R(u)      R(u): mean reward of one episode for each of m prompts of u that are not trained on
                L <- L + {v}                  nothing changes where v is in L already
each batch is drawn from the prompts of all settings in L with equal weights

It differs from GRPO in the prompts alone; with ``begin`` "all" it is GRPO on the uniform mixture of V, and R is only measured.

IWOCS (arXiv 2410.06212) is not about language models: it solves a Markov decision process, finds the transition model that is worst for the policy it
got, and solves again for the worst of the models found so far, until the worst one is among them. Only that loop is here. The models are settings of
the world ``search``, the policy goes on from where it is, and the settings found so far are mixed. The prompts that R is measured on are those kept
for preference pairs, so that the held-out ones decide about nothing. Step time: every k steps one more episode for each of m prompts of each setting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.search import JUNK

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.history import History
    from trainers.tasks.base import Example, Split
    from trainers.worlds.base import World

VARIANT = "variant"  # in Example.data: the number of its setting, from 0
MOST_RATES, MOST_RELATIONS = 4, 2


@dataclass(frozen=True)
class Variant:
    junk: float
    relations: int


def list_variants(noise: float, rates: int, relations: int) -> list[Variant]:
    """Rates at equal distances from 0 to ``noise`` for each number of relations, the mildest setting first."""
    levels = [noise * place / (rates - 1) for place in range(rates)] if rates > 1 else [0.0]
    return [Variant(level, count) for count in range(1, relations + 1) for level in levels]


def add_worst_variant(listed: Sequence[int], rewards: Sequence[float]) -> list[int]:
    """The list with the variant of lowest reward, of equals the first; as it is where that one is in it."""
    worst = min(range(len(rewards)), key=rewards.__getitem__)
    return [*listed] if worst in listed else [*listed, worst]


def draw_variant(world: "World", variant: Variant, number: int, split: "Split", count: int, seed: int, difficulty: str) -> "list[Example]":
    """Prompts of one setting of the run's world."""
    own = type(world)({**world.options, "hops": variant.relations}, world.seed)
    drawn = own.examples(split, count, seed, difficulty)
    return [replace(example, data={**example.data, JUNK: variant.junk, VARIANT: number}) for example in drawn]


class Config(Strict):
    noise: float = param(0.6, "Highest junk rate of a setting.", title="Worst junk rate", ge=0, le=1)
    rates: int = param(3, "Junk rates from 0 to the worst.", title="Junk rates", ge=1, le=MOST_RATES)
    relations: int = param(2, "Most relations that a question chains; each number up to it is a setting.", title="Relations", ge=1, le=MOST_RELATIONS)
    every: int = param(10, "Steps between two looks at all settings (k).", title="Look every", ge=1, le=100_000)
    prompts: int = param(32, "Prompts of a setting at each look (m).", title="Prompts of a look", ge=1, le=10_000)
    begin: Literal["mildest", "all"] = param("mildest", "Settings trained on at first; all: uniform mixing throughout.", title="Begin with")


class WorstVariant(Method):
    card = Card(
        name="worst-variant",
        title="Training on the worst settings found",
        arxiv="",
        system="our own",
        base="grpo",
        provenance="abstract",
        source="our own, after the incremental worst-case search of IWOCS (arXiv 2410.06212), of which we know the abstract",
        fit="variant",
        idea="Begin with the mildest setting of a world, look at all settings from time to time, and add the one with the lowest reward.",
        formula=(
            r"v_k = \arg\min_{u \in V} R_{\pi_k}(u), \qquad L_{k+1} = L_k \cup \{v_k\}",
            r"x \sim \tfrac{1}{|L_k|} \sum_{u \in L_k} D_u",
        ),
        reading="what a transition model is in a world of texts, how often it is looked for, and that the models found so far are mixed",
        departures=(
            "IWOCS solves control problems exactly; nothing but its loop over worst models is used.",
            "The settings found are mixed evenly; IWOCS solves for the worst of them in every state.",
            "The policy goes on from where it is; IWOCS solves each problem anew.",
        ),
        claim=("worst-variant/worst", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "makes"}
    owns = frozenset({"curriculum"})
    worlds = frozenset({"search"})
    requires = (
        Requirement("task.options.alone", "differs from", True, "no engine answers that junk could strike"),
        Requirement("dataset", "equals", None, "it draws the world's own questions, of every setting"),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.variants = list_variants(self.config.noise, self.config.rates, self.config.relations)
        self.listed = [0] if self.config.begin == "mildest" else list(range(len(self.variants)))

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """As many prompts of each setting as there are rows."""
        return [example for number in range(len(self.variants)) for example in self.draw_prompts(run, number, "train", len(rows))]

    def draw_prompts(self, run: "RunContext", number: int, split: "Split", count: int) -> "list[Example]":
        task: Any = run.task
        return draw_variant(task, self.variants[number], number, split, count, run.seed, run.attempt.spec.task.difficulty)

    def curriculum(self, history: "History") -> Tensor:
        done = history.step - 1
        if done and done % self.config.every == 0:
            self.look_at_variants(done)
        self.log("listed", float(len(self.listed)))
        return torch.tensor([float(example.data.get(VARIANT) in self.listed) for example in self.run.examples])

    def look_at_variants(self, done: int) -> None:
        """Measures every setting after ``done`` steps, and adds the worst to the list."""
        drawn = [self.draw_prompts(self.run, number, "pairs", self.config.prompts) for number in range(len(self.variants))]
        examples = [example for some in drawn for example in some]
        completions = self.run.sample(examples, key=f"{self.card.name}/{done}")
        self.run.written_tokens += sum(sum(completion.mask) for completion in completions)
        scores = iter(self.run.score(example, made.text) for example, made in zip(examples, completions, strict=True))
        rewards = [sum(next(scores) for _ in some) / len(some) for some in drawn]
        self.report(rewards)
        self.listed = add_worst_variant(self.listed, rewards)

    def report(self, rewards: Sequence[float]) -> None:
        self.log("worst", min(rewards))
        self.log("mean", sum(rewards) / len(rewards))
        for number, reward in enumerate(rewards, 1):
            self.log(f"reward/{number}", reward)

    def state(self) -> dict[str, Any]:
        return {"listed": list(self.listed)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.listed = list(state["listed"])

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        settings = tuple(Series(f"{name}/reward/{number}", f"setting {number}") for number in range(1, MOST_RATES * MOST_RELATIONS + 1))
        return (
            Panel("Reward in all settings", (Series(f"{name}/worst", "in the worst"), Series(f"{name}/mean", "mean", dashed=True))),
            Panel("Reward by setting", settings, help="Junk rises from one setting to the next, then begins again with one more relation."),
            Panel("Settings trained on", (Series(f"{name}/listed", "settings"),)),
        )
