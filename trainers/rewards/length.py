"""How long a completion is, against limits."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Contradiction, Problem
from trainers.rewards.base import RewardFunction

if TYPE_CHECKING:
    from trainers.tasks.base import Example

TOKENIZER = "tokenizer.json"


class LengthParameters(Strict):
    unit: Literal["words", "characters", "lines", "tokens"] = param("words", "What is counted.", title="Unit")
    least: int = param(0, "Shortest completion with the full score.", title="At least", ge=0, le=10_000_000)
    most: int | None = param(None, "Longest completion with the full score; empty: no limit.", title="At most", ge=0, le=10_000_000)
    falloff: int = param(0, "Beyond a limit the score falls to 0 within so many; 0: at once.", title="Falls to 0 within", ge=0, le=10_000_000)
    tokenizer: str = param("", "With tokens: a folder with tokenizer.json, of the policy for example.", title="Tokenizer", advanced=True)

    @model_validator(mode="after")
    def limits_fit(self) -> LengthParameters:
        if self.most is not None and self.most < self.least:
            raise Contradiction(Problem("most", self.most, f"is less than “at least”, {self.least}", f"use at least {self.least}"))
        if self.unit == "tokens" and not self.tokenizer:
            raise Contradiction(Problem("tokenizer", "", "is missing: tokens are those of a tokenizer", "name a folder, or count words"))
        return self


class Length(RewardFunction):
    name = "length"
    title = "Length"
    summary = "1 where the completion has from “at least” to “at most” words, characters, lines or tokens, falling to 0 outside."
    Parameters = LengthParameters

    @classmethod
    def find_missing(cls, parameters: Any) -> list[Problem]:
        if parameters.unit != "tokens" or (Path(parameters.tokenizer) / TOKENIZER).is_file():
            return []
        return [Problem("tokenizer", parameters.tokenizer, f"has no {TOKENIZER} on this machine", "name a folder with a tokenizer")]

    @cached_property
    def tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(Path(self.parameters.tokenizer) / TOKENIZER))

    def score(self, text: str, example: Example) -> float | None:
        chosen: LengthParameters = self.parameters
        length = self.measure(text)
        over = max(chosen.least - length, 0 if chosen.most is None else length - chosen.most, 0)
        return 1.0 if over == 0 else max(0.0, 1.0 - over / (chosen.falloff + 1))

    def measure(self, text: str) -> int:
        unit = self.parameters.unit
        if unit == "tokens":
            return len(self.tokenizer.encode(text, add_special_tokens=False).ids)
        return len(text) if unit == "characters" else len(text.split()) if unit == "words" else len(text.strip().splitlines())
