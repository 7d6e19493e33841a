"""Which keys a person labels with. They go with the person, from one browser to the next, for each kind of queue."""

from __future__ import annotations

from typing import Any

from lab.labelling.labels.answers import AnswerError
from lab.labelling.labels.models import KeyMap, Kind
from lab.lib.refusals import Problem
from lab.teams.accounts.models import User

FRAME = {"skip": "s", "undo": "u", "guidelines": "i", "plain": "p", "spaces": "v", "thinking": "f", "lock": "l"}
FIELDS = {"rationale": "r", "correct": "c", "rubric": "o"}
STRENGTH = {"strength-1": "q", "strength-2": "w", "strength-3": "e"}
CHOICES = {"first": "1", "second": "2", "tie": "0", "diff": "d"}
MOVES = {"next": "j", "before": "k", "up": "K", "down": "J", "tie": "=", "untie": "-", "best": "+", "unrank": "0"}
SCROLLS = {"scroll-on": "]", "scroll-back": "[", "diff": "w"}
RANKING = {f"rank-{name}": key for name, key in {**MOVES, **SCROLLS, **{str(tier): str(tier) for tier in range(1, 10)}}.items()}
VERDICTS = {"good": "1", "bad": "2", "neutral": "3"}
MARKS = {"mark-good": "g", "mark-bad": "x", "mark-neutral": "n", "mark-clear": "0", "steps-rest": "m", "step-next": "j", "step-before": "k"}

# kind → {action: its usual key}: what the page of a queue of that kind can ask for. The scripts name the same.
ACTIONS: dict[str, dict[str, str]] = {
    Kind.PAIR: {**FRAME, **FIELDS, **STRENGTH, **CHOICES, "bad": "b"},
    Kind.CLEARER: {**FRAME, **FIELDS, **STRENGTH, **CHOICES},
    Kind.RANKING: {**FRAME, **FIELDS, **RANKING},
    Kind.SINGLE: {**FRAME, **FIELDS, **VERDICTS, **MARKS, "span-enter": "t", "entropy": "y"},
}
# What more a key always does, in queues of a kind.
ALSO: dict[str, dict[str, str]] = {
    Kind.PAIR: {"=": "tie"},
    Kind.CLEARER: {"=": "tie"},
    Kind.RANKING: {",": "rank-up", ".": "rank-down", "d": "rank-diff"},
    Kind.SINGLE: {},
}
# The number row answers a question of the rubric while it has the focus. The verdict may have these keys, too, for then it waits; what acts
# everywhere may not: it would not act there.
ROW = "1234567890-="
EVERYWHERE = {*FRAME, *FIELDS, "diff", "rank-diff", "rank-scroll-on", "rank-scroll-back", "span-enter", "entropy"}
RESERVED = {"?": "opens the list of keys", " ": "presses the button that has the focus"}


def load_key_map(user: User, kind: str) -> dict[str, str]:
    """Only what differs from the usual keys."""
    stored = KeyMap.objects.filter(user=user, kind=kind).first()
    return {action: key for action, key in stored.keys.items() if action in ACTIONS[kind]} if stored else {}


def save_key_map(user: User, kind: str, chosen: dict[str, Any]) -> dict[str, str]:
    """Raises AnswerError, its problems named by action."""
    problems = find_key_problems(kind, chosen)
    if problems:
        raise AnswerError(problems)
    usual = ACTIONS[kind]
    keys = {action: key for action, key in chosen.items() if key != usual[action]}
    KeyMap.objects.update_or_create(user=user, kind=kind, defaults={"keys": keys})
    return keys


def find_key_problems(kind: str, chosen: dict[str, Any]) -> list[Problem]:
    usual = ACTIONS[kind]
    problems = [Problem(action[:50], "There is no such action.", "Reload the page.") for action in chosen if action not in usual]
    holders: dict[str, str] = {}
    for action, key in {**usual, **{action: key for action, key in chosen.items() if action in usual}}.items():
        if not isinstance(key, str) or len(key) != 1 or not key.isprintable():
            problems.append(Problem(action, "Not a single character.", "Press a single key."))
        elif key in RESERVED:
            problems.append(Problem(action, f"This key {RESERVED[key]}.", "Choose another."))
        elif key in ALSO[kind]:
            problems.append(Problem(action, f"This key always means “{ALSO[kind][key]}” in queues of this kind.", "Choose another."))
        elif action in EVERYWHERE and key in ROW:
            problems.append(
                Problem(action, "This key answers the extra questions of a queue.", "Choose a letter; 0–9, - and = are for the verdict only.")
            )
        elif key in holders:
            other = holders[key]
            message = f"This key already means “{other if action in chosen else action}” in queues of this kind."
            problems.append(Problem(action if action in chosen else other, message, "Choose another key, or change that one."))
        else:
            holders[key] = action
    return problems
