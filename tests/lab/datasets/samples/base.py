"""A sample: rows of a file, and what is to come of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
ASKED = [{"role": "user", "content": "What is 2 + 2?"}]
GOOD, BAD = [{"role": "assistant", "content": "4"}], [{"role": "assistant", "content": "5"}]
PAIR = {"prompt": ASKED, "chosen": GOOD, "rejected": BAD}
ANSWERED = {"prompt": ASKED, "completion": GOOD}


def said(text: str) -> list[Row]:
    return [{"role": "assistant", "content": text}]


def asked(text: str) -> list[Row]:
    return [{"role": "user", "content": text}]


def system(text: str) -> list[Row]:
    return [{"role": "system", "content": text}]


@dataclass(frozen=True)
class Sample:
    """``becomes``: for every row the row of the dataset, or a part of the reason why there is none."""

    name: str
    format: str
    rows: list[Row]
    becomes: list[Row | str]
    left_out: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)  # of the first row
