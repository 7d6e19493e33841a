"""A grammar of small stories: who is where, who has the thing, and which next sentence could happen.

A plot is JSON: ``{"thing": "lamp", "at": {"Mia": "mill", "Leo": "cave"}, "holder": "", "place": "cave"}``; ``place`` counts while nobody holds it.
A goal is ``["has", "Mia"]`` or ``["is at", "mill"]``.
"""

from collections import deque
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

PLACES = ("mill", "cave", "inn", "tower")
THINGS = ("lamp", "ring", "map", "harp")
VERBS = {"go": ("goes", "walks"), "take": ("takes", "grabs"), "give": ("gives", "hands")}  # two words each: one of them may be forbidden
WORDS = tuple(word for words in VERBS.values() for word in words)
MOODS = ("sings", "laughs", "cries", "sighs", "hides", "screams")  # always possible, and change nothing

Plot = dict[str, Any]
Event = tuple[str, str, str]  # who, kind, to what or whom; of a mood, its word


class ImpossibleEventError(ValueError):
    """A sentence of the grammar that could not happen; the message says why."""


def parse_sentence(plot: Plot, sentence: str) -> Event | None:
    """The event that a sentence tells; None for what is no sentence about this plot's people and thing."""
    who, _, rest = sentence.partition(" ")
    if who not in plot["at"]:
        return None
    if rest in MOODS:
        return who, "mood", rest
    word, _, what = rest.partition(" ")
    for place in PLACES:
        if word in VERBS["go"] and what == f"to the {place}":
            return who, "go", place
    if word in VERBS["take"] and what == f"the {plot['thing']}":
        return who, "take", plot["thing"]
    for other in plot["at"]:
        if word in VERBS["give"] and other != who and what == f"the {plot['thing']} to {other}":
            return who, "give", other
    return None


def write_sentence(plot: Plot, event: Event, forbidden: str = "") -> str:
    """With the first word there is for the event that is not forbidden."""
    who, kind, what = event
    if kind == "mood":
        return f"{who} {what}"
    word = next(word for word in VERBS[kind] if word != forbidden)
    ends = {"go": f"to the {what}", "take": f"the {plot['thing']}", "give": f"the {plot['thing']} to {what}"}
    return f"{who} {word} {ends[kind]}"


def apply_event(plot: Plot, event: Event) -> Plot:
    """The plot after the event. Raises ImpossibleEventError."""
    who, kind, what = event
    at = plot["at"]
    if kind == "go":
        if at[who] == what:
            raise ImpossibleEventError(f"{who} is at the {what} already")
        return {**plot, "at": {**at, who: what}}
    if kind == "take":
        if plot["holder"]:
            raise ImpossibleEventError(f"{plot['holder']} has the {what}")
        if plot["place"] != at[who]:
            raise ImpossibleEventError(f"the {what} is not where {who} is")
        return {**plot, "holder": who, "place": ""}
    if kind == "give":
        if plot["holder"] != who:
            raise ImpossibleEventError(f"{who} does not have the {plot['thing']}")
        if at[who] != at[what]:
            raise ImpossibleEventError(f"{what} is not where {who} is")
        return {**plot, "holder": what}
    return plot


def is_reached(plot: Plot, goal: list[str]) -> bool:
    kind, what = goal
    return bool(plot["holder"] == what if kind == "has" else (plot["place"] or plot["at"].get(plot["holder"])) == what)


def list_events(plot: Plot, places: Collection[str]) -> Iterator[Event]:
    """Those that could happen and change something."""
    for who in plot["at"]:
        moves = [(who, "go", place) for place in places]
        for event in (*moves, (who, "take", plot["thing"]), *((who, "give", other) for other in plot["at"] if other != who)):
            try:
                apply_event(plot, event)
            except ImpossibleEventError:
                continue
            yield event


def find_events(plot: Plot, goal: list[str], most: int) -> list[Event] | None:
    """The shortest way to the goal, by breadth first; None where there is none of ``most`` events or fewer."""
    found = find_frozen_events(freeze_plot(plot), tuple(goal), most)
    return None if found is None else list(found)


@lru_cache(maxsize=4096)
def find_frozen_events(frozen: tuple[Any, ...], goal: tuple[str, ...], most: int) -> tuple[Event, ...] | None:
    thing, at, holder, place = frozen
    plot: Plot = {"thing": thing, "at": dict(at), "holder": holder, "place": place}
    places = dict.fromkeys((*plot["at"].values(), *([place] if place else []), *([goal[1]] if goal[0] == "is at" else [])))
    waiting, seen = deque[tuple[Plot, tuple[Event, ...]]]([(plot, ())]), {frozen}
    while waiting:
        plot, events = waiting.popleft()
        if is_reached(plot, list(goal)):
            return events
        if len(events) >= most:
            continue
        for event in list_events(plot, places):
            after = apply_event(plot, event)
            if freeze_plot(after) not in seen:
                seen.add(freeze_plot(after))
                waiting.append((after, (*events, event)))
    return None


def freeze_plot(plot: Plot) -> tuple[Any, ...]:
    return plot["thing"], tuple(plot["at"].items()), plot["holder"], plot["place"]
