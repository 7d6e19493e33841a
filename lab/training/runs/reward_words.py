"""A definition in words, as text, and what changed between two."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainers.contract.reward_definitions import CodeReward, LibraryReward, ProductReward, RewardDefinition, SumReward

SHORT = 80  # characters of a value in a sentence
DEFINITION: TypeAdapter[Any] = TypeAdapter(RewardDefinition)


def describe_stored_definition(definition: Any) -> str:
    """In one line. One of another version of the lab has no words."""
    try:
        return describe_definition(DEFINITION.validate_python(definition))
    except ValidationError:
        return "written by another version of the lab"


def describe_reward_columns(columns: Any) -> str:
    """``rewards`` of a spec as one line; nothing for anything else."""
    if not (isinstance(columns, list) and columns and all(isinstance(column, dict) and "definition" in column for column in columns)):
        return ""
    said = []
    for column in columns:
        words = f"{column.get('name', '')}: {describe_stored_definition(column['definition'])} × {column.get('weight', 1):g}"
        said.append(f"{words}, shadow" if column.get("shadow") else words)
    return "; ".join(said)


def describe_definition(definition: Any) -> str:
    if isinstance(definition, LibraryReward):
        config = ", ".join(f"{name} = {shorten_words(value)}" for name, value in definition.config.items())
        return f"{definition.function}({config})" if config else definition.function
    if isinstance(definition, CodeReward):
        count = len(definition.source.splitlines())
        return f"Python, {count} line{'' if count == 1 else 's'}"
    if isinstance(definition, SumReward):
        return " + ".join(f"{part.weight:g} × {describe_definition(part.reward)}" for part in definition.parts)
    if isinstance(definition, ProductReward):
        return " × ".join(describe_definition(part) for part in definition.parts)
    gate = f"{describe_definition(definition.gate)} ≥ {definition.at_least:g}"
    return f"{describe_definition(definition.reward)} where {gate}, else {definition.otherwise:g}"


def shorten_words(value: Any) -> str:
    text = str(value)
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def write_definition_text(definition: Any) -> str:
    """To be read and compared: Python as it is, everything else as JSON, in which Python is a list of lines."""
    if isinstance(definition, dict) and definition.get("kind") == "code":
        return str(definition["source"])
    return json.dumps(split_sources(definition), indent=2, ensure_ascii=False)


def split_sources(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: value.splitlines() if key == "source" and isinstance(value, str) else split_sources(value) for key, value in part.items()}
    return [split_sources(one) for one in part] if isinstance(part, list) else part
