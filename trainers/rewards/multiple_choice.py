"""Whether the answer names the right choice of a question. A letter inside a sentence is no choice: “A dog barks” does not say A."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trainers.contract.hyperparameters import param
from trainers.rewards.answers import AnswerPlace, find_answer, find_reference
from trainers.rewards.base import RewardFunction
from trainers.rewards.scores import UnusableRow

if TYPE_CHECKING:
    from trainers.tasks.base import Example

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class MultipleChoiceParameters(AnswerPlace):
    choices: int = param(4, "How many choices a question has: 4 for A to D.", title="Choices", ge=2, le=26)
    texts: str = param(
        "choices",
        "Key of the row's data that lists the choices' texts; an answer that is one of them counts as its letter. Empty: letters only.",
        title="Texts in data",
        advanced=True,
        max_length=100,
    )


class MultipleChoice(RewardFunction):
    name = "multiple-choice"
    title = "Multiple choice"
    summary = "1 where the answer names the reference's letter: alone, in brackets, before a choice's text, or after “answer is”."
    Parameters = MultipleChoiceParameters

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        letters = LETTERS[: parameters.choices]
        both = letters + letters.lower()
        wrapped = rf"(?:\\text\{{|\\boxed\{{|[(\[*_`\"'{{])*([{both}])(?![\w'’])"
        self.alone = re.compile(rf"\s*(?:\\text\{{|[(\[*_`\"'{{])*([{both}])[)\]*_`\"'}}.:]*\s*", re.ASCII)
        self.said = re.compile(rf"(?i:\banswer|\bchoice|\boption)\s*(?i:is|:|=|would be|must be)\s*(?i:option|choice|the|:)*\s*{wrapped}(?!\s+[a-z])")
        self.labelled = re.compile(rf"\s*(?:\(([{letters}])\)|([{letters}])[).:])\s+\S")
        self.bracketed = re.compile(rf"\(([{letters}])\)")

    def score(self, text: str, example: Example) -> float | None:
        listed = self.list_texts(example)
        wanted = self.read_choice(find_reference(example, self.parameters), listed)
        if wanted is None:
            raise UnusableRow("the row's reference names no choice")
        answer = find_answer(text, example, self.parameters)
        return float(answer is not None and self.read_choice(answer, listed) == wanted)

    def list_texts(self, example: Example) -> list[str]:
        found = example.data.get(self.parameters.texts) if self.parameters.texts else None
        return [str(text).strip().casefold() for text in found] if isinstance(found, list) else []

    def read_choice(self, answer: str, texts: list[str]) -> str | None:
        """The letter that an answer names; None where it names none, or several without saying which is the answer."""
        if match := self.alone.fullmatch(answer):
            return match[1].upper()
        plain = answer.strip().rstrip(".").casefold()
        if texts.count(plain) == 1:
            return LETTERS[texts.index(plain)]
        if said := list(self.said.finditer(answer)):
            return said[-1][1].upper()
        if match := self.labelled.match(answer):
            return (match[1] or match[2]).upper()
        bracketed = set(self.bracketed.findall(answer))
        return bracketed.pop() if len(bracketed) == 1 else None
