"""InfoAgent: questions that are hard to find the answer of, supervised traces, then GRPO with tools (arXiv 2509.25189).

Questions are subtrees around an entity with names blurred into descriptions that fit two entities at least; a question is kept when its clues
together fit one entity and none does alone (``trainers/worlds/question_building.py``). How difficult it is, is the mean number of tool calls of the
runs that are right; wrong runs do not count.

Stage 1 (trainer sft): traces of a teacher that end right, what the tools said masked out of the loss. Stage 2 (trainer grpo): R = 1 for a right
answer, advantages standardised in the group, the world's tokens out of the loss. Both train on the run's difficulty and, for a share of the
questions, on easier ones.

Our reading: the abstract gives no equations. The engine searches sentences of the world ``entity_search``; its expert is the teacher. Stage 2 differs
from GRPO in the questions and in that the right answer alone pays.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainers.adapters.sft import tokenize_turns
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.base import World

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

DEPTHS = (2, 3, 4)  # searches that an answer needs, as the panels have them


def measure_difficulty(calls: Sequence[int], right: Sequence[bool]) -> float | None:
    """Mean calls of the runs that are right; None where none is."""
    counted = [count for count, good in zip(calls, right, strict=True) if good]
    return sum(counted) / len(counted) if counted else None


def share_levels(levels: Sequence[str], own: str, count: int, easier: float) -> list[tuple[str, int]]:
    """How many of ``count`` questions are of each level: ``easier`` of them of the levels before ``own``, in equal parts, the rest of ``own``."""
    before = list(levels[: levels.index(own)])
    many = int(count * easier / len(before)) if before else 0
    return [*((level, many) for level in before if many), (own, count - many * len(before))]


class Config(Strict):
    easier: float = param(0.5, "Share of the questions that are of the difficulties below the run's own.", title="Easier questions", ge=0, le=1)


class InfoAgent(Method):
    card = Card(
        name="infoagent",
        title="Information-seeking agents from entity trees",
        arxiv="2509.25189",
        system="InfoAgent",
        base="grpo",
        provenance="abstract",
        source="abstract",
        fit="needs-environment",
        idea="Build questions from entity trees, blur their names, keep those with one answer; fine-tune on right traces, then train by outcome.",
        formula=(
            r"|\{e : e \models F(T)\}| = 1, \quad \forall f \in F(T): |\{e : e \models f\}| > 1",
            r"\mathrm{difficulty}(q) = \mathrm{mean}(\mathrm{calls} \mid \mathrm{right}), \quad R = 1[\mathrm{right}]",
        ),
        reading="how questions are accepted, difficulty, and the reward",
        departures=(
            "Sentences about six people take the place of a knowledge base and the web; a page is not opened.",
            "The teacher of the traces is the world's expert, and right is what equals the answer, without a judge.",
        ),
    )
    Config = Config
    worlds = frozenset({"entity_search"})
    trains = frozenset({"grpo", "sft"})
    requires = (Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),)
    roles = {"data": "makes", "rewards": "makes"}

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        world, spec = run.task, run.attempt.spec
        assert isinstance(world, World)
        parts = share_levels(list(world.difficulties), spec.task.difficulty, len(rows), self.config.easier)
        examples = [example for level, count in parts for example in world.examples("train", count, spec.seed, level)]
        self.log("data_searches", sum(len(example.data["evidence"]) for example in examples) / len(examples))
        if spec.training.trainer == "grpo":
            return examples
        return [write_right_trace(world, example, run.tokenizer) for example in examples]

    def rewards(self, batch: "RolloutBatch", rewards: "Tensor") -> "Tensor":
        return batch.correct.to(rewards)

    def observe(self, batch: "RolloutBatch") -> None:
        calls = [text.count("</search>") for text in batch.texts]
        right = batch.correct.tolist()
        for name, wanted in (("right", True), ("wrong", False)):
            if (mean := measure_difficulty(calls, [good is wanted for good in right])) is not None:
                self.log(f"calls_{name}", mean)
        for depth in DEPTHS:
            rows = [row for row, example in enumerate(batch.examples) if len(example.data["evidence"]) == depth]
            if rows:
                self.log(f"right_{depth}", sum(right[row] for row in rows) / len(rows))
            if (mean := measure_difficulty([calls[row] for row in rows], [right[row] for row in rows])) is not None:
                self.log(f"difficulty_{depth}", mean)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        words = {2: "2 searches needed", 3: "3 searches needed", 4: "4 searches needed"}
        return (
            Panel("Difficulty: calls of right runs", tuple(Series(f"infoagent/difficulty_{depth}", word) for depth, word in words.items())),
            Panel("Right answers", tuple(Series(f"infoagent/right_{depth}", word) for depth, word in words.items())),
            Panel("Calls per episode", (Series("infoagent/calls_right", "right"), Series("infoagent/calls_wrong", "wrong"))),
        )


def write_right_trace(world: World, example: "Example", tokenizer: Any) -> dict[str, Any]:
    """A supervised row of the expert's episode, with what the world says out of the loss."""
    return tokenize_turns(example.prompt, world.tell_turns(example, world.way(example, world.begin(example))), tokenizer)
