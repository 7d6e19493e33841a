"""Whether a completion has certain sections, in order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from trainers.contract.hyperparameters import Strict, param
from trainers.rewards.base import RewardFunction

if TYPE_CHECKING:
    from trainers.tasks.base import Example

Heading = Annotated[str, Field(min_length=1, max_length=100)]
LINE = re.compile(r"(?:#{1,6}[ \t]+|\*\*)?(?P<title>[^\n]+?)(?:\*\*)?:?(?:\*\*)?(?:[ \t]#+)?")


class SectionsParameters(Strict):
    headings: list[Heading] = param(..., "Headings in their order; upper and lower case are the same.", title="Headings", min_length=1, max_length=50)
    filled: bool = param(True, "A section without text does not count.", title="None empty")
    partial: bool = param(False, "A share for the sections that are there, in place of 0 unless all are.", title="Partial score")


class Sections(RewardFunction):
    name = "sections"
    title = "Sections"
    summary = "1 where the completion has each heading in order, on a line of its own: “## Steps”, “**Steps**” or “Steps:”."
    Parameters = SectionsParameters

    def score(self, text: str, example: Example) -> float | None:
        chosen: SectionsParameters = self.parameters
        lines = [line.strip() for line in text.splitlines()]
        wanted = {heading.strip().rstrip(":").casefold() for heading in chosen.headings}
        titles = [match["title"].strip().rstrip(":").casefold() if (match := LINE.fullmatch(line)) else "" for line in lines]
        right, place = 0, 0
        for heading in chosen.headings:
            try:
                found = titles.index(heading.strip().rstrip(":").casefold(), place)
            except ValueError:
                continue
            after = next((number for number in range(found + 1, len(titles)) if titles[number] in wanted), len(titles))
            right += not chosen.filled or any(lines[found + 1 : after])
            place = found + 1
        return right / len(chosen.headings) if chosen.partial or right == len(chosen.headings) else 0.0
