"""Where in a completion its answer stands: parameters and extraction shared by all functions that compare an answer with a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Contradiction, Problem
from trainers.rewards.patterns import LONGEST_PATTERN, check_pattern, find_last_match
from trainers.rewards.scores import UnusableRow

if TYPE_CHECKING:
    from trainers.tasks.base import Example

Place = Literal["whole", "after-hashes", "boxed", "answer-tag", "last-line", "pattern"]
HASHES, BOXED, TAG, END_TAG = "####", "\\boxed", "<answer>", "</answer>"


class AnswerPlace(Strict):
    answer: Place = param(
        "whole",
        "The whole completion, what follows the last ####, the last \\boxed{}, the last <answer> tag, the last line, or a pattern.",
        title="Answer is",
    )
    answer_pattern: str = param(
        "",
        "With “pattern”: a regular expression; its last match is the answer, or that match's first group.",
        title="Answer pattern",
        max_length=LONGEST_PATTERN,
    )
    reference_answer: Place = param("whole", "Where the answer stands in the row's reference.", title="Reference is", advanced=True)

    @model_validator(mode="after")
    def has_its_pattern(self) -> AnswerPlace:
        if "pattern" in (self.answer, self.reference_answer):
            if not self.answer_pattern:
                raise Contradiction(Problem("answer_pattern", "", "is missing", "give a regular expression, or choose another place"))
            check_pattern("answer_pattern", self.answer_pattern)
        return self


def find_answer(text: str, example: Example, place: AnswerPlace) -> str | None:
    """The completion's answer, stripped; None where it gives none. A prompt that the completion repeats at its beginning is no answer."""
    found = extract_answer(drop_echo(text, example), place.answer, place.answer_pattern)
    return None if found is None or not found.strip() else found.strip()


def find_reference(example: Example, place: AnswerPlace) -> str:
    """The reference's answer, stripped. Raises UnusableRow without one: nothing is right then, and an empty answer least of all."""
    found = extract_answer(example.reference, place.reference_answer, place.answer_pattern)
    if found is None or not found.strip():
        raise UnusableRow("the row has no reference answer" if not example.reference.strip() else "no answer was found in the row's reference")
    return found.strip()


def drop_echo(text: str, example: Example) -> str:
    """The completion without the last message of the prompt, where it begins by repeating it."""
    asked = example.prompt[-1].content.strip() if example.prompt else ""
    begun = text.lstrip()
    return begun[len(asked) :] if asked and begun.startswith(asked) else text


def extract_answer(text: str, place: Place, pattern: str) -> str | None:
    if place == "whole":
        return text
    if place == "after-hashes":
        return text.rpartition(HASHES)[2].strip().partition("\n")[0] if HASHES in text else None
    if place == "boxed":
        return find_last_boxed(text)
    if place == "answer-tag":
        return find_last_tag(text)
    if place == "last-line":
        return next((line for line in reversed(text.splitlines()) if line.strip()), None)
    return find_last_match(pattern, text)


def find_last_tag(text: str) -> str | None:
    """What the last complete <answer>…</answer> holds."""
    before, end, _ = text.rpartition(END_TAG)
    return before.rpartition(TAG)[2] if end and TAG in before else None


def find_last_boxed(text: str) -> str | None:
    """What stands in the braces of the last complete \\boxed{}, nested braces included; of \\boxed 7 the 7. None without any."""
    end = len(text)
    while (start := text.rfind(BOXED, 0, end)) >= 0:
        if (inside := read_braces(text, start + len(BOXED))) is not None:
            return inside
        end = start
    return None


def read_braces(text: str, start: int) -> str | None:
    """What the braces that open at ``start`` hold; without braces the next character that is none of space."""
    while start < len(text) and text[start] in " \t":
        start += 1
    if start >= len(text):
        return None
    if text[start] != "{":
        return text[start] if text[start].isalnum() else None
    depth, place = 0, start
    while place < len(text):
        if text[place] == "\\":
            place += 2  # an escaped brace opens and closes nothing
            continue
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 1 : place]
        place += 1
    return None
