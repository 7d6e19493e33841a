"""Rows of a person's own file, checked one by one and brought into one shape before a model loads.

``sft`` and ``gkd`` want prompt and completion, ``dpo``, ``orpo``, ``cpo`` and ``reward`` prompt, chosen and rejected, ``kto`` prompt, completion
and label, ``grpo``, ``rloo``, ``online-dpo`` and ``procedure`` prompt and reference (and, where the task's rewards need more, ``data``: a JSON
object). ``procedure`` also reads preference pairs, for methods that say so (``Method.reads_pairs``). Preference pairs of ``dpo`` may carry ``weight``
(0 and more, multiplies the pair's loss) and ``margin``. Answers may have marked spans (``contract/spans.py``): ``chosen_spans``,
``completion_spans``, ....
Other columns are kept for methods, except where prompts and references are wanted.
Rows of ``sft``, ``dpo``, ``kto`` and ``reward`` may hold calls of tools: messages with ``tool_calls``, ``tool_call_id`` and ``name``, and a column
``tools`` that describes the tools. ``kto`` also reads stepwise supervision (``completions`` and ``labels``): an answer is good if all its steps are.
Texts may be plain strings or lists of ``{"role", "content"}``; rows come out in the second, conversational form:

    {"prompt": [{"role": "user", "content": "2+2?"}], "completion": [{"role": "assistant", "content": "4"}]}
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.contract.events import Message
from trainers.contract.problems import Problem, SpecError, shorten_value
from trainers.contract.spans import SpanError, read_row_spans
from trainers.tasks.base import Example

Row = dict[str, Any]

REPORTED = 20  # broken rows named one by one; the others are counted
ROLES = ("system", "user", "assistant", "tool")
PROMPT, COMPLETION = "prompt", "completion"
COLUMNS = {
    "sft": (PROMPT, COMPLETION),
    "gkd": (PROMPT, COMPLETION),
    "dpo": (PROMPT, "chosen", "rejected"),
    "kto": (PROMPT, COMPLETION, "label"),
    "orpo": (PROMPT, "chosen", "rejected"),
    "cpo": (PROMPT, "chosen", "rejected"),
    "reward": (PROMPT, "chosen", "rejected"),
    "grpo": (PROMPT, "reference"),
    "rloo": (PROMPT, "reference"),
    "online-dpo": (PROMPT, "reference"),
    "procedure": (PROMPT, "reference"),
}
TOOLLESS = ("grpo", "rloo", "online-dpo", "orpo", "cpo", "gkd", "procedure")  # trainers of TRL that give the chat template no tools
TOOLS, TOOL_CALLS = "tools", "tool_calls"
UNRENDERED = ("holds calls of tools, which the policy's chat template does not render", "train a policy whose template does, or leave those rows out")
PAIRS_UNREAD = ("holds preference pairs without references, which this procedure does not read", "add references, or a method that reads pairs")
MESSAGE_KEYS = ("role", "content", TOOL_CALLS, "tool_call_id", "name")
PAIR, SIDES = "pair", ("chosen", "rejected")  # in the data of a procedure's example: the two answers, where its row is a preference pair
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
    return check_dataset_file(path, trainer).rows


def check_dataset_file(path: Path, trainer: str, limit: int | None = None) -> Checked:
    """The rows in about the first ``limit`` bytes (None: in the whole file). Raises SpecError as ``read_rows`` does."""
    rows, broken, wrong, seen = list[Row](), list[Problem](), 0, 0
    for line, done, raw in read_numbered_rows(path, limit):
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


def examples_from_rows(rows: list[Row]) -> list[Example]:
    """Rows of prompts and references as examples that a task's reward functions can score."""
    return [Example([Message(**message) for message in row[PROMPT]], row["reference"], row["data"]) for row in rows]


Numbered = Iterator[tuple[str, int, Any]]  # where it is in the file, how many bytes were read so far, the row or the BrokenRow it is


def read_numbered_rows(path: Path, limit: int | None) -> Numbered:
    try:
        if path.is_dir():
            raise make_dataset_error(path, "is a folder", "name one .jsonl or .parquet file")
        if path.exists() and not path.is_file():
            raise make_dataset_error(path, "is not a regular file", "name one .jsonl or .parquet file")
        if path.suffix == ".jsonl":
            yield from jsonl_rows(path, limit)
        elif path.suffix == ".parquet":
            yield from parquet_rows(path, limit)
        else:
            fix = "write one JSON object a line" if path.suffix in (".json", ".csv", ".txt", ".tsv") else "convert it"
            raise make_dataset_error(path, f"is neither .jsonl nor .parquet but {path.suffix or 'without an ending'}", fix)
    except OSError as error:
        raise make_dataset_error(path, f"cannot be read: {error.strerror or error}", "check the path and its permissions") from None


def make_dataset_error(path: Path, message: str, fix: str) -> SpecError:
    return SpecError([Problem("dataset.path", str(path), message, fix)])


def jsonl_rows(path: Path, limit: int | None) -> Numbered:
    done = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            done += len(line)
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield f"line {number}", done, decode_json_text(text)
            if limit is not None and done >= limit:
                return


def decode_json_text(line: bytes) -> Any:
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
        raise make_dataset_error(path, f"is not a readable parquet file: {shorten_value(str(error))}", "write it again") from None


def row_of(raw: Any, trainer: str) -> Row:
    if isinstance(raw, BrokenRow):
        raise raw
    if not isinstance(raw, dict):
        raise BrokenRow(f"is not a JSON object but {shorten_value(repr(raw))}")
    if trainer == "kto" and "completions" in raw:
        raw = whole_answer(raw)
    if trainer == "sft" and raw.get(COMPLETION) is None and {"chosen", "rejected"} <= raw.keys():
        raw = take_preferred_answer(raw)
    pair = read_answer_pair(raw) if trainer == "procedure" and all(raw.get(side) is not None for side in SIDES) else None
    for column in COLUMNS[trainer] if pair is None else (PROMPT,):
        if raw.get(column) is None:
            raise BrokenRow(explain_missing_column(column, raw, trainer))
    row: Row = {PROMPT: prompt_of(raw[PROMPT])}
    if "reference" in COLUMNS[trainer]:
        refuse_calls(row, trainer)
        reference = "" if pair is not None and raw.get("reference") is None else reference_of(raw["reference"])
        return row | {"reference": reference, "data": data_of(raw.get("data")) | ({PAIR: pair} if pair is not None else {})}
    for column in COLUMNS[trainer][1:]:
        row[column] = label_of(raw[column]) if column == "label" else completion_of(raw[column], column)
    if "chosen" in row and row["chosen"] == row["rejected"]:
        raise BrokenRow("chosen and rejected are the same: there is nothing to prefer")
    if trainer == "dpo":
        row |= {column: number_of(raw[column], column) for column in NUMBERS if raw.get(column) is not None}
    if trainer in TOOLLESS:
        refuse_calls(row | {TOOLS: raw.get(TOOLS)}, trainer)
    row |= {TOOLS: tools_of(raw[TOOLS])} if raw.get(TOOLS) else {}
    try:
        row |= read_row_spans(raw, row)
    except SpanError as error:
        raise BrokenRow(str(error)) from None
    return {**{name: value for name, value in raw.items() if isinstance(name, str)}, **row}  # what else it says is for methods


def read_answer_pair(raw: Row) -> Row:
    """The two answers of a preference pair whose prompt a procedure asks; its own reference may be missing. Raises BrokenRow."""
    pair = {side: completion_of(raw[side], side) for side in SIDES}
    if pair[SIDES[0]] == pair[SIDES[1]]:
        raise BrokenRow("chosen and rejected are the same: there is nothing to prefer")
    if raw.get(TOOLS) or any(message.keys() - {"role", "content"} for side in pair.values() for message in side):
        raise BrokenRow("the pair holds calls of tools, which procedure cannot pass on; leave those rows out")
    return pair


def is_bare_pair(example: Example) -> bool:
    """Whether an example of a procedure is a preference pair without a reference, which only a method that reads pairs can use."""
    return PAIR in example.data and not example.reference


def refuse_calls(row: Row, trainer: str) -> None:
    """Raises BrokenRow for a row with calls of tools, of a trainer that cannot pass them on."""
    for column in COLUMNS[trainer]:
        if isinstance(row.get(column), list) and any(message.keys() - {"role", "content"} for message in row[column]):
            raise BrokenRow(f"{column} holds calls of tools, which {trainer} cannot pass on; leave those messages out")
    if row.get(TOOLS):
        raise BrokenRow(f"tools are described, which {trainer} cannot pass on; leave the column out")


def whole_answer(raw: Row) -> Row:
    """A row of stepwise supervision as one answer (TRL's dataset formats): its steps together, good if every one is."""
    steps, labels = raw["completions"], raw.get("labels")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) for step in steps):
        raise BrokenRow("completions is no list of steps")
    if not isinstance(labels, list) or len(labels) != len(steps):
        raise BrokenRow("labels is not one true or false for each step of completions")
    others = {name: value for name, value in raw.items() if name not in ("completions", "labels")}
    return {**others, COMPLETION: "\n".join(step.strip("\n") for step in steps), "label": all(label_of(one) for one in labels)}


def take_preferred_answer(raw: Row) -> Row:
    """A preference pair as a demonstration: its chosen answer, so that one file does for SFT and for DPO after it."""
    others = {name: value for name, value in raw.items() if name not in ("chosen", "rejected", "rejected_spans", "chosen_spans", *NUMBERS)}
    spans = {"completion_spans": raw["chosen_spans"]} if raw.get("chosen_spans") else {}
    return {**others, **spans, COMPLETION: raw["chosen"]}


def number_of(value: Any, column: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise BrokenRow(f"{column} is {shorten_value(repr(value))}; use a finite number, or leave it out")
    if column == WEIGHT and value < 0:
        raise BrokenRow(f"weight is {value}; use 0 or more (swap chosen and rejected to prefer the other answer)")
    return float(value)


def label_of(value: Any) -> bool:
    if value is True or value is False or value in (0, 1):
        return bool(value)
    raise BrokenRow(f"label is {shorten_value(repr(value))}; use true for a good answer, false for a bad one")


def explain_missing_column(column: str, raw: Row, trainer: str) -> str:
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


def prompt_of(value: Any) -> list[dict[str, Any]]:
    messages = messages_of(value, PROMPT, "user")
    if messages[-1]["role"] == "assistant":
        raise BrokenRow("prompt ends with an assistant message; end it with the question")
    return messages


def completion_of(value: Any, column: str) -> list[dict[str, Any]]:
    messages = messages_of(value, column, "assistant")
    if messages[0]["role"] != "assistant":
        raise BrokenRow(f"{column} begins with role {messages[0]['role']!r}; it must begin with assistant (put earlier messages into prompt)")
    return messages


def messages_of(value: Any, column: str, role: str) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"role": role, "content": require_text(value, column)}]
    if not isinstance(value, list) or not value:
        raise BrokenRow(f"{column} is neither text nor a list of messages but {shorten_value(repr(value))}")
    return [message_of(message, f"{column}[{number}]") for number, message in enumerate(value)]


def message_of(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise BrokenRow(f"{where} is not an object with role and content but {shorten_value(repr(message))}")
    if "from" in message and "value" in message:
        raise BrokenRow(f"{where} uses from and value; rename them to role and content")
    if message.get("role") not in ROLES:
        raise BrokenRow(f"{where} has role {shorten_value(repr(message.get('role')))}; use one of {', '.join(ROLES)}")
    other = [key for key, item in message.items() if key not in MESSAGE_KEYS and item is not None]
    if other:
        raise BrokenRow(f"{where} has {shorten_value(', '.join(map(str, other)))}; only {', '.join(MESSAGE_KEYS)} are understood")
    calls = [call_of(call, where) for call in require_list(message.get(TOOL_CALLS) or [], f"{where}.{TOOL_CALLS}")]
    if calls and message["role"] != "assistant":
        raise BrokenRow(f"{where} has role {message['role']} and calls tools; only the assistant does")
    content = message.get("content")
    if not content and (calls or message["role"] == "tool"):
        content = ""
    elif not isinstance(content, str):
        raise BrokenRow(f"{where}.content is not text but {shorten_value(repr(content))}")
    else:
        content = require_text(content, f"{where}.content")
    named = {key: require_text(str(message[key]), f"{where}.{key}") for key in ("tool_call_id", "name") if message.get(key)}
    return {"role": message["role"], "content": content, **({TOOL_CALLS: calls} if calls else {}), **named}


def call_of(call: Any, where: str) -> dict[str, Any]:
    """A call as chat templates read it: its arguments are an object, also where a file has them as JSON text."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BrokenRow(f"{where} has a tool call without function.name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = decode_json_text(arguments.encode("utf-8", "surrogatepass")) if arguments.strip() else {}
    if not isinstance(arguments, dict):
        raise BrokenRow(f"{where} calls {shorten_value(function['name'])} with arguments that are no JSON object")
    identity = {"id": str(call["id"])} if call.get("id") else {}
    return {**identity, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def tools_of(value: Any) -> list[Any]:
    """Descriptions of tools; parquet files, whose columns have one type, may hold them as JSON text."""
    found = decode_json_text(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else value
    if isinstance(found, BrokenRow) or not all(isinstance(one, dict) for one in require_list(found, TOOLS)):
        raise BrokenRow("tools is no list of descriptions")
    return list(found)


def require_list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise BrokenRow(f"{where} is no list but {shorten_value(repr(value))}")
    return value


def calls_tools(rows: list[Row]) -> bool:
    """Whether a chat template must know tools to render the rows."""
    columns = (PROMPT, COMPLETION, "chosen", "rejected")
    return any(row.get(TOOLS) or any(TOOL_CALLS in message for name in columns for message in row.get(name) or ()) for row in rows)


def require_text(value: str, where: str) -> str:
    if not value.strip():
        raise BrokenRow(f"{where} is empty")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise BrokenRow(f"{where} holds a lone surrogate, which is no text in any encoding")
    return value


def reference_of(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BrokenRow(f"reference is not text but {shorten_value(repr(value))}; write it as the exact text of the answer")
    return require_text(value, "reference")


def data_of(value: Any) -> dict[str, Any]:
    """``data`` as an object; parquet files, whose columns have one type, may hold it as JSON text."""
    if isinstance(value, str):
        value = decode_json_text(value.encode("utf-8", "surrogatepass"))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BrokenRow(f"data is not a JSON object: {shorten_value(str(value))}")
    return value
