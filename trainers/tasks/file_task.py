"""A task that was made in the browser: its prompts, splits and reward functions are one file (``contract/task_files.py``).

The file is read twice: once whole, when its hash is checked and every row is looked at, then row by row where a row is wanted. In memory are the
places of the rows, never their texts.
"""

import hashlib
import json
import random
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import ValidationError

from trainers.contract.events import Message
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import TaskChoice
from trainers.contract.task_files import ALL_ROWS, TaskDefinition, TaskRow
from trainers.rewards.columns import make_column_reward
from trainers.tasks.base import Example, Reward, Split, Task, digest_example

MOST_BYTES = 1 << 30
MOST_LINE = 32 << 20  # bytes
MOST_ROWS = 1_000_000
PROBED = 200  # references that are scored in search of the first one that gets the full reward
FULL = 1.0  # what a reward function gives an answer that nothing is wrong with
Part = TypeVar("Part", TaskDefinition, TaskRow)
FIX = "choose the version again; a version never changes"
DEMONSTRATIONS = "The demonstrations of the file's rows; of rows without one, the reference answer where it gets the full reward."


class FileTask(Task):
    """Rows are drawn in an order that the seed decides. Once all are drawn, training goes through them again in another order; held-out prompts and
    prompts for preference pairs come once.
    """

    def __init__(self, path: Path, sha256: str, definition: TaskDefinition, places: dict[str, "array[int]"], demonstrated: dict[bytes, int]) -> None:
        self.path, self.sha256, self.definition = path, sha256, definition
        self.places, self.written = places, demonstrated
        self.available = {split: len(places[split]) for split in ("train", "heldout")}
        self.name = self.title = definition.name
        total = sum(map(len, places.values()))
        self.summary = f"{total:,} prompts of the file {path.name}."
        self.difficulties = {ALL_ROWS: "All rows of the task."}
        self.rewards = build_columns(definition)
        self.shadows = tuple(column for column in definition.rewards if column.shadow)
        self.demonstrations = DEMONSTRATIONS
        self.golds: dict[tuple[bytes, tuple[str, ...]], str | None] = {}
        self.before = build_preamble(definition)

    @property
    def cache_key(self) -> str:
        return f"file-{self.sha256[:16]}"

    def examples(self, split: Split, count: int, seed: int, difficulty: str) -> list[Example]:
        """Raises ValueError as ``Task.examples`` does."""
        if difficulty not in self.difficulties:
            raise ValueError(f"task {self.name} has no difficulty {difficulty!r}: use {ALL_ROWS}")
        own: Split = "train" if split == "pairs" and not self.places["pairs"] else split
        places = self.places[own]
        if own == "heldout" or split == "pairs":
            count = min(count, len(places))
        order = draw_order(len(places), count, f"{self.sha256}/{split}/{0 if split == 'heldout' else seed}")
        return list(self.read_examples(places[number] for number in order))

    def draw_demonstrations(self, count: int, seed: int, difficulty: str) -> list[Example]:
        places = self.places["train"]
        written = set(self.written.values())
        own = [place for place in places if place in written]
        if own:
            order = draw_order(len(own), count, f"{self.sha256}/demonstrations/{seed}")
            return list(self.read_examples(own[number] for number in order))
        found, missed = list[Example](), 0
        order = draw_order(len(places), len(places), f"{self.sha256}/demonstrations/{seed}")
        for example in self.read_examples(places[number] for number in order):
            if self.find_gold(example) is not None:
                found.append(example)
            elif not found:
                missed += 1
            if len(found) >= count or missed >= PROBED:
                break
        if not found:
            raise LookupError(f"no row of task {self.name!r} has a demonstration, and no reference answer gets the full reward")
        return [found[number % len(found)] for number in range(count)]

    def gold(self, example: Example) -> str:
        found = self.find_gold(example)
        if found is None:
            raise LookupError(f"the row has no demonstration, and its reference does not get the full reward of task {self.name!r}")
        return found

    def find_gold(self, example: Example) -> str | None:
        """The row's demonstration, else its reference where every reward function with a weight gives it the full reward."""
        digest = digest_example(example)
        key = digest, tuple(self.rewards)  # a run may add reward functions of its own
        if key not in self.golds:
            self.golds[key] = self.read_demonstration(digest) or (example.reference if self.is_full_reward(example) else None)
        return self.golds[key]

    def read_demonstration(self, key: bytes) -> str | None:
        if (place := self.written.get(key)) is None:
            return None
        with self.path.open("rb") as file:
            return read_row(file, place).demonstration

    def is_full_reward(self, example: Example) -> bool:
        """Whether the reference alone would do as an answer. An empty one never does."""
        counted = [reward for reward in self.rewards.values() if reward.weight > 0]
        scores = (reward.function(example.reference, example) for reward in counted)
        return bool(example.reference and counted) and all(score is not None and score >= FULL for score in scores)

    def demonstration(self, example: Example, rng: random.Random) -> str:
        return self.gold(example)

    def read_examples(self, places: Iterable[int]) -> Iterator[Example]:
        with self.path.open("rb") as file:
            for place in places:
                yield make_example(self.before, read_row(file, place))


def draw_order(available: int, count: int, seed: str) -> Iterator[int]:
    """``count`` of the numbers below ``available``, each as often as any other, in an order of its own every time round."""
    rng, order = random.Random(seed), list(range(available))
    while count > 0 and available:
        rng.shuffle(order)
        yield from order[:count]
        count -= available


def build_preamble(definition: TaskDefinition) -> list[Message]:
    """What stands before every prompt: the system prompt and the few-shot exchanges."""
    system = [Message("system", definition.system)] if definition.system.strip() else []
    shots = [Message(role, text) for shot in definition.examples for role, text in (("user", shot.user), ("assistant", shot.assistant))]
    return [*system, *shots]


def make_example(before: list[Message], row: TaskRow) -> Example:
    """A row's own system message takes the place of the task's."""
    own = [Message("user", row.prompt)] if isinstance(row.prompt, str) else [Message(one["role"], one["content"]) for one in row.prompt]
    if own[0].role == "system":
        return Example([own[0], *(message for message in before if message.role != "system"), *own[1:]], row.reference, row.data)
    return Example([*before, *own], row.reference, row.data)


def build_columns(definition: TaskDefinition) -> dict[str, Reward]:
    """The reward functions by their columns' names; shadows are apart. Raises SpecError for one that cannot be built."""
    columns = enumerate(definition.rewards)
    return {column.name: make_column_reward(column, f"task.file.rewards.{number}") for number, column in columns if not column.shadow}


def read_row(file: IO[bytes], place: int) -> TaskRow:
    file.seek(place)
    return TaskRow.model_validate(json.loads(file.readline(MOST_LINE)))


def load_file_task(choice: TaskChoice) -> FileTask:
    """Raises SpecError for a file that is missing, was changed, is no task, or is another task than the spec says."""
    assert choice.file is not None
    task = read_file_task(Path(choice.file.path), choice.file.sha256)
    if task.name != choice.name:
        raise SpecError([Problem("task.name", choice.name, f"the file holds the task {task.name}", f"write {task.name}")])
    return task


@lru_cache(maxsize=4)
def read_file_task(path: Path, sha256: str) -> FileTask:
    """The task in a file. Raises SpecError."""
    whole, places, demonstrated = hashlib.sha256(), {split: array("q") for split in ("train", "heldout", "pairs")}, dict[bytes, int]()
    definition: TaskDefinition | None = None
    before: list[Message] = []
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            problem = f"{path} is larger than {MOST_BYTES >> 30} GiB" if path.is_file() else f"there is no file {path}"
            raise SpecError([Problem("task.file.path", str(path), problem, "choose a version whose file is there")])
        with path.open("rb") as file:
            for number, place, line in read_lines(file, whole.update):
                if definition is None:
                    definition = parse_line(TaskDefinition, line, path, number)
                    before = build_preamble(definition)
                    continue
                row = parse_line(TaskRow, line, path, number)
                if not row.prompt or (isinstance(row.prompt, list) and any(set(one) != {"role", "content"} for one in row.prompt)):
                    raise make_file_error(path, number, "has no prompt that can be read")
                places[row.split].append(place)
                if row.demonstration:
                    demonstrated[digest_example(make_example(before, row))] = place
    except OSError as error:
        raise SpecError([Problem("task.file.path", str(path), f"cannot be read: {error.strerror or error}", "check its permissions")]) from None
    if whole.hexdigest() != sha256:
        message = f"the file has changed since the version was made: its SHA-256 is now {whole.hexdigest()}"
        raise SpecError([Problem("task.file.sha256", sha256, message, FIX)])
    if definition is None or not places["train"]:
        raise make_file_error(path, 1, "has no task and no rows to train on after it")
    return FileTask(path, sha256, definition, places, demonstrated)


def read_lines(file: IO[bytes], update: Callable[[bytes], Any]) -> Iterator[tuple[int, int, bytes]]:
    """(number, place, line) of each line, told to ``update`` whole. Raises SpecError for one that is too long."""
    number = place = 0
    while line := file.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE or number > MOST_ROWS + 1:
            message = f"is longer than {MOST_LINE >> 20} MiB" if len(line) > MOST_LINE else f"is past the {MOST_ROWS:,} rows a task may have"
            raise make_file_error(Path(str(file.name)), number, message)
        update(line)
        yield number, place, line
        place += len(line)


def parse_line(kind: type[Part], line: bytes, path: Path, number: int) -> Part:
    try:
        return kind.model_validate(json.loads(line))
    except (ValidationError, ValueError, RecursionError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise make_file_error(path, number, f"is not a {'row' if kind is TaskRow else 'definition'} of a task: {what}") from None


def make_file_error(path: Path, number: int, message: str) -> SpecError:
    return SpecError([Problem("task.file.path", str(path), f"line {number} {message}", FIX)])
