"""Rows of a file as rows of a task, made in a child with limits (``building`` and ``preview`` ask). Runs there without Django."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.data.datasets.raw import RowError, UnreadableFile, read_raw_records
from lab.data.datasets.raw_lines import record_line
from trainers.contract.task_files import LONGEST_PROMPT

MOST_ROWS = 100_000
LONGEST_ROW = 1_000_000  # characters of a row of the task
NAMED = 20  # invalid rows that are named
EXAMPLE = 600  # characters of the row that lists show
ROLES = ("system", "user", "assistant")
SHARE, COLUMN = "share", "column"  # how the held-out rows are chosen


@dataclass(frozen=True)
class RowPlan:
    """Columns by what they become. ``after``: of a reference only what stands after the last of these characters. ``heldout``: values of the column
    ``split_column`` whose rows are held out. ``skip``: leaves invalid rows out.
    """

    prompt: str = ""
    reference: str = ""
    after: str = ""
    demonstration: str = ""
    data: list[str] = field(default_factory=list)
    split: str = SHARE
    share: float = 0.1
    split_column: str = ""
    heldout: list[str] = field(default_factory=list)
    skip: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, given: dict[str, Any]) -> RowPlan:
        return cls(**{name: given[name] for name in cls.__dataclass_fields__ if name in given})


def iterate_task_rows(path: str, kind: str, plan: dict[str, Any], most: int | None = None) -> Iterator[Any]:
    """Each row of the task as JSON, or of the first ``most`` valid ones; then ``{"end": …}`` with what was counted.

    What ends the file early is ``{"unreadable": [message, fix]}``.
    """
    chosen, seen = RowPlan.read(plan), Counted()
    try:
        for line, raw in read_raw_records(Path(path), kind):
            if seen.rows >= MOST_ROWS:
                raise UnreadableFile(f"has more than {MOST_ROWS:,} rows", "split it: a task may have so many")
            try:
                row = make_row(decode_row(line, raw), chosen)
                text = json.dumps(row, ensure_ascii=False, sort_keys=True, allow_nan=False)
                if len(text) > LONGEST_ROW:
                    raise RowError(f"has more than {LONGEST_ROW:,} characters")
                text.encode()
            except (RowError, ValueError, RecursionError) as error:
                seen.note_invalid(line, describe_row_error(error))
                continue
            seen.note(line, row)
            yield json.dumps(row)
            if most is not None and seen.rows >= most:
                break
        yield {"end": seen.as_json()}
    except UnreadableFile as error:
        yield {"unreadable": [error.message, error.fix]}


def describe_row_error(error: Exception) -> str:
    if isinstance(error, RowError):
        return str(error)
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    return "holds half of a character pair (a lone surrogate)" if isinstance(error, UnicodeEncodeError) else f"cannot be written as JSON: {error}"


def decode_row(line: int, raw: Any) -> dict[str, Any]:
    """The row with values of JSON only: Parquet has types of its own. Raises RowError."""
    _, row, *reason = json.loads(record_line(line, raw))
    if reason:
        raise RowError(reason[0])
    if not isinstance(row, dict):
        raise RowError("is not an object with columns")
    return row


def make_row(raw: dict[str, Any], plan: RowPlan) -> dict[str, Any]:
    """Raises RowError."""
    prompt = read_prompt(raw.get(plan.prompt), plan.prompt)
    reference = read_text(raw.get(plan.reference)) if plan.reference else ""
    if plan.after and plan.after in reference:
        reference = reference.rpartition(plan.after)[2]
    row: dict[str, Any] = {"prompt": prompt, "reference": reference.strip(), "split": choose_split(prompt, raw, plan)}
    if data := {name: raw[name] for name in plan.data if raw.get(name) is not None}:
        row["data"] = data
    if plan.demonstration and (text := read_text(raw.get(plan.demonstration)).strip()):
        row["demonstration"] = text
    return row


def read_prompt(value: Any, column: str) -> str | list[dict[str, str]]:
    """Raises RowError."""
    if isinstance(value, list):
        if not value or not all(isinstance(one, dict) and {one.get("role")} <= {*ROLES} and isinstance(one.get("content"), str) for one in value):
            raise RowError(f"{column} is not a list of messages with role ({', '.join(ROLES)}) and content")
        if value[-1]["role"] != "user" or not value[-1]["content"].strip():
            raise RowError(f"the last message of {column} is not what a user says")
        messages = [{"role": one["role"], "content": one["content"]} for one in value]
        size = sum(len(one["content"]) for one in messages)
    else:
        text = read_text(value).strip()
        if not text:
            raise RowError(f"{column} is empty")
        messages, size = [], len(text)
    if size > LONGEST_PROMPT:
        raise RowError(f"{column} has {size:,} characters, at most {LONGEST_PROMPT:,} are read")
    return messages or text


def read_text(value: Any) -> str:
    """As people would write it; lists and objects as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def choose_split(prompt: str | list[dict[str, str]], raw: dict[str, Any], plan: RowPlan) -> str:
    if plan.split == COLUMN:
        return "heldout" if read_text(raw.get(plan.split_column)).strip() in plan.heldout else "train"
    return "heldout" if int.from_bytes(digest_prompt(prompt)[:8]) < plan.share * 2**64 else "train"


def digest_prompt(prompt: str | list[dict[str, str]]) -> bytes:
    """The same for prompts that differ in white space alone: they are in the same split."""
    turns = [["user", prompt]] if isinstance(prompt, str) else [[one["role"], one["content"]] for one in prompt]
    text = json.dumps([[role, " ".join(content.split())] for role, content in turns])
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class Counted:
    """What a file held, as far as it was read."""

    def __init__(self) -> None:
        self.rows = self.wrong = self.demonstrations = self.references = 0
        self.invalid: list[tuple[int, str]] = []
        self.splits: Counter[str] = Counter()
        self.prompts: dict[bytes, str] = {}  # digest → split
        self.example: dict[str, str] = {"prompt": "", "reference": ""}
        self.crossing: list[int] = []  # lines of prompts that stand in both splits

    def note(self, line: int, row: dict[str, Any]) -> None:
        if not self.rows:
            asked = row["prompt"] if isinstance(row["prompt"], str) else row["prompt"][-1]["content"]
            self.example = {"prompt": asked[:EXAMPLE], "reference": row["reference"][:EXAMPLE]}
        self.rows += 1
        self.splits[row["split"]] += 1
        self.demonstrations += "demonstration" in row
        self.references += bool(row["reference"])
        before = self.prompts.setdefault(digest_prompt(row["prompt"]), row["split"])
        if before != row["split"]:
            self.crossing.append(line)

    def note_invalid(self, line: int, why: str) -> None:
        self.wrong += 1
        if len(self.invalid) < NAMED:
            self.invalid.append((line, why))

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "example": self.example,
            "train": self.splits["train"],
            "heldout": self.splits["heldout"],
            "skipped": self.wrong,
            "invalid": self.invalid,
            "repeated": self.rows - len(self.prompts),
            "demonstrations": self.demonstrations,
            "references": self.references,
            "crossing": self.crossing[:NAMED],
            "crossings": len(self.crossing),
        }
