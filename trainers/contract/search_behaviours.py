"""Four good habits of a search episode, told by rules from its text, after arXiv 2510.06534: information is verified, sources are weighed, the search
adapts to results beside the point, and errors are recovered from.

An episode is searches with their results and an answer. A result is an error, is beside the point (a word of its query does not occur in it), or is
useful. Where a result names a trusted and a doubtful source, each is a mark with the word it says behind it: ``record Rome, rumour Oslo``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

WORD = re.compile(r"[^\W_]+")
SEARCH = re.compile(r"<search>([^<]*)</search>\s*(?:<information>([^<]*)</information>)?")
ANSWER = re.compile(r"<answer>([^<]*)</answer>\s*$")
Behaviour = Literal["verifies", "weighs", "adapts", "recovers"]
BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)
Arm = Literal["behaviours", "behaviours-right", "behaviours-wrong", "right", "random"]
Kind = Literal["error", "beside", "useful"]


@dataclass(frozen=True)
class SearchTurn:
    query: str
    result: str


@dataclass(frozen=True)
class SearchEpisode:
    turns: tuple[SearchTurn, ...]
    answer: str | None


@dataclass(frozen=True)
class SourceMarks:
    """``errors``: words that the result of a failed search begins with. ``trusted`` and ``doubtful``: a source, before what it says."""

    errors: tuple[str, ...] = ("failed", "error", "nothing")
    trusted: str = "record"
    doubtful: str = "rumour"


USUAL = SourceMarks()


def read_search_episode(text: str) -> SearchEpisode:
    """The searches of an episode's text with their results, and the answer that it ends with. Linear in the text."""
    turns = tuple(SearchTurn(query.strip(), (result or "").strip()) for query, result in SEARCH.findall(text))
    found = ANSWER.search(text)
    return SearchEpisode(turns, found[1].strip() if found else None)


def tag_behaviours(episode: SearchEpisode, marks: SourceMarks = USUAL) -> dict[Behaviour, bool | None]:
    """Which habits the episode shows; None where it had no occasion to.

    ``verifies``: what a useful result has told is asked again. ``weighs``: where the last result with both sources has them at odds, the answer is
    what the trusted one says. ``adapts``: after a result beside the point it searches on with another query. ``recovers``: after an error it searches
    on.
    """
    kinds = [classify_result(turn, marks) for turn in episode.turns]
    return {
        "verifies": asks_again(episode, kinds),
        "weighs": weighs_sources(episode, kinds, marks),
        "adapts": goes_on_after(episode, kinds, "beside"),
        "recovers": goes_on_after(episode, kinds, "error"),
    }


def asks_again(episode: SearchEpisode, kinds: Sequence[Kind]) -> bool | None:
    """Whether a query has the words of an earlier one with a useful result; None where no result is useful."""
    told = list[set[str]]()
    for turn, kind in zip(episode.turns, kinds, strict=True):
        words = set(split_query(turn.query))
        if words in told:
            return True
        told += [words] if kind == "useful" else []
    return False if told else None


def classify_result(turn: SearchTurn, marks: SourceMarks = USUAL) -> Kind:
    said = split_query(turn.result)
    if not said or said[0] in marks.errors:
        return "error"
    return "useful" if set(split_query(turn.query)) <= set(said) else "beside"


def goes_on_after(episode: SearchEpisode, kinds: Sequence[Kind], kind: Kind) -> bool | None:
    """Whether each result of this kind is followed by a search, and after one beside the point by one in other words; None where there is none."""
    places = [place for place, one in enumerate(kinds) if one == kind]
    if not places:
        return None
    following = [(episode.turns[place].query, episode.turns[place + 1].query if place + 1 < len(kinds) else None) for place in places]
    return all(after is not None and (kind == "error" or after != before) for before, after in following)


def weighs_sources(episode: SearchEpisode, kinds: Sequence[Kind], marks: SourceMarks) -> bool | None:
    for turn, kind in zip(reversed(episode.turns), reversed(kinds), strict=True):
        trusted, doubtful = read_source(turn.result, marks.trusted), read_source(turn.result, marks.doubtful)
        if kind == "useful" and trusted and doubtful and trusted != doubtful:
            return episode.answer is not None and episode.answer.lower() == trusted
    return None


def read_source(result: str, mark: str) -> str:
    """The word behind a source's mark, in lower case; empty where it is not named."""
    words = split_query(result)
    return words[words.index(mark) + 1] if mark in words[:-1] else ""


def split_query(text: str) -> list[str]:
    return WORD.findall(text.lower())


def shows_all(tags: dict[Behaviour, bool | None]) -> bool:
    return all(tags[name] is True for name in BEHAVIOURS)


def belongs_to_arm(arm: Arm, tags: dict[Behaviour, bool | None], is_right: bool | None) -> bool:
    """Whether an episode is among those that an arm trains on; one of which nobody says whether it is right is in no arm that asks for it."""
    wanted = {"behaviours-right": True, "right": True, "behaviours-wrong": False}.get(arm, is_right)
    return is_right is wanted and (shows_all(tags) or not arm.startswith("behaviours"))
