"""JSON schema to form fields: labels, bounds, and values that survive the way through an input."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.training.catalog.catalog import load_catalog
from lab.training.runs.schema_form import Field, as_text, build_schema_fields, from_text
from trainers.contract.hyperparameters import TRAINERS

SCHEMA = {
    "properties": {
        "kind": {"const": "x", "default": "x", "type": "string"},
        "steps": {
            "type": "integer",
            "title": "Steps",
            "default": 150,
            "minimum": 1,
            "maximum": 10_000_000,
            "description": "How many.",
            "advanced": False,
        },
        "rate": {"type": "number", "default": 3e-4, "exclusiveMinimum": 0, "maximum": 1, "unit": "per step", "advanced": True},
        "share": {"type": "number", "default": 0.5, "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "seed": {"type": "integer", "default": 0, "minimum": 0, "exclusiveMaximum": 2**31},
        "minutes": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}], "default": None},
        "mode": {"enum": ["a", "b"], "type": "string", "default": "a", "title": "Mode Of Work"},
        "on": {"type": "boolean", "default": True},
        "layers": {"type": "array", "items": {"type": "string"}, "default": ["all-linear"]},
        "band": {"type": "array", "items": {"type": "number"}, "default": [0.2, 1]},
        "nested": {"$ref": "#/$defs/Other"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 1},
    }
}


def by_key(schema: dict[str, Any], prefix: str = "") -> dict[str, Field]:
    return {made.key: made for made in build_schema_fields(schema, prefix)}


def test_it_makes_one_field_of_each_plain_parameter() -> None:
    made = by_key(SCHEMA, "p.")
    assert list(made) == ["steps", "rate", "share", "seed", "minutes", "mode", "on", "layers", "band"]
    assert [field.kind for field in made.values()] == ["integer", "number", "number", "integer", "number", "choice", "boolean", "list", "list"]
    assert made["steps"].name == "p.steps"
    assert (made["rate"].advanced, made["rate"].unit, made["minutes"].optional) == (True, "per step", True)
    assert made["mode"].choices == ("a", "b")


def test_bounds_become_html_attributes() -> None:
    made = by_key(SCHEMA)
    assert dict(made["steps"].attributes) == {"step": "1", "min": "1", "max": "10000000"}
    assert dict(made["seed"].attributes) == {"step": "1", "min": "0", "max": "2147483647"}
    assert dict(made["rate"].attributes) == {"step": "any", "min": "0", "max": "1", "data-above": "0"}
    assert dict(made["share"].attributes) == {"step": "any", "min": "0", "max": "1", "data-above": "0", "data-below": "1"}
    assert dict(made["minutes"].attributes) == {"step": "any", "min": "0", "data-above": "0"}


def test_the_help_ends_with_default_and_bounds_in_words() -> None:
    made = by_key(SCHEMA)
    assert made["steps"].facts == "Default 150, at least 1."
    assert made["rate"].facts == "Default 0.0003, more than 0, at most 1."
    assert made["share"].facts == "Default 0.5, more than 0, below 1."
    assert made["minutes"].facts == "More than 0."
    assert made["mode"].facts == ""


def test_titles_made_from_names_read_like_written_ones() -> None:
    made = by_key(SCHEMA)
    assert made["mode"].label == "Mode of work"
    assert made["steps"].label == "Steps"
    assert by_key({"properties": {"a": {"type": "number", "title": "KL weight (beta)"}}})["a"].label == "KL weight (beta)"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("steps", " 12 ", 12),
        ("steps", "1e3", "1e3"),  # not an integer as written: the spec says so by name
        ("rate", "3e-4", 3e-4),
        ("rate", "", ""),
        ("minutes", "", None),
        ("on", "on", True),
        ("on", "", False),
        ("layers", "q_proj,  v_proj,", ["q_proj", "v_proj"]),
        ("mode", "b", "b"),
        ("band", "0.5, 2", [0.5, 2.0]),
        ("band", "0.5, two", [0.5, "two"]),
    ],
)
def test_the_text_of_an_input_becomes_the_specs_value(key: str, text: str, value: Any) -> None:
    found = from_text(by_key(SCHEMA)[key], text)
    assert found == value
    assert type(found) is type(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_reads_back_the_same(value: float) -> None:
    assert from_text(by_key(SCHEMA)["rate"], as_text(value)) == value


@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_every_whole_number_reads_back_the_same(value: int) -> None:
    assert from_text(by_key(SCHEMA)["steps"], as_text(value)) == value


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_hyperparameter_has_a_field_whose_default_reads_back(trainer: str) -> None:
    fields = by_key(load_catalog().trainer(trainer)["schema"])
    model = TRAINERS[trainer]
    assert set(fields) == set(model.model_fields) - {"trainer"}
    read = {key: from_text(made, as_text(made.default)) for key, made in fields.items()}
    assert model.model_validate(read) == model()
    for made in fields.values():
        assert made.help, made.key
        assert made.label[0].isupper()


def test_every_part_of_the_spec_with_parameters_has_fields() -> None:
    schema = load_catalog().schema
    for part in ("Evaluation", "Limits", "Lora"):
        fields = by_key(schema["$defs"][part])
        assert set(fields) == set(schema["$defs"][part]["properties"])
    assert json.dumps(schema)  # plain JSON, as the catalogue promises
