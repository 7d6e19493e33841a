"""TensorBoard's event files: scalars, and the sample of each step that OpenRLHF's trainer adds as a text.

Read from tensorflow/tensorboard, ``tensorboard/compat/proto/event.proto``, ``summary.proto`` and ``tensor.proto``: a record is an ``Event`` with
wall_time (1), step (2) and summary (5); a summary's values (1) have tag (1), simple_value (2) or tensor (8, of which float_val 5, double_val 6,
string_val 8 and tensor_content 4). The text ``train/generated_samples`` is that of OpenRLHF/OpenRLHF, commit
3c3be6234e0cb353e76bb8019947db9dfe99fca7, ``openrlhf/utils/logging_utils.py`` (``TensorboardLogger.log_train``): the first sample of a step with its
reward, prompt and completion in one text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainers.contract.events import Message, Warned
from trainers.outside.readers.base import (
    BATCH_BYTES,
    LARGEST_STEP,
    Item,
    ReaderOptions,
    RunReader,
    SourceError,
    SourceFormat,
    SourceOpening,
    list_folder,
)
from trainers.outside.readers.chat_text import find_template_turns, parse_prompt, to_storable_text
from trainers.outside.readers.metric_rows import StepMerger
from trainers.outside.readers.protobuf_wire import WireError, find_messages, read_double, read_fields, read_float, to_signed
from trainers.outside.readers.record_framing import FramingError, read_tf_records
from trainers.outside.readers.rollout_drafts import RolloutDraft, build_rollout_event

NAMED = ".tfevents."
SAMPLES = re.compile(r"train/generated_samples(/text_summary)?")
SAMPLE = re.compile(r"Sample:(?:\\n|\n)(?P<text>.*?)(?:\\n\\n|\n\n)Reward: (?P<reward>-?[\d.]+(?:e-?\d+)?|nan|-?inf)\s*", re.DOTALL)
ANSWER = re.compile(r"(?:\A|\n)(?:<\|im_start\|>)?assistant\n")
NUMBER_TYPES = {1: ("f", 4), 2: ("d", 8)}


def list_event_files(folder: Path) -> list[Path]:
    return [file for file in list_folder(folder) if NAMED in file.name and file.is_file()]


def find_event_folders(path: Path, deep: int = 3) -> list[Path]:
    """The folders with event files at or below ``path``; below one that has some nothing is looked for."""
    if list_event_files(path):
        return [path]
    below = [folder for folder in list_folder(path) if folder.is_dir()] if deep else []
    return [found for folder in below for found in find_event_folders(folder, deep - 1)]


def recognize_tensorboard_logs(path: Path) -> bool:
    return bool(path.is_dir() and find_event_folders(path))


class TensorBoardReader(RunReader):
    brings_metrics = True

    def __init__(self, path: Path, position: dict[str, Any], options: ReaderOptions) -> None:
        super().__init__(path, position, options)
        self.folder = choose_run(path, find_event_folders(path), options.run)
        self.marks: dict[str, dict[str, Any]] = position.setdefault("files", {})

    def describe_opening(self) -> SourceOpening:
        return SourceOpening(config={"logs": str(self.folder)})

    def read_new_items(self, final: bool) -> Iterator[list[Item]]:
        for file in list_event_files(self.folder):
            mark = self.marks.setdefault(file.name, {"offset": 0})
            try:
                if file.stat().st_size > mark["offset"] and not mark.get("lost"):
                    yield from self.read_file(file, mark)
            except OSError as error:
                raise SourceError(f"{file} cannot be read: {error.strerror or error}") from None

    def read_file(self, file: Path, mark: dict[str, Any]) -> Iterator[list[Item]]:
        merger, items, since = StepMerger(), list[Item](), mark["offset"]
        try:
            for end, data in read_tf_records(file, mark["offset"]):
                try:
                    items += warn_of_record(file, mark["offset"]) if data is None else read_event(data, merger)
                except (WireError, UnicodeDecodeError) as error:
                    items += warn_of_record(file, mark["offset"], str(error))
                mark["offset"] = end
                if end - since > BATCH_BYTES:
                    since = end
                    yield [*items, *merger.flush()]
                    items = []
        except FramingError as error:
            mark["lost"] = True
            items.append(Warned(attempt=1, time=0.0, message=f"{file.name}: {error}; the rest of this file was left out"))
        if items := [*items, *merger.flush()]:
            yield items


def choose_run(path: Path, found: list[Path], asked: str) -> Path:
    """The only folder, or the one whose end is ``asked``. Raises SourceError."""
    fitting = [folder for folder in found if not asked or folder.as_posix().endswith(asked)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(str(folder.relative_to(path)) for folder in found[:20])
    raise SourceError(f"{path} holds {len(found)} runs ({names}): name one with --run, or its folder")


def warn_of_record(file: Path, offset: int, why: str = "its checksum is wrong") -> list[Item]:
    return [Warned(attempt=1, time=0.0, message=f"{file.name}: the record at byte {offset} was left out: {why}")]


def read_event(data: bytes, merger: StepMerger) -> list[Item]:
    """What an event brings besides the numbers that ``merger`` takes, and those it gives. Raises WireError."""
    time, step, found = 0.0, 0, list[Item]()
    for number, value in read_fields(data):
        if number == 1:
            time = read_double(value)
        elif number == 2:
            step = to_signed(value)
    for summary in find_messages(data, 5):
        for value in find_messages(summary, 1):
            tag, number_found, text = read_summary_value(value)
            if number_found is not None:
                found += merger.add(step, time, {tag: number_found})
            elif text is not None and SAMPLES.fullmatch(tag) and (sample := SAMPLE.fullmatch(text)) and 0 <= step <= LARGEST_STEP:
                draft = draft_sample(sample["text"], float(sample["reward"]))
                found.append(build_rollout_event(draft, (step, "train", 0, 0), time, None))
    return found


def read_summary_value(data: bytes) -> tuple[str, float | None, str | None]:
    """(tag, number, text) of a value; neither for pictures and histograms. Raises WireError."""
    tag, number, text = "", None, None
    for field, value in read_fields(data):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode()
        elif field == 2:
            number = read_float(value)
        elif field == 8 and isinstance(value, bytes):
            number, text = read_tensor(value)
    return tag, number, text


def read_tensor(data: bytes) -> tuple[float | None, str | None]:
    """The one number or text in a tensor. Raises WireError."""
    kind = 0
    for field, value in read_fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 8 and isinstance(value, bytes):
            return None, value.decode("utf-8", "replace")
        elif field in (4, 5, 6) and isinstance(value, bytes):
            code, width = NUMBER_TYPES.get(kind, ("f", 4))
            if len(value) == width:
                return float(struct.unpack(f"<{code}", value)[0]), None
    return None, None


def draft_sample(text: str, reward: float) -> RolloutDraft:
    """Prompt and completion are told apart where a template's "assistant" line stands between them; else everything is the completion."""
    text = to_storable_text(text)
    found = ANSWER.search(text)
    prompt: list[Message] = parse_prompt(text[: found.end()]) if found else []
    completion = text[found.end() :] if found else text
    finite = reward if reward == reward and abs(reward) != float("inf") else None
    return RolloutDraft(prompt, completion, reward=finite, rewards={"reward": finite}, turns=find_template_turns(completion))


FORMAT = SourceFormat(
    name="tensorboard",
    title="TensorBoard: event files",
    looks_for="events.out.tfevents.* in the folder or below it",
    example="runs/Nov25_12-00-00_host/events.out.tfevents.1700000000.host.1.0: train/reward at step 12 is 0.75",
    recognize=recognize_tensorboard_logs,
    open=TensorBoardReader,
    gives="metrics; of OpenRLHF's trainer the sample of each step with its reward",
)
