"""What every reader of another framework's files shares: what a format says of itself, what a reader gives, and what it does with a broken row."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainers.contract.events import AnyEvent

Phase = Literal["train", "heldout"]
HELD_OUT = ("val", "eval", "test", "heldout")  # a folder with one of these in its name holds held-out rollouts
LINE_BYTES = 64 << 20  # of one row; a longer one is left out
BATCH_BYTES = 4 << 20  # read between two times that the place is noted
MOST_WARNED = 20  # broken rows of one file that are named one by one
LARGEST_STEP = 2**31 - 1


class SourceError(Exception):
    """The source cannot be read at all; the message says what was looked for and what to do."""


class BrokenRow(ValueError):
    """This row is no rollout of the format; the rest goes on."""


@dataclass(frozen=True)
class Rewritten:
    """The source wrote ``step`` anew: its trainer was started again from a checkpoint before it. What follows is a new attempt."""

    step: int


Item = AnyEvent | Rewritten


@dataclass
class SourceOpening:
    """How a run is introduced: what the source says of it. Empty and 0: it does not say."""

    name: str = ""
    policy: str = ""
    task: str = ""
    total_steps: int = 0
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReaderOptions:
    """``tokenizer``: a folder with ``tokenizer.json``, that file, or a model in the hub's cache; without one, tokens are not shown.
    ``run``: which run of a store that holds several (W&B, Trackio, MLflow). ``weights``: of the reward functions, where a source does not say."""

    tokenizer: str = ""
    run: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)


class RunReader(ABC):
    """Reads a source on from ``position``, which is JSON and at all times the place after everything that was yielded.

    Events have attempt 1; who writes the spool numbers attempts.
    """

    format = ""  # its name; whoever opens the reader says it
    trainer = "other"  # what kind of training the format stands for, as the lab calls it
    brings_metrics = False  # else the run's curves are worked out from its rollouts
    outcome: Literal["finished", "stopped", "failed"] | None = None  # once the source itself says that the run has ended

    def __init__(self, path: Path, position: dict[str, Any], options: ReaderOptions) -> None:
        self.path, self.position, self.options = path, position, options

    def describe_opening(self) -> SourceOpening:
        return SourceOpening()

    @abstractmethod
    def read_new_items(self, final: bool) -> Iterator[list[Item]]:
        """What has come since. ``final``: nothing more is waited for, so a last line without its newline counts. Raises SourceError."""


@dataclass(frozen=True)
class SourceFormat:
    """A format that ``send --from`` reads. ``looks_for``: files by which it is recognized. ``example``: a line or a name, for docs/formats.md."""

    name: str
    title: str
    looks_for: str
    example: str
    recognize: Callable[[Path], bool]
    open: Callable[[Path, dict[str, Any], ReaderOptions], RunReader]
    gives: str  # what arrives, in words


def list_folder(folder: Path) -> list[Path]:
    """The entries of a folder by name; none where it is gone or cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def name_phase(name: str) -> Phase:
    """Of a folder or file by its name."""
    return "heldout" if any(word in name.lower() for word in HELD_OUT) else "train"


def read_number(row: Mapping[str, Any], name: str) -> float | None:
    """None where it is missing, null or not finite. Raises BrokenRow for what is no number."""
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, bool | int | float):
        raise BrokenRow(f"{name} is not a number: {str(value)[:60]!r}")
    return to_finite_float(value)


def to_finite_float(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def read_text(row: Mapping[str, Any], name: str) -> str:
    """Raises BrokenRow where it is missing or no text."""
    value = row.get(name)
    if not isinstance(value, str):
        raise BrokenRow(f"{name} is missing" if value is None else f"{name} is not a text")
    return value


def read_step(value: Any, name: str = "step") -> int:
    """Raises BrokenRow."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_STEP:
        raise BrokenRow(f"{name} is not a step: {str(value)[:60]!r}")
    return value


def read_number_list(row: Mapping[str, Any], name: str, length: int) -> list[float | None] | None:
    """A list of ``length`` numbers or nulls; None where there is none. Raises BrokenRow for anything else."""
    value = row.get(name)
    if value is None or (isinstance(value, Sequence) and not len(value)):
        return None
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != length:
        raise BrokenRow(f"{name} is not a list of {length} numbers")
    if not all(one is None or isinstance(one, bool | int | float) for one in value):
        raise BrokenRow(f"{name} holds something that is no number")
    return [None if one is None else to_finite_float(one) for one in value]
