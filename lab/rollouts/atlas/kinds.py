"""What kind of text a token is, for very many tokens at once. Pure functions of texts and array lengths."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

KINDS = ("special token", "line break", "white space", "digit", "punctuation", "word start", "word continuation", "part of a character")
SPECIAL, BREAK, SPACE, DIGIT, PUNCTUATION, START, CONTINUATION, PART = range(len(KINDS))
ZONES = ("thinking", "answer")  # of completions that think; 0 elsewhere, else place in ZONES + 1

_OTHER, _SPACE, _BREAK, _DIGIT, _LETTER, _UNKNOWN = range(6)
_table = np.full(0x110000, _UNKNOWN, dtype=np.uint8)  # character class by code point, filled as characters are met

Ints = npt.NDArray[np.int64]


def character_classes(points: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """The class of each code point (N,)."""
    classes = _table[points]
    for point in np.unique(points[classes == _UNKNOWN]).tolist():
        _table[point] = character_class(chr(point))
    return _table[points]


def character_class(character: str) -> int:
    if character in "\n\r\u2028\u2029\x0b\x0c\x85":
        return _BREAK
    if character.isspace():
        return _SPACE
    if character.isdigit():
        return _DIGIT
    return _LETTER if character.isalpha() or unicodedata.category(character).startswith("M") else _OTHER


def kinds_of(texts: Sequence[str], lengths: Sequence[Ints], special: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.int8]:
    """The kind (place in KINDS) of every token of several rollouts, one after the other (T,).

    ``lengths`` are the code points each token adds to its rollout's text, ``special`` whether its id is that of a special token. A token
    is what its first character that is no space is; a word starts after anything that is neither letter nor digit.
    """
    if not texts:
        return np.empty(0, dtype=np.int8)
    joined = "".join(f" {text}" for text in texts) + " "  # a space before each text: its first word starts there
    characters = character_classes(np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4"))
    sizes = np.array([len(text) for text in texts])
    text_starts = np.cumsum(sizes + 1) - sizes
    starts = np.concatenate(
        [
            np.minimum(np.cumsum(token_lengths) - token_lengths, size) + begin
            for token_lengths, size, begin in zip(lengths, sizes, text_starts, strict=True)
        ]
    )
    ends = np.concatenate(
        [np.minimum(np.cumsum(token_lengths), size) + begin for token_lengths, size, begin in zip(lengths, sizes, text_starts, strict=True)]
    )

    blank = (characters == _SPACE) | (characters == _BREAK)
    index = np.where(blank, len(characters), np.arange(len(characters)))
    following = np.minimum.accumulate(index[::-1])[::-1]  # the first character from here on that is no space
    first = following[starts]
    breaks = np.concatenate([[0], np.cumsum(characters == _BREAK)])

    seen = characters[np.minimum(first, len(characters) - 1)]
    before = characters[np.maximum(first - 1, 0)]
    word = np.where((before == _LETTER) | (before == _DIGIT), CONTINUATION, START)
    kinds = np.select([seen == _LETTER, seen == _DIGIT], [word, np.full(len(first), DIGIT)], PUNCTUATION)
    spaces = np.where(breaks[ends] > breaks[starts], BREAK, SPACE)
    kinds = np.where(first >= ends, spaces, kinds)
    kinds = np.where(ends == starts, np.where(np.concatenate(special), SPECIAL, PART), kinds)
    return kinds.astype(np.int8)


def zones_of(texts: Sequence[str], lengths: Sequence[Ints]) -> npt.NDArray[np.int8]:
    """Whether a token (T,) belongs to the thinking or the answer: 0 where the completion does not think."""
    zones = []
    for text, token_lengths in zip(texts, lengths, strict=True):
        begin, end = text.find("<think>"), text.find("</think>")
        starts = np.cumsum(token_lengths) - token_lengths
        zone = np.zeros(len(token_lengths), dtype=np.int8)
        if begin >= 0 or end >= 0:
            zone[starts >= max(0, begin)] = 1
            if end >= 0:
                zone[starts >= end + len("</think>")] = 2
        zones.append(zone)
    return np.concatenate(zones) if zones else np.empty(0, dtype=np.int8)
