"""Agentar-Scale-SQL: a generator of queries paid by what they return, and a selector that chooses between two of them (arXiv 2509.24403).

``role: generator``: R_G = 1 if the last query of an episode returns what the gold query does, 0.1 if it runs and returns something else, 0 if it
fails or there is none. ``role: selector``: a policy of its own, in a run of its own, reads a question with two queries and their results and names
the right one; R_S = 1 if it does. Its prompts come from queries that a generator (``generator``, or the run's start) writes for the task's questions:
of each class of equal results one stands for all, and the right class is paired with each wrong one. Both are GRPO. The selector is fine-tuned on the
same choices first (trainer sft), because a policy that has never been asked to choose finds nothing to reinforce.

When answering, candidates are grouped by their result, and a round robin of the selector between the groups decides: W_i = number of the classes that
i beats (``trainers/maths/tournament.py``, measured in ``bench/effect_cases/agentar_scale_sql.py``). Here the table is that of the world ``tables``
and SQLite runs the queries.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.tournament import group_by_result
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example
from trainers.worlds.base import World, replay_episode
from trainers.worlds.tables import run_query
from trainers.worlds.tool_use import write_answer

if TYPE_CHECKING:
    import random

    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

RUNS = 0.1  # of a query that runs and returns something else


def read_queries(world: World, example: Example, text: str) -> list[str]:
    """The queries of an episode, in their order."""
    return [turn.step.facts["query"] for turn in replay_episode(world, example, text).turns if turn.step.facts.get("tool") == "sql"]


def run_candidate(example: Example, query: str) -> str | None:
    """What a query returns; None for one that fails."""
    try:
        return run_query(example.data["rows"], query)
    except ValueError:
        return None


def grade_query(example: Example, query: str | None) -> float:
    """R_G; None: there is no query."""
    result = None if query is None else run_candidate(example, query)
    return 0.0 if result is None else 1.0 if result == example.reference else RUNS


def write_choice(example: Example, queries: Sequence[str]) -> str:
    """The question with two candidates and their results, as the selector reads it."""
    told = [f"{number}: {query} returns {run_candidate(example, query)}." for number, query in enumerate(queries, 1)]
    return f"{example.prompt[-1].content} {' '.join(told)} Which?"


def build_choices(example: Example, queries: Sequence[str], rng: "random.Random") -> list[Example]:
    """The right class against each wrong one, in random order; none where all candidates agree or none is right. Queries that fail are left out."""
    known = [(query, result) for query in queries if (result := run_candidate(example, query)) is not None]
    firsts = [known[places[0]] for places in group_by_result([result for _, result in known])]
    right = [query for query, result in firsts if result == example.reference]
    choices = []
    for wrong in [query for query, result in firsts if result != example.reference] if right else []:
        place = rng.randrange(2)
        pair = [right[0], wrong] if place == 0 else [wrong, right[0]]
        choices.append(Example([Message("user", write_choice(example, pair))], str(place + 1), dict(example.data)))
    return choices


class Config(Strict):
    role: Literal["generator", "selector"] = param("generator", "What is trained: who writes queries, or who chooses between two.", title="Role")
    generator: str = param("", "Selector: folder of the policy that writes the candidates; empty = the one the run starts from.", title="Generator")
    candidates: int = param(4, "Selector: queries sampled for each question.", title="Candidates", ge=2, le=64)


class AgentarScaleSQL(Method):
    card = Card(
        name="agentar-scale-sql",
        title="Execution-graded SQL generator and selector",
        arxiv="2509.24403",
        system="Agentar-Scale-SQL",
        base="grpo",
        provenance="paper",
        source="arXiv 2509.24403, v6",
        fit="variant",
        idea="Pay a generator a little for SQL that runs and fully for the right result; a trained selector then decides between candidates.",
        formula=(
            r"R_G = 1 \ \mathrm{equal\ results}, \quad 0.1 \ \mathrm{runs}, \quad 0 \ \mathrm{fails}",
            r"R_S = 1[\mathrm{names\ the\ right\ candidate}]",
            r"W_i = \sum_j 1[c_i \mathrm{\ beats\ } c_j], \quad \hat{c} = c_{\mathrm{arg\,max}_i W_i}",
        ),
        departures=(
            "A table of a few rows; the selector has the generator's shape, and is fine-tuned on choices before GRPO.",
            "Candidates come from one generator: no in-context generator, no fixer of failing queries, no reviser.",
            "Ties of the tournament go to the larger class.",
        ),
    )
    Config = Config
    worlds = frozenset({"tables"})
    trains = frozenset({"grpo", "sft"})
    requires = (Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),)
    roles = {"data": "makes", "rewards": "makes"}
    idle = {"data": ("role", "generator")}

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    @property
    def world(self) -> World:
        assert isinstance(self.run.task, World)
        return self.run.task

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        if self.config.role == "generator":
            return rows
        supervised = run.attempt.spec.training.trainer == "sft"
        examples = self.draw_questions(run) if supervised else rows
        model = run.frozen(self.config.generator) if self.config.generator else None
        asked = [example for example in examples for _ in range(self.config.candidates)]
        texts = [made.text for made in run.sample(asked, key="agentar-scale-sql", model=model)]
        rng, choices = run.rng("agentar-scale-sql", "order"), list[Example]()
        for place, example in enumerate(examples):
            own = texts[place * self.config.candidates : (place + 1) * self.config.candidates]
            choices += build_choices(example, [query for text in own for query in read_queries(self.world, example, text)[-1:]], rng)
        self.log("data_choices", len(choices) / len(examples))
        if supervised:
            return [write_choice_row(choice) for choice in choices]
        return [choices[place % len(choices)] for place in range(max(len(rows), len(choices)))] if choices else []  # no fewer than a batch needs

    def draw_questions(self, run: "RunContext") -> list[Example]:
        """Questions of the training split, as many as the spec has demonstrations, shared out among the candidates."""
        spec = run.attempt.spec
        count = max(1, run.training.demonstrations // self.config.candidates)
        return run.task.examples("train", count, spec.seed, spec.task.difficulty)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        if self.config.role == "selector":
            self.log("chosen_right", batch.correct.float().mean())
            return batch.correct.to(rewards)
        written = [read_queries(self.world, example, text) for example, text in zip(batch.examples, batch.texts, strict=True)]
        graded = torch.tensor([grade_query(example, own[-1] if own else None) for example, own in zip(batch.examples, written, strict=True)])
        self.log("fails", (graded == 0).float().mean())
        self.log("runs", ((graded > 0) & (graded < 1)).float().mean())
        self.log("right", (graded == 1).float().mean())
        return graded.to(rewards)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Last query of an episode",
                (Series(f"{name}/fails", "fails or none"), Series(f"{name}/runs", "runs"), Series(f"{name}/right", "right result")),
                "stack",
                help="Queries should run first and be right later.",
            ),
            Panel("Selector", (Series(f"{name}/chosen_right", "right choices"),)),
        )


def write_choice_row(choice: Example) -> dict[str, Any]:
    """A supervised row of the selector."""
    return {"prompt": as_rows(choice.prompt), "completion": [{"role": "assistant", "content": write_answer(choice.reference)}]}
