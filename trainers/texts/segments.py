"""Splitting a completion's text into steps, and telling which token belongs to which. Linear in the text: it is whatever a policy wrote.

A step of the built-in tasks is one equation of the working (``3+3=6``) or, where the policy searches, one search. In other texts it is a line of
the working where that has several, else a sentence.
"""

import re
from collections.abc import Sequence

from trainers.tasks.base import Example, Task
from trainers.tasks.kb import END_SEARCH, SEARCH
from trainers.texts.spans import Span, thought_span

WORD = re.compile(r"\S+")
LINE = re.compile(r"[^\n]+")
SENTENCE = re.compile(r"[^.!?]+[.!?]*")


def find_search_spans(text: str) -> list[Span]:
    """The inside of every closed ``<search>…</search>``."""
    found, start = list[Span](), text.find(SEARCH)
    while start >= 0:
        start += len(SEARCH)
        end = text.find(END_SEARCH, start)
        if end < 0:
            break
        found.append((start, end))
        start = text.find(SEARCH, end)
    return found


def find_step_spans(text: str) -> list[Span]:
    """The steps of a completion, in order; none where it shows no working."""
    if SEARCH in text:
        return find_search_spans(text)
    thought = thought_span(text)
    return [] if thought is None else find_working_steps(text, *thought)


def find_working_steps(text: str, start: int, end: int) -> list[Span]:
    """The steps in the characters [start, end): lines if there are several, else equations, else sentences."""
    lines = find_trimmed_spans(LINE, text, start, end)
    if len(lines) > 1:
        return lines
    equations = [(s, e) for s, e in find_trimmed_spans(WORD, text, start, end) if "=" in text[s:e]]
    return equations or find_trimmed_spans(SENTENCE, text, start, end)


def find_trimmed_spans(pattern: re.Pattern[str], text: str, start: int, end: int) -> list[Span]:
    """What matches, without the space around it; empty matches left out."""
    found = list[Span]()
    for match in pattern.finditer(text, start, end):
        inside = match[0].strip()
        if inside:
            first = match.start() + len(match[0]) - len(match[0].lstrip())
            found.append((first, first + len(inside)))
    return found


def step_texts(text: str) -> list[str]:
    return [text[start:end].strip() for start, end in find_step_spans(text)]


def assign_tokens_to_spans(ends: Sequence[int], spans: Sequence[Span]) -> list[int]:
    """For each token the place of the first span that it adds a character of, -1 for none. ``ends``: characters of the text after each token.

    ``spans`` are in order and do not overlap.
    """
    found, before, place = list[int](), 0, 0
    for after in ends:
        while place < len(spans) and spans[place][1] <= before:
            place += 1
        inside = place < len(spans) and after > before and spans[place][0] < after
        found.append(place if inside else -1)
        before = after
    return found


def gold_steps(task: Task, example: Example) -> list[str] | None:
    """The steps of the task's own solution; None for an example that does not say how its answer is reached."""
    try:
        return step_texts(task.gold(example))
    except LookupError:
        return None
