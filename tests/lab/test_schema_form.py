"""JSON schema to form fields: labels, bounds, and values that survive the way through an input."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.training.catalog.catalog import load_catalog
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_fields import ChoiceField, FloatField, IntegerField, ListField, SpecField, SwitchField
from lab.training.runs.spec_form import SpecForm
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


BOUNDS = ("step", "min", "max", "data-above", "data-below")


def read_text(field: SpecField, text: str) -> Any:
    """What a form reads from an input with this text."""
    return SpecForm({"one": text}, fields={"one": field}).values["one"]


def bounds_of(field: SpecField) -> dict[str, str]:
    """The bounds as they stand in the HTML."""
    return {name: str(bound) for name, bound in field.widget.attrs.items() if name in BOUNDS}


def test_it_makes_one_field_of_each_plain_parameter() -> None:
    made = build_schema_fields(SCHEMA)
    assert list(made) == ["steps", "rate", "share", "seed", "minutes", "mode", "on", "layers", "band"]
    assert [type(field) for field in made.values()] == [
        IntegerField,
        FloatField,
        FloatField,
        IntegerField,
        FloatField,
        ChoiceField,
        SwitchField,
        ListField,
        ListField,
    ]
    assert SpecForm(prefix="p", fields=made)["steps"].html_name == "p.steps"
    assert (made["rate"].advanced, made["rate"].unit, made["minutes"].required) == (True, "per step", False)
    assert [value for value, _ in made["mode"].choices] == ["a", "b"]


def test_bounds_become_html_attributes() -> None:
    made = build_schema_fields(SCHEMA)
    assert bounds_of(made["steps"]) == {"step": "1", "min": "1", "max": "10000000"}
    assert bounds_of(made["seed"]) == {"step": "1", "min": "0", "max": "2147483647"}
    assert bounds_of(made["rate"]) == {"step": "any", "min": "0", "max": "1", "data-above": "0"}
    assert bounds_of(made["share"]) == {"step": "any", "min": "0", "max": "1", "data-above": "0", "data-below": "1"}
    assert bounds_of(made["minutes"]) == {"step": "any", "min": "0", "data-above": "0"}


def test_the_help_ends_with_default_and_bounds_in_words() -> None:
    made = build_schema_fields(SCHEMA)
    assert made["steps"].facts == "Default 150, at least 1."
    assert made["rate"].facts == "Default 0.0003, more than 0, at most 1."
    assert made["share"].facts == "Default 0.5, more than 0, below 1."
    assert made["minutes"].facts == "More than 0."
    assert made["mode"].facts == ""


def test_titles_made_from_names_read_like_written_ones() -> None:
    made = build_schema_fields(SCHEMA)
    assert made["mode"].label == "Mode of work"
    assert made["steps"].label == "Steps"
    assert build_schema_fields({"properties": {"a": {"type": "number", "title": "KL weight (beta)"}}})["a"].label == "KL weight (beta)"


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
    found = read_text(build_schema_fields(SCHEMA)[key], text)
    assert found == value
    assert type(found) is type(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_reads_back_the_same(value: float) -> None:
    rate = build_schema_fields(SCHEMA)["rate"]
    assert read_text(rate, rate.prepare_value(value)) == value


@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_every_whole_number_reads_back_the_same(value: int) -> None:
    steps = build_schema_fields(SCHEMA)["steps"]
    assert read_text(steps, steps.prepare_value(value)) == value


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_hyperparameter_has_a_field_whose_default_reads_back(trainer: str) -> None:
    fields = build_schema_fields(load_catalog().trainer(trainer)["schema"])
    model = TRAINERS[trainer]
    assert set(fields) == set(model.model_fields) - {"trainer"}
    assert model.model_validate(SpecForm(fields=fields).values) == model()
    for key, made in fields.items():
        assert made.help_text, key
        assert made.label[0].isupper()


def test_every_part_of_the_spec_with_parameters_has_fields() -> None:
    schema = load_catalog().schema
    for part in ("Evaluation", "Limits", "Lora"):
        fields = build_schema_fields(schema["$defs"][part])
        assert set(fields) == set(schema["$defs"][part]["properties"])
    assert json.dumps(schema)  # plain JSON, as the catalogue promises
