"""Demonstrations of recovering: one wrong step is put into a right chain of equations, and a line that takes it back after it.

After AdvChain (arXiv 2509.24269): a clean chain c_1 … c_n becomes c_1 … c_k, c_bad, c_corr, c_(k+1) … c_n, and plain supervised training on it
teaches the policy to correct itself. Its wrong steps drift to harm or to needless refusal and are written by a language model; here a wrong step is
the next equation with a wrong result, written by a rule. The final answer stays as it is, and so right.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from trainers.contract.dataset_tools.answers import insert_into_spans, read_answer_text, replace_answer_text
from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm, ToolCard
from trainers.contract.dataset_tools.steps import Span, StepKind, find_steps
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.spans import BAD, span_column

# a op b = c of whole numbers, which stands alone: neither part of a longer sum nor of a decimal number.
EQUATION = re.compile(r"(?<![\w.,+\-*/×·=])(?<![+\-*/×·=] )(-?\d{1,9}) ?([-+*/×·x]) ?(\d{1,9}) ?= ?(-?\d{1,9})(?![\w+\-*/×·=]|[.,]\d| [+\-*/×·=])")
NO_EQUATION = "answers without a right equation"
COLUMN = "completion"


class Config(Strict):
    correction: str = param(
        "Wait, that is wrong.",
        "Written after the wrong step. {wrong} and {right} stand for the wrong and the right result.",
        title="Correction",
        min_length=1,
        max_length=200,
    )
    largest_slip: int = param(3, "The wrong result is off by 1 to this.", title="Largest error", ge=1, le=1_000_000)
    share: float = param(1.0, "Share of the rows that get a wrong step; the others stay as they are.", title="Share of rows", gt=0, le=1)
    steps: StepKind = param("auto", "What a step is. auto: lines where an answer has several, else equations, else sentences.", title="Steps are")
    mark_wrong: bool = param(
        False,
        "Mark the wrong step as a bad span: the method span-credit then leaves it out of the loss, so that the error itself is not imitated.",
        title="Mark the wrong step",
    )


class CorrectedSlips(DatasetTool):
    card = ToolCard(
        name="advchain",
        title="A wrong step and its correction",
        summary="Puts one wrong equation into each right answer and a line after it that takes it back. Train SFT on them: the policy learns to "
        "go on from an error of its own.",
        arxiv="2509.24269",
        system="AdvChain",
        departures=(
            "Wrong steps are equations with a wrong result, written by a rule; a language model writes the paper's, which drift to harm or refusal.",
            "Leaving the wrong step out of the loss is our option; the paper trains on all tokens of chain and answer.",
            "Known from the abstract and a reading note.",
        ),
    )
    suffix = "with corrected errors"
    forms = {"completion": "completion"}
    Config = Config

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        text = read_answer_text(row.get(COLUMN))
        steps = find_steps(text, self.config.steps)
        found = [(place, match) for place, step in enumerate(steps) if (match := find_right_equation(text, step))]
        if not found:
            raise RowDropped(NO_EQUATION)
        if rng.random() >= self.config.share:
            return [MadeRow(dict(row), "left as it is")]
        place, equation = rng.choice(found)
        start, end = steps[place]
        right = int(equation[4])
        wrong = draw_wrong_result(right, self.config.largest_slip, rng)
        bad = f"{text[start : equation.start(4)]}{wrong}{text[equation.end(4) : end]}"
        correction = self.config.correction.replace("{wrong}", str(wrong)).replace("{right}", str(right))
        gap = find_gap(text, steps, place) or ("\n" if self.config.steps == "lines" else " ")
        inserted = f"{bad}{gap}{correction}{gap}"
        made = {**row, COLUMN: replace_answer_text(row[COLUMN], text[:start] + inserted + text[start:])}
        made |= self.move_spans(row, start, inserted, bad)
        return [MadeRow(made, f"a wrong result and its correction before step {place + 1} of {len(steps)}")]

    def move_spans(self, row: Row, start: int, inserted: str, bad: str) -> dict[str, Any]:
        """The column of marked spans, if the made row has one."""
        column = span_column(COLUMN)
        spans = insert_into_spans(row.get(column) or [], start, len(inserted))
        if self.config.mark_wrong:
            spans = sorted([*spans, {"start": start, "end": start + len(bad), "label": BAD, "text": bad}], key=lambda span: int(span["start"]))
        return {column: spans} if spans or column in row else {}


def find_right_equation(text: str, step: Span) -> re.Match[str] | None:
    """The first equation of a step that is right; None where there is none."""
    return next((match for match in EQUATION.finditer(text, *step) if is_equation_right(match)), None)


def is_equation_right(equation: re.Match[str]) -> bool:
    left, sign, right, result = int(equation[1]), equation[2], int(equation[3]), int(equation[4])
    if sign == "/":
        return right != 0 and left == right * result
    return result == {"+": left + right, "-": left - right}.get(sign, left * right)


def draw_wrong_result(right: int, largest: int, rng: random.Random) -> int:
    """Off by 1 to ``largest``; not below 0 where the right result is not."""
    slip = rng.choice((-1, 1)) * rng.randint(1, largest)
    return right + abs(slip) if right >= 0 > right + slip else right + slip


def find_gap(text: str, steps: Sequence[Span], place: int) -> str:
    """The space that stands between this step and the one beside it; empty where there is none, or where words stand there."""
    pairs = [(place - 1, place)] if place else [(0, 1)] if len(steps) > 1 else []
    gap = "".join(text[steps[one][1] : steps[other][0]] for one, other in pairs)
    return "" if gap.strip() else gap
