"""Which rollouts, in which order: the address of the browser, read and written.

What an address asks for and cannot have is left out and becomes a ``Problem`` of the filter's field or the
parameter (run, f, q, re, sort): an old or mangled address still shows rollouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.rollouts.browse.fields import OPERATOR_LABELS, Field, field_named
from trainers.contract.problems import Problem

MAX_RUNS, MAX_FILTERS = 50, 20
MAX_TEXT = 500  # characters of words or of a pattern
MAX_CURSOR = 500
LONG_NUMBER = re.compile(r"-?\d*\.\d{5,}(e-?\d+)?")


@dataclass(frozen=True)
class Filter:
    field: str
    operator: str
    value: str

    @classmethod
    def read(cls, text: str) -> Filter | Problem:
        name, _, rest = text.partition(":")
        operator, colon, value = rest.partition(":")
        known = field_named(name)
        if known is None:
            return Problem("f", text, f"there is no field {name!r} to filter by", "choose one from the list")
        if operator not in known.operators or not colon:
            offered = ", ".join(known.operators)
            return Problem(
                name, text, f"{known.label}: {operator!r} is not an operator of this field", f"write {name}:<operator>:<value> with one of {offered}"
            )
        if problem := known.problem(value):
            return Problem(name, value, *problem)
        return cls(name, operator, value)

    @property
    def known(self) -> Field:
        field = field_named(self.field)
        assert field is not None
        return field

    @property
    def label(self) -> str:
        """In words, for a chip: Reward ≥ 0.5. Of the 17 digits of a histogram's edges four are said, of several rollouts their number."""
        if self.known.kind == "ids" and (several := self.value.count(",")):
            return f"{self.known.label} is one of {several + 1}"
        value = f"{float(self.value):.4g}" if LONG_NUMBER.fullmatch(self.value) and self.known.kind == "number" else self.value
        return f"{self.known.label} {OPERATOR_LABELS[self.operator]} {self.known.choices.get(value, value)}"

    def __str__(self) -> str:
        return f"{self.field}:{self.operator}:{self.value}"


@dataclass(frozen=True)
class Selection:
    """``runs`` are run numbers of the team, all of them when empty. Sorted by ``sort`` (a field, "-" for descending; newest first when empty)."""

    runs: tuple[int, ...] = ()
    filters: tuple[Filter, ...] = ()
    words: str = ""
    pattern: str = ""
    sort: str = ""
    tries: bool = False
    after: str = ""
    problems: tuple[Problem, ...] = field(default=(), compare=False)

    @classmethod
    def read(cls, query: QueryDict) -> Selection:
        problems: list[Problem] = []
        cursor = query.get("after", "")
        return cls(
            runs=read_runs(query.getlist("run"), problems),
            filters=read_filters(query.getlist("f"), problems),
            words=read_text("q", query.get("q", ""), problems),
            pattern=read_text("re", query.get("re", ""), problems),
            sort=read_sort(query.get("sort", ""), problems),
            tries=query.get("tries") == "1",
            after=cursor if len(cursor) <= MAX_CURSOR and cursor.isascii() else "",
            problems=tuple(problems),
        )

    def query(self, **changes: Any) -> str:
        """The query string of this selection with changes; defaults are left out, and the cursor unless it is one of the changes."""
        chosen = replace(self, **{"after": "", **changes})
        pairs: list[tuple[str, str]] = [("run", str(number)) for number in chosen.runs]
        pairs += [("f", str(one)) for one in chosen.filters]
        single = {"q": chosen.words, "re": chosen.pattern, "sort": chosen.sort, "tries": "1" if chosen.tries else "", "after": chosen.after}
        return "?" + urlencode(pairs + [(key, value) for key, value in single.items() if value])

    def without(self, name: str) -> Selection:
        """Without the filters of a field."""
        return replace(self, filters=tuple(one for one in self.filters if one.field != name), after="")


def read_runs(asked: Iterable[str], problems: list[Problem]) -> tuple[int, ...]:
    numbers: dict[int, None] = {}
    for text in asked:
        if not text:  # an empty choice of a form
            continue
        if (number := parse_whole_number(text, MAX_INTEGER, 1)) is None:
            problems.append(Problem("run", text, f"{text[:50]!r} is not a run number", "give a number such as 2"))
        elif len(numbers) < MAX_RUNS:
            numbers[number] = None
        else:
            problems.append(Problem("run", text, f"more than {MAX_RUNS} runs were selected", "remove some, or remove all to search every run"))
            break
    return tuple(numbers)


def read_filters(asked: Iterable[str], problems: list[Problem]) -> tuple[Filter, ...]:
    filters: dict[Filter, None] = {}
    for text in asked:
        if not text:
            continue
        if len(filters) == MAX_FILTERS:
            problems.append(Problem("f", text, f"more than {MAX_FILTERS} filters were set", "remove some"))
            break
        one = Filter.read(text)
        if isinstance(one, Problem):
            problems.append(one)
        else:
            filters[one] = None
    return tuple(filters)


def read_text(name: str, text: str, problems: list[Problem]) -> str:
    text = text.strip() if name == "q" else text
    label = "words" if name == "q" else "the regular expression"
    if len(text) > MAX_TEXT:
        problems.append(Problem(name, text, f"{label}: {len(text)} characters are too many", f"give at most {MAX_TEXT}"))
    elif "\0" in text:
        problems.append(Problem(name, text, f"{label}: rollouts contain no null characters", "leave it out"))
    else:
        return text
    return ""


def read_sort(text: str, problems: list[Problem]) -> str:
    known = field_named(text.removeprefix("-"))
    if not text or (known and known.sortable):
        return text
    problems.append(Problem("sort", text, f"rollouts cannot be sorted by {text[:50]!r}", "click the header of a sortable column"))
    return ""
