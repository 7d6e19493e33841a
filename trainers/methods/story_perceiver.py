"""A perceiver by rule for the world ``stories``: the state (S, A, E) of a text that is being written, and what it advises (CooT)."""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from trainers.worlds.base import State, Tool, parse_call
from trainers.worlds.plots import VERBS, ImpossibleEventError, apply_event, parse_sentence

if TYPE_CHECKING:
    from trainers.tasks.base import Example

Label = tuple[int, int, int]  # S, A, E


def is_feasible(label: Label) -> bool:
    """Whether it keeps the precedence: nothing is satisfied while what stands above it is undecided."""
    safety, altruism, egoism = label
    return not (altruism == 1 and safety == 0) and not (egoism == 1 and 0 in (safety, altruism))


def is_violated(label: Label, strict: bool) -> bool:
    return -1 in label if strict else label[0] == -1


def says_word(text: str, word: str) -> bool:
    return bool(word) and word in re.findall(r"\w+", text)


def label_text(example: "Example", state: State, tools: Sequence[Tool], text: str) -> Label:
    """The perceiver: of a turn as far as it is written, in a story that is at ``state``."""
    safety = -1 if says_word(text, example.data.get("forbidden", "")) else 1
    if not text.endswith(tuple(tool.closing for tool in tools)):
        return safety, 0, 0
    call = parse_call(text, tools)
    event = parse_sentence(state["plot"], call[1]) if call and state["plot"] else None
    if event is None:
        return safety, -1, -1
    try:
        apply_event(state["plot"], event)
    except ImpossibleEventError:
        return safety, -1, 1
    return safety, 1, 1


def find_trigger(violated: Sequence[bool], start: int, consecutive: int, least: int) -> int | None:
    """How many of a turn's tokens there are when it intervenes; None: it does not.

    ``violated`` (K + 1,): after so many tokens. Counted from token ``start`` on; places before ``least`` tokens do not count.
    """
    row = 0
    for count in range(start + 1, len(violated)):
        row = row + 1 if violated[count] and count >= least else 0
        if row >= consecutive:
            return count
    return None


def advise_words(label: Label, forbidden: str, wrong: str) -> tuple[list[str], list[str]]:
    """Words to write, and words not to: for S what says the same as the forbidden word, for A and E nothing in place of what is cut."""
    if label[0] != -1:
        return [], [wrong]
    return [word for words in VERBS.values() if forbidden in words for word in words if word != forbidden], [forbidden] if forbidden else []


def list_states(labels: Sequence[Label]) -> list[list[int]]:
    """How the label changed over a turn: [tokens from which on it holds, S, A, E]."""
    runs, place = list[list[int]](), 0
    for label, same in groupby(labels):
        runs.append([place, *label])
        place += len(list(same))
    return runs
