"""``python -m trainers dataset-tool``: a dataset tool applied to a file of rows, without a lab. The file itself is never changed.

Rows are written as JSON lines; what was read, made and dropped is a line of JSON on standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainers.contract.dataset_tools.application import MOST_SEED, ToolCounts, apply_tool, load_tool
from trainers.contract.dataset_tools.base import DatasetTool, Row, RowForm
from trainers.contract.dataset_tools.registry import TOOLS
from trainers.contract.problems import Problem, SpecError

FINE = 0
READERS: dict[RowForm, str] = {"preference": "dpo", "kto": "kto", "completion": "sft", "prompt": "grpo"}  # form → the trainer that reads such rows


def add_dataset_tool_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tool", nargs="?", default="", metavar="TOOL", help="the name of a tool; without one, the tools are listed")
    parser.add_argument("rows", nargs="?", type=Path, metavar="FILE", help="rows as .jsonl or .parquet, as a run reads them")
    parser.add_argument("--form", choices=list(READERS), default="completion", help="what the columns are (completion)")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE", help="a setting of the tool; repeatable")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what the tool draws from (0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the rows to FILE, which must not be there yet, instead of standard output")


def apply_tool_from_arguments(options: argparse.Namespace) -> int:
    """Raises SpecError."""
    if not options.tool:
        for kind in TOOLS.values():
            print(f"{kind.card.name}: {kind.card.title}. Takes {', '.join(kind.forms)}. {kind.card.summary}")
        return FINE
    tool = load_tool(options.tool, read_settings(options.set))
    if options.rows is None:
        raise SpecError([Problem("rows", None, "no file of rows is named", "write TOOL FILE", given=False)])
    if options.form not in tool.forms:
        raise SpecError([Problem("form", options.form, f"{options.tool} takes no such rows", f"use one of {', '.join(tool.forms)}")])
    if not 0 <= options.seed <= MOST_SEED:
        raise SpecError([Problem("seed", options.seed, "is out of range", f"use 0 to {MOST_SEED}")])
    from trainers.data.datasets import read_rows  # every other command would wait for it

    rows, counts = read_rows(options.rows, READERS[options.form]), ToolCounts()
    write_rows(make_counted_rows(tool, rows, options.form, options.seed, counts), options.out)
    print(json.dumps(counts.as_json()), file=sys.stderr)
    return FINE


def read_settings(given: list[str]) -> dict[str, Any]:
    """``per_answer=2`` as ``{"per_answer": 2}``; what is no JSON is text. Raises SpecError."""
    settings: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SpecError([Problem("set", text, "is no setting with a value", "write SETTING=VALUE")])
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def make_counted_rows(tool: DatasetTool, rows: Iterable[Row], form: RowForm, seed: int, counts: ToolCounts) -> Iterator[Row]:
    for outcome in apply_tool(tool, rows, form, seed):
        counts.add(outcome)
        yield from (made.row for made in outcome.made)


def write_rows(rows: Iterable[Row], out: Path | None) -> None:
    lines = (json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    if out is None:
        sys.stdout.writelines(lines)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.writelines(lines)
    except FileExistsError:
        raise SpecError([Problem("out", str(out), "is there already", "name a new file")]) from None
