"""What stands in a fenced block of a report: ``chart``, ``table``, ``runs``, ``rollout`` and ``group``, a setting a line.

::

    ```chart
    runs: 12, 15
    metric: reward
    x: step
    smooth: 0.6
    ```

Read strictly: a setting that is not known, given twice or of a wrong kind is a problem with its line, and the block is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from lab.lib.numbers import MAX_ID, MAX_INTEGER, parse_whole_number
from lab.rollouts.comparison.compared_runs import MOST as MOST_RUNS
from lab.rollouts.comparison.series import AXES
from lab.rollouts.trajectories.selection import TOKEN_VIEWS
from lab.rollouts.trajectories.steps import PHASE_LABELS
from lab.training.runs.columns import CONFIG, FIXED, KNOWN, find_column, find_order
from lab.training.runs.listing import GROUPS, LONGEST_SEARCH, SORTS
from lab.training.runs.models import TAG_LENGTH, Status

MOST_COLUMNS = 12
MOST_FOUND, USUAL_FOUND = 20, 10  # runs that a block of found runs lists
LONGEST_VALUE = 500  # characters of a setting
LONGEST_METRIC, LONGEST_TITLE = 200, 120
MOST_SMOOTHING = 0.999
USUAL_COLUMNS = ("name", "status", "recipe", "reward_tail", "heldout", "heldout_best", "step")
DRAWN = {"curve", "age"}  # columns of the list of runs that are no text
OVERLAYS = tuple(name for name in TOKEN_VIEWS if name)


@dataclass(frozen=True)
class BlockProblem:
    """``line`` counts from 1 in the report's Markdown."""

    line: int
    words: str

    def __str__(self) -> str:
        return f"Line {self.line}: {self.words}"


class SettingError(Exception):
    """Why a value cannot be, as the end of a sentence about it or a sentence of its own."""


@dataclass(frozen=True)
class ChartBlock:
    """``smooth``: weight of the moving average; None smooths lines that are noisy, as the comparison does."""

    runs: tuple[int, ...]
    metric: str
    x: str = "step"
    smooth: float | None = None
    log: bool = False
    title: str = ""


@dataclass(frozen=True)
class TableBlock:
    runs: tuple[int, ...]
    columns: tuple[str, ...] = USUAL_COLUMNS


@dataclass(frozen=True)
class RunsBlock:
    """Runs that are found by what is given, as the list of runs finds them."""

    search: str = ""
    tag: str = ""
    status: str = ""
    project: str = ""
    sort: str = "-number"
    limit: int = USUAL_FOUND
    columns: tuple[str, ...] = USUAL_COLUMNS


@dataclass(frozen=True)
class RolloutBlock:
    id: int
    overlay: str = ""


@dataclass(frozen=True)
class GroupBlock:
    run: int
    step: int
    group: int
    phase: str = "train"


Block = ChartBlock | TableBlock | RunsBlock | RolloutBlock | GroupBlock
Read = Callable[[str], Any]


def read_run_numbers(text: str) -> tuple[int, ...]:
    words = [word.strip().removeprefix("#") for word in text.split(",")]
    numbers = [parse_whole_number(word, MAX_INTEGER, 1) for word in words]
    wrong = [word for word, number in zip(words, numbers, strict=True) if number is None]
    if wrong:
        raise SettingError(f"“{wrong[0][:40]}” is no run number. Write numbers with commas between them, such as 12, 15.")
    if len(set(numbers)) > MOST_RUNS:
        raise SettingError(f"a block shows at most {MOST_RUNS} runs; these are {len(set(numbers))}.")
    return tuple(dict.fromkeys(number for number in numbers if number is not None))


def read_number(most: int, least: int) -> Read:
    def read(text: str) -> int:
        number = parse_whole_number(text.removeprefix("#"), most, least)
        if number is None:
            raise SettingError(f"“{text[:40]}” is not a whole number{f' from {least} to {most}' if most < MAX_INTEGER else ''}.")
        return number

    return read


def read_choice(*choices: str) -> Read:
    def read(text: str) -> str:
        if text not in choices:
            raise SettingError(f"“{text[:40]}” is not one of {', '.join(choices)}.")
        return text

    return read


def read_words(most: int) -> Read:
    def read(text: str) -> str:
        if len(text) > most:
            raise SettingError(f"it has {len(text)} characters; use at most {most}.")
        return text

    return read


def read_smoothing(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if not 0 <= weight <= MOST_SMOOTHING:
        raise SettingError(f"“{text[:40]}” is no weight. Use 0 (not smoothed) to {MOST_SMOOTHING}, or auto.")
    return weight


def read_switch(text: str) -> bool:
    return bool(read_choice("yes", "no")(text) == "yes")


def read_metric(text: str) -> str:
    if text.startswith("@"):
        raise SettingError(f"unknown metric “{text[:40]}”.")
    return str(read_words(LONGEST_METRIC)(text))


def read_columns(text: str) -> tuple[str, ...]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if len(names) > MOST_COLUMNS:
        raise SettingError(f"a table has at most {MOST_COLUMNS} columns; these are {len(names)}.")
    for name in names:
        if name in DRAWN or find_column(name) is None:
            known = ", ".join(name for name in KNOWN if name not in DRAWN)
            raise SettingError(f"unknown column “{name[:60]}”. Columns are {known}, and settings such as {CONFIG}training.learning_rate.")
    return (FIXED, *(name for name in names if name != FIXED))


def read_sort(text: str) -> str:
    key = text.removeprefix("-")
    if key not in SORTS and find_order(key) is None:
        raise SettingError(f"runs cannot be sorted by “{text[:40]}”. Use a column, with a minus for the largest first, such as -reward.")
    return text


READERS: dict[str, tuple[type[Any], dict[str, Read]]] = {
    "chart": (
        ChartBlock,
        {
            "runs": read_run_numbers,
            "metric": read_metric,
            "x": read_choice(*AXES),
            "smooth": read_smoothing,
            "log": read_switch,
            "title": read_words(LONGEST_TITLE),
        },
    ),
    "table": (TableBlock, {"runs": read_run_numbers, "columns": read_columns}),
    "runs": (
        RunsBlock,
        {
            "search": read_words(LONGEST_SEARCH),
            "tag": read_words(TAG_LENGTH),
            "status": read_choice(*GROUPS, *Status.values),
            "project": read_words(LONGEST_TITLE),
            "sort": read_sort,
            "limit": read_number(MOST_FOUND, 1),
            "columns": read_columns,
        },
    ),
    "rollout": (RolloutBlock, {"id": read_number(MAX_ID, 1), "overlay": read_choice(*OVERLAYS)}),
    "group": (
        GroupBlock,
        {
            "run": read_number(MAX_INTEGER, 1),
            "step": read_number(MAX_INTEGER, 0),
            "group": read_number(MAX_INTEGER, 0),
            "phase": read_choice(*PHASE_LABELS),
        },
    ),
}
KINDS = tuple(READERS)


@dataclass(frozen=True)
class ParsedBlock:
    """``block`` is None where there are problems. ``lines``: setting → its line, where it was given."""

    kind: str
    line: int
    block: Block | None
    problems: list[BlockProblem] = field(default_factory=list)
    lines: Mapping[str, int] = field(default_factory=dict)

    def line_of(self, name: str) -> int:
        return self.lines.get(name, self.line)


def parse_block(kind: str, content: str, line: int) -> ParsedBlock:
    """``content`` is what stands between the fences, ``line`` where the opening fence is."""
    made, readers = READERS[kind]
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    problems: list[BlockProblem] = []
    for number, written in enumerate(content.split("\n"), line + 1):
        name, colon, text = (part.strip() for part in written.partition(":"))
        if kind == "rollout" and not colon and name and "id" not in lines:
            name, colon, text = "id", ":", name  # the id alone
        if not name and not text:
            continue
        lines.setdefault(name, number)
        if found := read_setting(kind, readers, name, text if colon else None, name in values, values):
            problems.append(BlockProblem(number, found))
    required = [one.name for one in fields(made) if one.default is MISSING]
    for name in required:
        if name not in lines:
            problems.append(BlockProblem(line, f"a {kind} block needs a line “{name}: …”."))
    return ParsedBlock(kind, line, None if problems else made(**values), problems, lines)


def read_setting(kind: str, readers: Mapping[str, Read], name: str, text: str | None, again: bool, values: dict[str, Any]) -> str:
    """Puts the value into ``values``; what is wrong with it, or nothing."""
    if text is None:
        return f"“{name[:60]}” is no setting. Write a name, a colon and a value, such as {next(iter(readers))}: …"
    if name not in readers:
        return f"a {kind} block has no setting “{name[:60]}”. It has {', '.join(readers)}."
    if again:
        return f"“{name}” stands here twice."
    if not text:
        return f"“{name}” has no value."
    try:
        values[name] = readers[name](read_words(LONGEST_VALUE)(text))
    except SettingError as error:
        return f"{name}: {error}"
    return ""


def write_block(kind: str, settings: Mapping[str, Any]) -> str:
    """The block as Markdown, of the settings that are given."""
    lines = [f"{name}: {' '.join(str(value).split())}" for name, value in settings.items() if str(value).strip()]
    return "\n".join([f"```{kind}", *lines, "```"])
