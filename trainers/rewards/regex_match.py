"""Whether a pattern is found in the completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import model_validator

from trainers.contract.hyperparameters import Strict, param
from trainers.rewards.base import RewardFunction
from trainers.rewards.patterns import LONGEST_PATTERN, SECONDS, check_pattern, compile_pattern
from trainers.rewards.scores import UnusableRow

if TYPE_CHECKING:
    from trainers.tasks.base import Example


class RegexParameters(Strict):
    pattern: str = param(..., "In the syntax of Python's re; ^ and $ match at lines.", title="Pattern", min_length=1, max_length=LONGEST_PATTERN)
    whole: bool = param(False, "The whole completion has to match.", title="Whole completion")
    ignore_case: bool = param(False, "Upper and lower case are the same.", title="Ignore case")
    found: float = param(1.0, "Score where it matches.", title="Found", ge=-1000, le=1000)
    missing: float = param(0.0, "Score where it does not.", title="Not found", ge=-1000, le=1000)

    @model_validator(mode="after")
    def is_pattern(self) -> RegexParameters:
        check_pattern("pattern", self.pattern)
        return self


class RegexMatch(RewardFunction):
    name = "regex"
    title = "Regular expression"
    summary = "One score where a pattern is found in the completion, another where it is not. A search that takes over a second has no opinion."
    Parameters = RegexParameters

    def score(self, text: str, example: Example) -> float | None:
        chosen: RegexParameters = self.parameters
        pattern = compile_pattern(chosen.pattern, chosen.ignore_case)
        try:
            match = pattern.fullmatch(text.strip(), timeout=SECONDS) if chosen.whole else pattern.search(text, timeout=SECONDS)
        except TimeoutError:
            self.counted["timeouts"] += 1
            raise UnusableRow(f"the pattern took longer than {SECONDS:g} s") from None
        return chosen.missing if match is None else chosen.found
