"""Problems around failures: where an answer goes wrong, the problem is asked again with another number in just that step.

After Socratic-Geo (arXiv 2602.03414): a teacher writes problems as programs with parameters, checks that they can be solved, and makes variants
around what the solver failed at; the solver learns by preferences. Its programs draw figures. Here a program is a word problem about a running total,
the teacher is a rule that changes the failing step, and a variant is checked by working it out. The tool is applied to answers of a policy: one round
of the paper's loop is a run that samples them, this tool, and a run that trains on what it made.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainers.contract.dataset_tools.answers import MARGIN, read_answer_text, remove_columns, replace_answer_text
from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm, ToolCard
from trainers.contract.dataset_tools.questions import find_user_question, replace_question
from trainers.contract.dataset_tools.word_problems import (
    GAINS,
    LOSSES,
    Line,
    WordProblem,
    add_change,
    read_lines,
    read_word_problem,
    set_change,
    work_on,
)
from trainers.contract.hyperparameters import Strict, param

THINK, END_THINK, ANSWER, END_ANSWER = "<think>", "</think>", "<answer>", "</answer>"
NO_PROBLEM, NO_WORKING, RIGHT = "prompts that are no word problem", "wrong answers without a step to look at", "rejected answers that are right"
SOLVED, NO_VARIANT = "answers that are right", "failures that no other number repeats"
TRIES = 20  # numbers drawn for each variant that is wanted

Mistake = Literal["slip", "direction", "number", "skipped", "answer"]


@dataclass(frozen=True)
class Failure:
    """Where an answer first departs from the right working, and how. ``by``: of a slip or another number, how much it is off."""

    place: int
    mistake: Mistake
    by: int = 0


class Config(Strict):
    variants: int = param(2, "New problems around each failure.", title="Variants", ge=1, le=16)
    target: Literal["failing", "random"] = param(
        "failing", "failing: the step that went wrong gets another number. random: any step does, to compare with.", title="Changed step"
    )
    largest: int = param(20, "Largest number of a changed step.", title="Largest number", ge=2, le=9_999)
    harder: bool = param(True, "Of marked answers: a right one becomes a problem with one step more; off: it is left out.", title="Harder problems")


class FailureVariants(DatasetTool):
    card = ToolCard(
        name="socratic-geo",
        title="Problems around failures",
        summary="Finds the step at which an answer to a word problem goes wrong and asks the problem again with another number there. Rejected sides "
        "repeat the mistake: train DPO on the pairs. Of marked answers come right answers: train SFT.",
        arxiv="2602.03414",
        system="Socratic-Geo",
        departures=(
            "A text stand-in: word problems about a running total, where the paper's programs draw figures; images are left out.",
            "The teacher is a rule that changes the number of the failing step; the paper's is a language model.",
            "A rejected answer makes the mistake of the original one again; the paper samples new answers from the solver.",
            "Known from the abstract only.",
        ),
    )
    suffix = "around failures"
    forms = {"preference": "preference", "kto": "completion"}
    Config = Config

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        _, question = find_user_question(row.get("prompt"))
        problem = read_word_problem(question)
        if problem is None or not problem.is_solvable:
            raise RowDropped(NO_PROBLEM)
        side = "rejected" if form == "preference" else "completion"
        text = read_answer_text(row.get(side))
        failure = find_failure(problem, text)
        if failure is None:
            if form == "preference":
                raise RowDropped(RIGHT)
            return [self.make_harder(row, problem, rng)]
        if failure.place < 0:
            raise RowDropped(NO_WORKING)
        made = [self.make_variant(row, problem, one, failure, form) for one in self.draw_variants(problem, failure, rng)]
        if not made:
            raise RowDropped(NO_VARIANT)
        return made

    def draw_variants(self, problem: WordProblem, failure: Failure, rng: random.Random) -> list[tuple[int, WordProblem]]:
        """(changed step, new problem), each once: those that can be solved and on which the mistake is one again."""
        found = dict[WordProblem, int]()
        for _ in range(TRIES * self.config.variants):
            place = failure.place if self.config.target == "failing" else rng.randrange(len(problem.changes))
            other = set_change(problem, place, rng.randint(1, self.config.largest))
            if other != problem and other.is_solvable and repeat_mistake(other, failure)[1] != other.result:
                found.setdefault(other, place)
            if len(found) == self.config.variants:
                break
        return [(place, other) for other, place in found.items()]

    def make_variant(self, row: Row, problem: WordProblem, variant: tuple[int, WordProblem], failure: Failure, form: RowForm) -> MadeRow:
        place, other = variant
        note = f"{failure.mistake} in step {failure.place + 1} of {len(problem.changes)}: step {place + 1} has another number"
        made = self.write_question(row, other)
        if form == "preference":
            wrong = write_working(*repeat_mistake(other, failure))
            sides = {"chosen": write_working(other.lines, other.result), "rejected": wrong}
            return MadeRow(made | {side: replace_answer_text(row[side], text) for side, text in sides.items()}, note)
        return MadeRow(made | {"completion": replace_answer_text(row["completion"], write_working(other.lines, other.result))}, note)

    def make_harder(self, row: Row, problem: WordProblem, rng: random.Random) -> MadeRow:
        """Raises RowDropped where right answers are left out."""
        if not self.config.harder:
            raise RowDropped(SOLVED)
        total = problem.result
        verb = rng.choice((*GAINS, *LOSSES) if total else GAINS)
        other = add_change(problem, verb, rng.randint(1, min(total, self.config.largest) if verb in LOSSES else self.config.largest))
        completion = replace_answer_text(row["completion"], write_working(other.lines, other.result))
        return MadeRow(self.write_question(row, other) | {"completion": completion}, "solved: one step more")

    def write_question(self, row: Row, problem: WordProblem) -> dict[str, Any]:
        """The row with another question and without what belonged to the old one."""
        place, _ = find_user_question(row["prompt"])
        kept = remove_columns(row, "chosen", "rejected", "completion", "label", MARGIN)
        if "reference" in kept:
            kept["reference"] = str(problem.result)
        return {**kept, "prompt": replace_question(row["prompt"], place, str(problem))}


def read_result(text: str) -> str:
    """What stands between the last tags of an answer; empty without them."""
    return text.rpartition(ANSWER)[2].partition(END_ANSWER)[0].strip() if ANSWER in text else ""


def find_failure(problem: WordProblem, text: str) -> Failure | None:
    """None for a right answer whose steps are right; place -1 where there is no working to look at."""
    working = text.partition(THINK)[2].partition(END_THINK)[0] if THINK in text else text.partition(ANSWER)[0]
    lines, total = read_lines(working), problem.start
    for place, change in enumerate(problem.changes):
        failure = compare_step(problem, lines, place, total)
        if failure is not None:
            is_right = not lines and read_result(text) == str(problem.result)
            return None if is_right else failure if lines else Failure(-1, "skipped")
        total += change
    return None if read_result(text) == str(problem.result) else Failure(len(problem.changes) - 1, "answer")


def compare_step(problem: WordProblem, lines: Sequence[Line], place: int, total: int) -> Failure | None:
    """How a working departs from the right one in a step that begins at ``total``; None where it does not."""
    change = problem.changes[place]
    if place >= len(lines):
        return Failure(place, "skipped")
    line = lines[place]
    if line == Line(total, change, total + change):
        return None
    if line.change == -change:
        return Failure(place, "direction")
    if line.change != change:
        is_next = problem.changes[place + 1 : place + 2] == (line.change,)
        return Failure(place, "skipped") if is_next else Failure(place, "number", line.change - change)
    return Failure(place, "slip", line.after - (total + change))


def repeat_mistake(problem: WordProblem, failure: Failure) -> tuple[list[Line], int]:
    """(working, result) of a problem with the same mistake in the same step; all after it is worked out from there."""
    place, changes = failure.place, problem.changes
    before, total = problem.lines[:place], problem.start + sum(changes[:place])
    change = changes[place]
    if failure.mistake == "skipped":
        made = [*before, *work_on(total, changes[place + 1 :])]
        return made, made[-1].after if made else problem.start
    if failure.mistake == "answer":
        return problem.lines, problem.lines[-1].before
    wrong = {"direction": -change, "number": change + failure.by}.get(failure.mistake, change)
    line = Line(total, wrong, total + wrong + (failure.by if failure.mistake == "slip" else 0))
    made = [*before, line, *work_on(line.after, changes[place + 1 :])]
    return made, made[-1].after


def write_working(lines: Sequence[Line], result: int) -> str:
    return f"{THINK}{' '.join(map(str, lines))}{END_THINK}{ANSWER}{result}{END_ANSWER}"
