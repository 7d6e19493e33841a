"""The shape most frameworks' dumps have: a file of JSON lines for each step, written at once or appended to, and written anew after a resume.

The position holds for each file how far it was read, and a fingerprint of that part. A file whose read part changed was written anew: its trainer
resumed before that step, which starts a new attempt, as a resumed run of the lab's own does.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from trainers.contract.events import Metrics, Warned
from trainers.outside.readers.base import BATCH_BYTES, MOST_WARNED, Item, Phase, ReaderOptions, Rewritten, RunReader, SourceError
from trainers.outside.readers.json_lines import RawLine, fingerprint_file, parse_json_row, read_raw_lines
from trainers.outside.readers.rollout_drafts import GroupNumbers, RolloutDraft, build_rollout_event
from trainers.outside.readers.token_lengths import TokenLengths

log = logging.getLogger(__name__)

ROW_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)  # BrokenRow, and what a row of surprising shape brings about
REMEMBERED = 8  # steps whose groups are numbered in memory; an older one is numbered again from its files
EDGE_BYTES = 4096  # of both ends of a file that is written at once, by which one that was written anew is known


@dataclass(frozen=True)
class StepFile:
    """``key``: its name in the position and in warnings, relative to the source."""

    path: Path
    key: str
    step: int
    phase: Phase = "train"


class NotComplete(Exception):
    """The file is still being written, or is broken: it can be read only as a whole."""


class StepFilesReader(RunReader):
    """A format names its files (``list_files``) and turns a row into a draft (``draft_rollout``), or into metrics (``read_metrics``)."""

    trainer = "grpo"

    def __init__(self, path: Path, position: dict[str, Any], options: ReaderOptions) -> None:
        super().__init__(path, position, options)
        self.marks: dict[str, dict[str, Any]] = position.setdefault("files", {})
        self.generation: dict[str, int] = position.setdefault("generation", {"number": 0, "from_step": -1})
        self.lengths = TokenLengths(options.tokenizer) if options.tokenizer else None
        self.seen: dict[str, tuple[int, int]] = {}  # size and time of each file when it was read to its end
        self.numbers: dict[tuple[int, Phase], GroupNumbers] = {}

    @abstractmethod
    def list_files(self) -> list[StepFile]:
        """All of them, in the order in which they are to be read."""

    def draft_rollout(self, row: dict[str, Any], file: StepFile) -> RolloutDraft:
        """Raises BrokenRow."""
        raise NotImplementedError

    def draft_rollouts(self, row: dict[str, Any], file: StepFile) -> list[RolloutDraft]:
        """Of a row that may hold several, or none. Raises BrokenRow."""
        return [self.draft_rollout(row, file)]

    def read_metrics(self, row: dict[str, Any], file: StepFile, time: float) -> Metrics | None:
        """Of a row that is no rollout; None where it is one. Raises BrokenRow."""
        return None

    def read_rows(self, file: StepFile, mark: dict[str, Any], final: bool) -> Iterator[RawLine | tuple[RawLine, dict[str, Any]]]:
        """(line, row) of what comes after the mark; a line alone where it is yet to be parsed. Files that are not JSON lines need their own."""
        yield from read_raw_lines(file.path, mark["offset"], mark["line"], final)

    def fingerprint(self, file: StepFile, offset: int) -> str:
        return fingerprint_file(file.path, offset)

    def read_new_items(self, final: bool) -> Iterator[list[Item]]:
        for file in self.list_files():
            try:
                found = file.path.stat()
            except OSError:
                continue  # gone since it was listed
            state = (found.st_size, found.st_mtime_ns)
            if self.seen.get(file.key) == state and not final:
                continue
            try:
                yield from self.read_file(file, found.st_size, found.st_mtime, final)
            except OSError as error:
                raise SourceError(f"{file.path} cannot be read: {error.strerror or error}") from None
            self.seen[file.key] = state

    def read_file(self, file: StepFile, size: int, changed: float, final: bool) -> Iterator[list[Item]]:
        mark = self.marks.get(file.key)
        items: list[Item] = []
        if mark is not None and mark["offset"] and (size < mark["offset"] or self.fingerprint(file, mark["offset"]) != mark["head"]):
            items += self.begin_again(file, mark)
            mark = None
        if mark is None:
            mark = self.marks[file.key] = {"offset": 0, "line": 0, "head": "", "generation": self.generation["number"]}
        since, broken = mark["offset"], mark.get("broken", 0)
        for found in self.read_whole_rows(file, mark, final, items):
            line = found if isinstance(found, RawLine) else found[0]
            try:
                row = parse_json_row(line) if isinstance(found, RawLine) else found[1]
                measured = self.read_metrics(row, file, changed)
                items += [measured] if measured is not None else self.read_rollouts(row, file, changed)
            except ROW_ERRORS as error:
                broken += 1
                items += warn_of_row(file, line.number, str(error) or type(error).__name__, broken)
            mark |= {"offset": line.end, "line": line.number}
            if broken:
                mark["broken"] = broken
            if line.end - since >= BATCH_BYTES:
                mark["head"], since = self.fingerprint(file, line.end), line.end
                yield items
                items = []
        mark["head"] = self.fingerprint(file, mark["offset"])
        if items:
            yield items

    def read_whole_rows(
        self, file: StepFile, mark: dict[str, Any], final: bool, items: list[Item]
    ) -> Iterator[RawLine | tuple[RawLine, dict[str, Any]]]:
        """``read_rows``; a file that is not complete is looked at again later, or named when nothing more is waited for."""
        try:
            yield from self.read_rows(file, mark, final)
        except NotComplete as error:
            if final:
                items.append(Warned(attempt=1, time=0.0, message=f"{file.key} was left out: {error}"[:1000], step=file.step))

    def begin_again(self, file: StepFile, mark: dict[str, Any]) -> list[Item]:
        """A file was written anew: a new attempt, unless it is one of the steps that the attempt has to do again anyway."""
        self.numbers = {place: numbers for place, numbers in self.numbers.items() if place != (file.step, file.phase)}
        now = self.generation
        if mark["generation"] < now["number"] and file.step > now["from_step"]:
            return []
        now |= {"number": now["number"] + 1, "from_step": max(0, file.step - 1)}
        return [Rewritten(file.step)]

    def read_rollouts(self, row: dict[str, Any], file: StepFile, changed: float) -> list[Item]:
        found: list[Item] = []
        for draft in self.draft_rollouts(row, file):
            group, sample = self.number_groups(file.step, file.phase).number_next(draft.group_key())
            time = changed if draft.time is None else draft.time
            found.append(build_rollout_event(draft, (file.step, file.phase, group, sample), time, self.lengths))
        return found

    def number_groups(self, step: int, phase: Phase) -> GroupNumbers:
        """The numbering of a step; after a restart from the rows that were read before."""
        place = (step, phase)
        if place not in self.numbers:
            while len(self.numbers) >= REMEMBERED:
                del self.numbers[next(iter(self.numbers))]
            self.numbers[place] = numbers = GroupNumbers()
            for file in self.list_files():
                mark = self.marks.get(file.key)
                if mark and mark["offset"] and (file.step, file.phase) == place and mark["generation"] == self.generation["number"]:
                    self.number_rows_again(file, mark["offset"], numbers)
        return self.numbers[place]

    def number_rows_again(self, file: StepFile, offset: int, numbers: GroupNumbers) -> None:
        start = {"offset": 0, "line": 0}
        for found in self.read_rows(file, start, final=True):
            line = found if isinstance(found, RawLine) else found[0]
            if line.end > offset:
                return
            try:
                row = parse_json_row(line) if isinstance(found, RawLine) else found[1]
                if self.read_metrics(row, file, 0.0) is None:
                    for draft in self.draft_rollouts(row, file):
                        numbers.number_next(draft.group_key())
            except ROW_ERRORS:
                continue


class WholeFilesReader(StepFilesReader):
    """Files that are written at once, so that a changed end tells a file that was written anew."""

    def fingerprint(self, file: StepFile, offset: int) -> str:
        with file.path.open("rb") as opened:
            first = opened.read(EDGE_BYTES)
            size = opened.seek(0, 2)
            opened.seek(max(0, size - EDGE_BYTES))
            return blake2b(first + opened.read(), digest_size=8).hexdigest()


def warn_of_row(file: StepFile, number: int, why: str, count: int) -> list[Item]:
    """The warning that names file and line; after MOST_WARNED of a file one last one."""
    if count > MOST_WARNED + 1:
        return []
    message = f"{file.key}, line {number} was left out: {why}" if count <= MOST_WARNED else f"{file.key}: further broken lines are left out unnamed"
    log.warning(message)
    return [Warned(attempt=1, time=0.0, message=message[:1000], step=file.step)]
