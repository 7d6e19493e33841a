"""ViGoRL: every step of reasoning says where its evidence stands; answers and distinct places are paid (arXiv 2505.23678). A text stand-in.

f = 0                            for an episode in broken form, or one that quotes no place
f = 1 + b (n - 1)                else; n: distinct places quoted, those nearer than d to a counted one left out
R = w [right answer] + (1 - w) f

Then the reinforcement of the base. The authors' reward of several turns is w = 0.6, b = 0.2; that of one turn is w = 0.5, b = 0. It differs from GRPO
on the right answer in f; with w = 1 it is GRPO on the answer. Whether a place is the right one is not paid for, and reported: a step is unsupported
where it keeps a word that none of the lines it quotes says.

The authors' places are points of an image, which a policy that was warmed up on traces of a tree search names in its thoughts, or zooms in on. Here
the image is a text of the world ``reader`` with the option ``numbered``, a place is the number of a line that has been read, and a step is a memory
that is written. The cold start of the world, some of whose demonstrations quote, stands for the warm start.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.reader import Line, list_lines
from trainers.worlds.replays import read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example
    from trainers.worlds.base import Replay

MOST_DIGITS = 4  # of a line's number


def count_distinct_places(places: Iterable[int], distance: int) -> int:
    """How many of ``places``, in their order, are at least ``distance`` from all that were counted before."""
    counted = list[int]()
    for place in places:
        if all(abs(place - other) >= distance for other in counted):
            counted.append(place)
    return len(counted)


def score_grounding(distinct: int, formed: bool, bonus: float) -> float:
    """f."""
    return 1.0 + bonus * (distinct - 1) if formed and distinct else 0.0


def mix_grounding(right: float, grounding: float, weight: float) -> float:
    """R."""
    return weight * right + (1 - weight) * grounding


def list_quotes(memory: str, lines: Sequence[Line]) -> list[Line]:
    """The ``lines`` that a memory quotes by their numbers, in its order; other numbers are no places."""
    by_number = {line.number: line for line in lines}
    numbers = [int(word) for word in memory.split() if word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS]
    return [by_number[number] for number in numbers if number in by_number]


def is_supported(memory: str, lines: Sequence[Line]) -> bool | None:
    """Whether the lines that a memory quotes say all words of the text that it keeps; None for one that keeps none."""
    kept = set(memory.split()) & {line.value for line in lines}
    return kept <= {line.value for line in list_quotes(memory, lines)} if kept else None


class Config(Strict):
    weight: float = param(
        0.6, "Weight of the right answer beside the quoted places; the authors: 0.5 for a single turn.", title="Weight of the answer (w)", ge=0, le=1
    )
    bonus: float = param(0.2, "What each further distinct place adds; the authors: 0 for a single turn.", title="Bonus (b)", ge=0, le=10)
    distance: int = param(1, "Lines by which places have to differ to count as two; the authors: 10 pixels.", title="Distance (d)", ge=1, le=1000)


class ViGoRL(Method):
    card = Card(
        name="vigorl",
        title="Steps that quote their place (text stand-in)",
        arxiv="2505.23678",
        system="ViGoRL",
        base="grpo",
        provenance="code",
        source="github Gabesarch/grounded-rl, src/trainer/rl/examples/reward_function: string_match_multiturn.py, string_match_grounded_thinking.py",
        fit="needs-modality",
        idea="Have every step of reasoning quote where its evidence stands, and pay for the answer and for distinct places that are quoted.",
        formula=(
            r"f = \begin{cases} 0 & \text{broken form or no place} \\ 1 + b\,(n - 1) & n \text{ distinct places} \end{cases}",
            r"R = w\,[a = a^*] + (1 - w)\, f",
        ),
        departures=(
            "A text stand-in: places are numbers of lines of the world reader, in place of points of an image; its numbers compare with no paper's.",
            "A memory that is written is the step, in place of a thought or a call that zooms in.",
            "An episode without any place has f = 0 under both weights; the authors' reward of several turns gives it 1.",
            "Only numbers of lines that have been read are places; the authors count any point.",
            "The world's cold start is the warm start, in place of traces of a tree search.",
        ),
        claim=("vigorl/unsupported", "lower"),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "makes"}
    worlds = frozenset({"reader"})
    requires = (Requirement("task.options.numbered", "equals", True, "without it the lines have no numbers to quote"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, made = self.config, []
        for example, replay in zip(batch.examples, replay_texts(self.run.task, batch.examples, batch.texts), strict=True):
            answer, memories = read_final_answer(replay), list_memories(example, replay)
            places = [line.number for memory, lines in memories for line in list_quotes(memory, lines)]
            distinct = count_distinct_places(places, config.distance)
            grounding = score_grounding(distinct, answer is not None, config.bonus)
            made.append(mix_grounding(float(answer == example.reference), grounding, config.weight))
            self.log("distinct", distinct)
            self.log("quotes", len(places))
            self.log("grounded", float(grounding > 0))
            for memory, lines in memories:
                if (supported := is_supported(memory, lines)) is not None:
                    self.log("unsupported", float(not supported))
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Steps and their places",
                (Series(f"{name}/unsupported", "unsupported steps"), Series(f"{name}/grounded", "episodes that quote a place", dashed=True)),
                help="A step is unsupported where it keeps a word that no line it quotes says.",
            ),
            Panel("Places of an episode", (Series(f"{name}/distinct", "distinct"), Series(f"{name}/quotes", "all", dashed=True))),
        )


def list_memories(example: "Example", replay: "Replay") -> list[tuple[str, list[Line]]]:
    """Every memory that an episode has written, each with the lines that had been read by then."""
    lines, found = list_lines(example), list[tuple[str, list[Line]]]()
    for turn in replay.turns:
        if turn.step.facts.get("tool") == "memory":
            chunks = turn.step.state["read"] - 1  # writing it has opened the next one
            found.append((turn.step.state["memory"], [line for line in lines if line.chunk < chunks]))
    return found
