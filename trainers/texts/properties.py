"""Properties of a text that can be counted, and texts that have any amount of one: what a judge of intensity is tried on. Imports no torch."""

import re
from collections.abc import Callable
from dataclasses import dataclass

POLITE = re.compile(r"\b(?:please|thanks|thank you|kindly|sorry|welcome)\b", re.IGNORECASE)
FILLER = "and so on "


def count_digits(text: str) -> int:
    return sum(one.isascii() and one.isdigit() for one in text)


def count_polite_words(text: str) -> int:
    return len(POLITE.findall(text))


@dataclass(frozen=True)
class TextProperty:
    """``write``: a text that has this amount of it. ``question``: what a judge is asked about two texts."""

    count: Callable[[str], int]
    write: Callable[[int], str]
    question: str


PROPERTIES = {
    "length": TextProperty(len, lambda amount: (FILLER * (amount // len(FILLER) + 1))[:amount], "Which text is longer?"),
    "digits": TextProperty(count_digits, lambda amount: " ".join("7" * amount), "Which text has more digits?"),
    "politeness": TextProperty(count_polite_words, lambda amount: " ".join(["please"] * amount), "Which text is more polite?"),
}
