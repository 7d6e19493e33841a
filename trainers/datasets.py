"""Rows of a person's own file, checked one by one and brought into one shape before a model loads.

``sft`` wants prompt and completion, ``dpo`` and ``reward`` prompt, chosen and rejected, ``kto`` prompt, completion and label, ``grpo`` prompt
and reference (and, where the task's rewards need more, ``data``: a JSON object). Preference pairs of ``dpo`` may carry ``weight`` (0 and more,
multiplies the pair's loss) and ``margin``. Other columns are kept for methods, except on ``grpo``.
Texts may be plain strings or lists of ``{"role", "content"}``; rows come out in the second, conversational form:

    {"prompt": [{"role": "user", "content": "2+2?"}], "completion": [{"role": "assistant", "content": "4"}]}
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.events import Message
from trainers.problems import Problem, SpecError, shorten
from trainers.tasks.base import Example

Row = dict[str, Any]

REPORTED = 20  # broken rows named one by one; the others are counted
ROLES = ("system", "user", "assistant", "tool")
PROMPT, COMPLETION = "prompt", "completion"
COLUMNS = {
    "sft": (PROMPT, COMPLETION),
    "dpo": (PROMPT, "chosen", "rejected"),
    "kto": (PROMPT, COMPLETION, "label"),
    "reward": (PROMPT, "chosen", "rejected"),
    "grpo": (PROMPT, "reference"),
}
NUMBERS = WEIGHT, MARGIN = "weight", "margin"  # optional columns of preference pairs

# Names people bring from other formats, and which of ours they meant.
ALIASES = {
    "prompt": ("question", "instruction", "input", "problem", "query"),
    "completion": ("answer", "output", "response", "solution", "target"),
    "chosen": ("preferred", "accepted", "winner", "response_w"),
    "rejected": ("dispreferred", "loser", "response_l"),
    "label": ("desirable", "good", "rating", "score"),
    "reference": ("answer", "solution", "ground_truth", "target", "label", "completion"),
}


class BrokenRow(ValueError):
    """Why a row cannot be used, in words for the person who made the file."""


@dataclass(frozen=True)
class Checked:
    """``complete`` is False where reading stopped at the byte limit and the rest of the file is unseen."""

    rows: list[Row]
    complete: bool


def read_rows(path: Path, trainer: str) -> list[Row]:
    """All rows of the file for a trainer. Raises SpecError naming file, line and reason of every broken row, or the file's."""
    return check(path, trainer).rows


def check(path: Path, trainer: str, limit: int | None = None) -> Checked:
    """The rows in about the first ``limit`` bytes (None: in the whole file). Raises SpecError as ``read_rows`` does."""
    rows, broken, wrong, seen = list[Row](), list[Problem](), 0, 0
    for line, done, raw in numbered(path, limit):
        seen = done
        try:
            rows.append(row_of(raw, trainer))
        except BrokenRow as error:
            wrong += 1
            if wrong <= REPORTED:
                broken.append(Problem("dataset.path", f"{path} {line}", str(error)))
    if wrong > REPORTED:
        total = wrong + len(rows)
        broken.append(Problem("dataset.path", str(path), f"{wrong - REPORTED} more rows are broken: {wrong} of {total} in all"))
    if broken:
        raise SpecError(broken)
    if not rows:
        raise SpecError([Problem("dataset.path", str(path), "holds no rows", f"write rows with {' and '.join(COLUMNS[trainer])}")])
    return Checked(rows, limit is None or seen < limit)


def examples(rows: list[Row]) -> list[Example]:
    """Rows read for ``grpo`` as examples that a task's reward functions can score."""
    return [Example([Message(**message) for message in row[PROMPT]], row["reference"], row["data"]) for row in rows]


Numbered = Iterator[tuple[str, int, Any]]  # where it is in the file, how many bytes were read so far, the row or the BrokenRow it is


def numbered(path: Path, limit: int | None) -> Numbered:
    try:
        if path.is_dir():
            raise refused(path, "is a folder", "name one .jsonl or .parquet file")
        if path.exists() and not path.is_file():
            raise refused(path, "is not a regular file", "name one .jsonl or .parquet file")
        if path.suffix == ".jsonl":
            yield from jsonl_rows(path, limit)
        elif path.suffix == ".parquet":
            yield from parquet_rows(path, limit)
        else:
            fix = "write one JSON object a line" if path.suffix in (".json", ".csv", ".txt", ".tsv") else "convert it"
            raise refused(path, f"is neither .jsonl nor .parquet but {path.suffix or 'without an ending'}", fix)
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror or error}", "check the path and its permissions") from None


def refused(path: Path, message: str, fix: str) -> SpecError:
    return SpecError([Problem("dataset.path", str(path), message, fix)])


def jsonl_rows(path: Path, limit: int | None) -> Numbered:
    done = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            done += len(line)
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield f"line {number}", done, decoded(text)
            if limit is not None and done >= limit:
                return


def decoded(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        return BrokenRow(f"is not UTF-8: byte {error.start + 1} is 0x{line[error.start]:02x}")
    except RecursionError:
        return BrokenRow("is nested too deeply")
    except ValueError as error:
        return BrokenRow(f"is not JSON: {error}")


def parquet_rows(path: Path, limit: int | None) -> Numbered:
    import pyarrow
    import pyarrow.parquet

    done = number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                done += batch.nbytes
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", done, row
                if limit is not None and done >= limit:
                    return
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise refused(path, f"is not a readable parquet file: {shorten(str(error))}", "write it again") from None


def row_of(raw: Any, trainer: str) -> Row:
    if isinstance(raw, BrokenRow):
        raise raw
    if not isinstance(raw, dict):
        raise BrokenRow(f"is not a JSON object but {shorten(repr(raw))}")
    for column in COLUMNS[trainer]:
        if raw.get(column) is None:
            raise BrokenRow(missing(column, raw, trainer))
    row: Row = {PROMPT: prompt_of(raw[PROMPT])}
    if trainer == "grpo":
        return row | {"reference": reference_of(raw["reference"]), "data": data_of(raw.get("data"))}
    for column in COLUMNS[trainer][1:]:
        row[column] = label_of(raw[column]) if column == "label" else completion_of(raw[column], column)
    if "chosen" in row and row["chosen"] == row["rejected"]:
        raise BrokenRow("chosen and rejected are the same: there is nothing to prefer")
    if trainer == "dpo":
        row |= {column: number_of(raw[column], column) for column in NUMBERS if raw.get(column) is not None}
    return {**{name: value for name, value in raw.items() if isinstance(name, str)}, **row}  # what else it says is for methods


def number_of(value: Any, column: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise BrokenRow(f"{column} is {shorten(repr(value))}; use a finite number, or leave it out")
    if column == WEIGHT and value < 0:
        raise BrokenRow(f"weight is {value}; use 0 or more (swap chosen and rejected to prefer the other answer)")
    return float(value)


def label_of(value: Any) -> bool:
    if value is True or value is False or value in (0, 1):
        return bool(value)
    raise BrokenRow(f"label is {shorten(repr(value))}; use true for a good answer, false for a bad one")


def missing(column: str, raw: Row, trainer: str) -> str:
    there = f"it has {', '.join(sorted(map(str, raw))[:8]) or 'nothing'}"
    for alias in ALIASES[column]:
        if raw.get(alias) is not None:
            return f"{column} is missing; rename {alias} to {column}"
    if "messages" in raw:
        return f"{column} is missing; split messages: everything before the last answer is prompt, the answer is {COLUMNS[trainer][1]}"
    if column == PROMPT and "chosen" in raw:
        return "prompt is missing; move the messages that chosen and rejected begin with into prompt"
    if "text" in raw:
        return f"{column} is missing; split text into {' and '.join(COLUMNS[trainer])}"
    return f"{column} is missing; {there}"


def prompt_of(value: Any) -> list[dict[str, str]]:
    messages = messages_of(value, PROMPT, "user")
    if messages[-1]["role"] == "assistant":
        raise BrokenRow("prompt ends with an assistant message; end it with the question")
    return messages


def completion_of(value: Any, column: str) -> list[dict[str, str]]:
    messages = messages_of(value, column, "assistant")
    if messages[0]["role"] != "assistant":
        raise BrokenRow(f"{column} begins with role {messages[0]['role']!r}; it must begin with assistant (put earlier messages into prompt)")
    return messages


def messages_of(value: Any, column: str, role: str) -> list[dict[str, str]]:
    if isinstance(value, str):
        return [{"role": role, "content": text_of(value, column)}]
    if not isinstance(value, list) or not value:
        raise BrokenRow(f"{column} is neither text nor a list of messages but {shorten(repr(value))}")
    return [message_of(message, f"{column}[{number}]") for number, message in enumerate(value)]


def message_of(message: Any, where: str) -> dict[str, str]:
    if not isinstance(message, dict):
        raise BrokenRow(f"{where} is not an object with role and content but {shorten(repr(message))}")
    if "from" in message and "value" in message:
        raise BrokenRow(f"{where} uses from and value; rename them to role and content")
    if message.get("role") not in ROLES:
        raise BrokenRow(f"{where} has role {shorten(repr(message.get('role')))}; use one of {', '.join(ROLES)}")
    other = [key for key, item in message.items() if key not in ("role", "content") and item is not None]
    if other:
        raise BrokenRow(f"{where} has {shorten(', '.join(map(str, other)))}; only role and content are understood")
    if not isinstance(message.get("content"), str):
        raise BrokenRow(f"{where}.content is not text but {shorten(repr(message.get('content')))}")
    return {"role": message["role"], "content": text_of(message["content"], f"{where}.content")}


def text_of(value: str, where: str) -> str:
    if not value.strip():
        raise BrokenRow(f"{where} is empty")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise BrokenRow(f"{where} holds a lone surrogate, which is no text in any encoding")
    return value


def reference_of(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BrokenRow(f"reference is not text but {shorten(repr(value))}; write it as the exact text of the answer")
    return text_of(value, "reference")


def data_of(value: Any) -> dict[str, Any]:
    """``data`` as an object; parquet files, whose columns have one type, may hold it as JSON text."""
    if isinstance(value, str):
        value = decoded(value.encode("utf-8", "surrogatepass"))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BrokenRow(f"data is not a JSON object: {shorten(str(value))}")
    return value
