"""Counting runs of words and characters: what repetition and similarity are computed from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

WORD = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Lower-case words; each punctuation mark is one of its own, and so is each character of scripts that are written without spaces."""
    return [piece for word in WORD.findall(text.casefold()) for piece in (word if is_unspaced(word) else [word])]


def is_unspaced(word: str) -> bool:
    return any("\u3040" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or "\u0e00" <= char <= "\u0eff" for char in word)


def count_ngrams(items: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(items[place : place + size]) for place in range(len(items) - size + 1))
