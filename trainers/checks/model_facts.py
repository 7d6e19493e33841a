"""What is known of a model before its weights load: architecture, size, context, data type, chat template, and the shape that memory depends on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from trainers.contract.policy_folder import find_text_config, read_context
from trainers.contract.problems import Problem

LARGEST = 10**8  # no size of an architecture is larger; a configuration comes from anybody
NAME_LENGTH = 80
FIELD = re.compile(r"([A-Za-z_]{1,40}):(?:[ \t]+(.{0,200})|[ \t]*)$")
ITEM = re.compile(r"[ \t]*-[ \t]+(.{1,200})$")


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer, for estimates of memory."""

    layers: int
    width: int
    heads: int
    key_value_heads: int
    head_width: int
    inner: int  # of the feed-forward part
    vocabulary: int


@dataclass(frozen=True)
class ModelFacts:
    """None or empty where nothing says it. ``counted``: what the number of parameters was read from; ``licence``: as the model card names it."""

    found: Literal["folder", "cache", "hub"]
    architecture: str
    parameters: int | None
    counted: str
    context: int | None
    dtype: str
    chat_template: bool | None
    shape: Shape | None
    licence: str = ""


@dataclass(frozen=True)
class ModelAnswer:
    """What a look-up found: the facts, or what is wrong with the name, or why nobody could say. ``unresolved``: a model of the hub is all we know."""

    facts: ModelFacts | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    unresolved: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse_model_answer(text: str) -> ModelAnswer:
    """What ``python -m trainers model`` printed."""
    given = json.loads(text)
    facts = given["facts"]
    if facts is not None:
        facts = ModelFacts(**facts | {"shape": Shape(**facts["shape"]) if facts["shape"] else None})
    return ModelAnswer(facts, [Problem(**item) for item in given["problems"]], [Problem(**item) for item in given["warnings"]], given["unresolved"])


def read_model_facts(
    config: Mapping[str, Any],
    found: Literal["folder", "cache", "hub"],
    parameters: int | None,
    counted: str,
    chat_template: bool | None,
    licence: str = "",
) -> ModelFacts:
    """The facts in a model's config.json and what was found out beside it."""
    kinds = config.get("architectures")
    first = kinds[0] if isinstance(kinds, list) and kinds else config.get("model_type")
    text = find_text_config(config)
    dtype = next((value for part in (text, config) for key in ("dtype", "torch_dtype") if isinstance(value := part.get(key), str)), "")
    return ModelFacts(
        found=found,
        architecture=str(first or "")[:NAME_LENGTH],
        parameters=parameters,
        counted=counted if parameters else "",
        context=read_context(config),
        dtype=dtype.removeprefix("torch.")[:NAME_LENGTH],
        chat_template=chat_template,
        shape=read_shape(text),
        licence=licence[:NAME_LENGTH],
    )


def choose_licence(card: Mapping[str, Any]) -> str:
    """Of a model card's front matter: ``license``, or where that is "other" its ``license_name``. Empty where it names none."""
    given = card.get("license")
    first = given[0] if isinstance(given, list) and given else given
    named = card.get("license_name")
    if first == "other" and isinstance(named, str) and named:
        return named
    return first if isinstance(first, str) else ""


def read_front_matter(text: str) -> dict[str, str]:
    """Names and values on the lines between two ``---`` that a model card begins with; of a list its first item. No more of YAML is read: the card
    comes from anybody."""
    lines = text.lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    found: dict[str, str] = {}
    name = ""
    for line in lines[1:]:
        if line.strip() == "---":
            return found
        if match := FIELD.match(line):
            name = match[1]
            found[name] = (match[2] or "").strip().strip("'\"")
        elif (match := ITEM.match(line)) and name and not found[name]:
            found[name] = match[1].strip().strip("'\"")
    return {}  # it does not end: not front matter


def read_shape(config: Mapping[str, Any]) -> Shape | None:
    """None where a size is missing or out of bounds."""

    def read(*keys: str) -> int | None:
        values = (config.get(key) for key in keys)
        return next((value for value in values if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST), None)

    layers, width, heads = read("num_hidden_layers", "n_layer"), read("hidden_size", "n_embd"), read("num_attention_heads", "n_head")
    vocabulary = read("vocab_size")
    if layers is None or width is None or heads is None or vocabulary is None:
        return None
    inner = read("intermediate_size", "n_inner") or 4 * width
    return Shape(layers, width, heads, read("num_key_value_heads") or heads, read("head_dim") or max(1, width // heads), inner, vocabulary)
