"""W&B's offline runs: ``wandb/offline-run-<time>-<id>/run-<id>.wandb``, which every run of W&B writes, also one that is online.

Read from wandb/wandb, commit b6e29505884ea60c79ca12091f1f75bd39d2f955, ``wandb/proto/wandb_internal.proto``: a record holds history (2), config (5),
run (17) or exit (18). History has items (1) with key (1) or nested_key (2) and value_json (16), and the logger's step (2). Tables and pictures lie
in files beside it and are not read. Steps are those of the trainer where it logs them (``train/global_step``), else the logger's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainers.contract.events import Warned
from trainers.outside.readers.base import BATCH_BYTES, Item, ReaderOptions, RunReader, SourceError, SourceFormat, SourceOpening, list_folder
from trainers.outside.readers.metric_rows import StepMerger, find_logged_step, read_logged_numbers
from trainers.outside.readers.protobuf_wire import WireError, find_messages, read_fields, to_signed
from trainers.outside.readers.record_framing import FramingError, read_wandb_records
from trainers.outside.readers.source_config import pick_plain_settings
from trainers.outside.readers.tensorboard import choose_run, warn_of_record

HISTORY, CONFIG, RUN, EXIT = 2, 5, 17, 18
OPENING_RECORDS = 50  # among which the run introduces itself
POLICY_NAMES = ("model", "model_name", "model_name_or_path", "_name_or_path", "pretrain")


def list_wandb_folders(path: Path) -> list[Path]:
    """Folders of runs: the path itself, those in it or in ``wandb`` below it. ``latest-run`` is one of them by another name."""
    places = (path, *(one for place in (path, path / "wandb") for one in list_folder(place) if one.is_dir() and not one.is_symlink()))
    return [folder for folder in places if any(file.suffix == ".wandb" for file in list_folder(folder))]


def recognize_wandb_run(path: Path) -> bool:
    return path.suffix == ".wandb" or bool(path.is_dir() and list_wandb_folders(path))


class WandbReader(RunReader):
    brings_metrics = True

    def __init__(self, path: Path, position: dict[str, Any], options: ReaderOptions) -> None:
        super().__init__(path, position, options)
        position.setdefault("offset", 0)
        self.outcome = position.get("outcome")
        folder = path.parent if path.is_file() else choose_run(path, list_wandb_folders(path), options.run)
        self.file = path if path.is_file() else next(file for file in list_folder(folder) if file.suffix == ".wandb")

    def describe_opening(self) -> SourceOpening:
        """From the record in which the run introduces itself; nothing where it has not been written yet."""
        opening = SourceOpening(config={"logs": str(self.file)})
        try:
            for count, (_, data) in enumerate(read_wandb_records(self.file, 0)):
                if count > OPENING_RECORDS:
                    break
                for run in find_messages(data or b"", RUN):
                    texts = {number: value.decode("utf-8", "replace") for number, value in read_fields(run) if isinstance(value, bytes)}
                    config = read_updates(run, 4)
                    opening.name, opening.task = texts.get(8, ""), texts.get(3, "")
                    opening.policy = next((str(config[name]) for name in POLICY_NAMES if isinstance(config.get(name), str)), "")
                    steps = config.get("max_steps")
                    opening.total_steps = steps if isinstance(steps, int) and steps > 0 else 0
                    opening.config = pick_plain_settings(config) | opening.config
        except (OSError, WireError, FramingError):
            pass  # reading says what is wrong
        return opening

    def read_new_items(self, final: bool) -> Iterator[list[Item]]:
        merger, items, since = StepMerger(), list[Item](), self.position["offset"]
        try:
            for end, data in read_wandb_records(self.file, self.position["offset"]):
                try:
                    items += warn_of_record(self.file, self.position["offset"]) if data is None else self.read_record(data, merger)
                except (ValueError, RecursionError) as error:
                    items += warn_of_record(self.file, self.position["offset"], str(error))
                self.position["offset"] = end
                if end - since > BATCH_BYTES:
                    since = end
                    yield [*items, *merger.flush()]
                    items = []
        except FramingError as error:
            raise SourceError(f"{self.file}: {error}") from None
        except OSError as error:
            raise SourceError(f"{self.file} cannot be read: {error.strerror or error}") from None
        if items := [*items, *merger.flush()]:
            yield items

    def read_record(self, data: bytes, merger: StepMerger) -> list[Item]:
        """Raises ValueError."""
        found: list[Item] = []
        for number, value in read_fields(data):
            if number == HISTORY and isinstance(value, bytes):
                row = read_items(find_messages(value, 1))
                numbers = read_logged_numbers({name: one for name, one in row.items() if not name.startswith("_")})
                steps = [to_signed(one) for step in find_messages(value, 2) for field, one in read_fields(step) if field == 1]
                own = row.get("_step", steps[0] if steps else 0)
                at = row.get("_timestamp")
                found += merger.add(find_logged_step(numbers, int(own)), float(at) if isinstance(at, int | float) else 0.0, numbers)
            elif number == EXIT and isinstance(value, bytes):
                code = next((to_signed(one) for field, one in read_fields(value) if field == 1), 0)
                self.outcome = self.position["outcome"] = "failed" if code else "finished"
                if code:
                    found.append(Warned(attempt=1, time=0.0, message=f"W&B says that the run ended with exit code {code}"))
        return found


def read_updates(data: bytes, number: int) -> dict[str, Any]:
    """Of a ConfigRecord in field ``number``. Raises WireError."""
    return {name: value for record in find_messages(data, number) for name, value in read_items(find_messages(record, 1)).items()}


def read_items(items: list[bytes]) -> dict[str, Any]:
    """Keys and values of history or config items. Raises ValueError."""
    found = {}
    for item in items:
        fields = [(number, value.decode("utf-8", "replace")) for number, value in read_fields(item) if isinstance(value, bytes)]
        name = ".".join(text for number, text in fields if number in (1, 2))
        for number, text in fields:
            if number == 16:
                found[name] = json.loads(text)
    return found


FORMAT = SourceFormat(
    name="wandb",
    title="W&B: offline runs, and the copies that online runs leave",
    looks_for="wandb/offline-run-*/run-*.wandb",
    example='wandb/offline-run-20251125_120000-a1b2c3d4/run-a1b2c3d4.wandb: {"train/reward": 0.75, "train/global_step": 12}',
    recognize=recognize_wandb_run,
    open=WandbReader,
    gives="metrics, settings, name, how the run ended",
)
