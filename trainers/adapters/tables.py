"""Checked rows as the table that TRL's trainers tokenize."""

import json
from collections.abc import Sequence
from typing import Any

from datasets import Dataset, Features, Json, List, Value

from trainers.data.datasets import TOOLS, calls_tools

ROW = "row"  # column with the place of a row in the training rows


def table_of(rows: Sequence[dict[str, Any]], columns: Sequence[str], numbered: bool = False) -> Dataset:
    """The columns of the rows, and their numbers. Messages with calls of tools are stored as JSON, one by one: Arrow's structs would give every

    call the arguments of all the others, empty, and a chat template would render them.
    """
    found = [{name: row[name] for name in columns} | ({ROW: place} if numbered else {}) for place, row in enumerate(rows)]
    if not calls_tools(list(rows)):
        return Dataset.from_list(found)
    kinds = {name: List(Json()) for name in columns if name != "label"} | {name: Value("bool") for name in columns if name == "label"}
    features = Features(kinds | ({ROW: Value("int64")} if numbered else {}) | {TOOLS: Value("string")})
    told = [json.dumps(row[TOOLS]) if row.get(TOOLS) else None for row in rows]
    return Dataset.from_list([{**one, TOOLS: tools} for one, tools in zip(found, told, strict=True)], features=features)
