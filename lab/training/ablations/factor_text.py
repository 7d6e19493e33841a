"""Levels as people write them: one a line, ``name: path = value; path = value``. A value is JSON, or else text; the name may be left out.

``read = heldout/correct`` in place of changes says which metric of the same runs the level is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from lab.training.ablations.factors import Level
from lab.training.runs.spec_fields import shorten_number

READ = "read"
DECODER = json.JSONDecoder()


class LevelTextError(ValueError):
    """A line that says no level; the message says why."""


def parse_levels(text: str) -> tuple[Level, ...]:
    """The levels of a factor; lines with nothing in them are left out. Raises LevelTextError, which names the line."""
    levels = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            levels.append(parse_level(line.strip()))
        except LevelTextError as error:
            raise LevelTextError(f"line {number}: {error}") from None
    return tuple(levels)


def parse_level(line: str) -> Level:
    """Raises LevelTextError."""
    name, colon, rest = line.partition(":")
    if not colon or "=" in name:
        name, rest = "", line
    changes = list(split_changes(rest.strip()))
    name = " ".join(name.split()) or ", ".join(write_value(value) for _, value in changes)
    if not name:
        raise LevelTextError("a level without changes needs a name")
    paths = [path for path, _ in changes]
    if len(set(paths)) < len(paths):
        raise LevelTextError("a field is given twice")
    if READ not in paths:
        return Level(name, tuple(changes))
    if len(changes) > 1:
        raise LevelTextError(f"a level either reads a metric or changes the runs: leave out {READ}, or the other fields")
    metric = changes[0][1]
    if not isinstance(metric, str) or not metric:
        raise LevelTextError(f"{READ} needs the name of a metric, for example heldout/accuracy")
    return Level(name, metric=metric)


def split_changes(text: str) -> Iterator[tuple[str, Any]]:
    """(path, value) of each ``path = value`` between semicolons; semicolons inside JSON are part of it. Raises LevelTextError."""
    while text:
        path, equals, rest = text.partition("=")
        if not equals or not path.strip() or ";" in path:
            raise LevelTextError("write path = value, with semicolons between several")
        value, text = split_value(rest.strip())
        yield path.strip(), value


def split_value(text: str) -> tuple[Any, str]:
    """(value, what follows its semicolon). Raises LevelTextError for an empty value."""
    try:
        value, end = DECODER.raw_decode(text)
        if not (rest := text[end:].strip()) or rest.startswith(";"):
            return value, rest[1:].strip()
    except (ValueError, RecursionError):
        pass
    word, _, rest = text.partition(";")
    if not word.strip():
        raise LevelTextError("a value is missing behind =")
    return word.strip(), rest.strip()


def write_levels(levels: Sequence[Level]) -> str:
    """The text that ``parse_levels`` reads as these levels."""
    return "\n".join(write_level(level) for level in levels)


def write_level(level: Level) -> str:
    changes = [(READ, level.metric)] if level.metric else level.changes
    return f"{level.name}: {'; '.join(f'{path} = {write_value(value)}' for path, value in changes)}".rstrip()


def write_value(value: Any) -> str:
    """JSON, except for text that reads back as itself."""
    if isinstance(value, str) and value.strip() == value and value and split_plain(value):
        return value
    return json.dumps(shorten_number(value))


def split_plain(value: str) -> bool:
    """Whether text without quotes is read as this very text."""
    try:
        return split_value(value) == (value, "")
    except LevelTextError:
        return False
