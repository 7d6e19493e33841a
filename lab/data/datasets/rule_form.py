"""The rule as a form holds it: every input has the name of its setting, ``cleaning_`` before those of the cleaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from django.http import QueryDict

from lab.data.datasets.rules import Cleaning, DatasetRule, RuleError
from lab.lib.numbers import parse_ids
from lab.lib.refusals import Problem

SENT = "rule"  # a hidden input: an unticked box is then a no, not a setting that is missing
BOXES = ("ties_against", "finished_only", "heldout", "dedupe")
WHOLE = ("min_labels",)
OPTIONAL = ("max_age", "age_from", "age_half_life", "first_step", "last_step", "max_per_prompt")
SHARES = ("min_agreement", "test_share")
TEXTS = ("aggregation", "margin", "corrections", "neutral", "salt")
CLEANING_SHARES = ("threshold", "gap_share", "min_seconds")
CLEANING_TEXTS = ("action", "vote")


def parse_rule_form(params: QueryDict, before: DatasetRule) -> DatasetRule:
    """The rule of a sent form; ``before`` where none was sent. Raises RuleError naming every input that cannot be used."""
    if SENT not in params:
        return before
    problems: list[Problem] = []
    values: dict[str, Any] = {name: name in params for name in BOXES}
    values |= {name: params.get(name, "").strip() for name in TEXTS if name in params}
    read_into(values, params, (*WHOLE, *OPTIONAL), int, "a whole number", problems)
    read_into(values, params, SHARES, float, "a number", problems)
    cleaning: dict[str, Any] = {"by": params.getlist("cleaning_by")}
    cleaning |= {name: params[f"cleaning_{name}"] for name in CLEANING_TEXTS if f"cleaning_{name}" in params}
    read_into(cleaning, params, CLEANING_SHARES, float, "a number", problems, "cleaning_")
    values["queues"] = parse_ids(params.getlist("queues"))
    values["runs"] = parse_run_numbers(params.get("runs", ""))
    for name in (*WHOLE, *SHARES):
        if values.get(name, 0) is None:
            del values[name]
    if problems:
        raise RuleError(problems)
    cleaning = {name: value for name, value in cleaning.items() if value is not None}
    return DatasetRule.read({**before.as_json(), **values, "cleaning": cleaning})


def parse_run_numbers(text: str) -> list[int]:
    """The numbers in "12, #13"; what is no number is left out."""
    return parse_ids(text.replace("#", " ").replace(",", " ").split())


def read_into(
    values: dict[str, Any],
    params: QueryDict,
    names: tuple[str, ...],
    kind: Callable[[str], Any],
    noun: str,
    problems: list[Problem],
    prefix: str = "",
) -> None:
    for name in names:
        text = params.get(prefix + name)
        if text is None:
            continue
        try:
            values[name] = kind(text.strip()) if text.strip() else None
            if isinstance(values[name], float) and values[name] != values[name]:
                raise ValueError
        except ValueError:
            problems.append(Problem(prefix + name, f"{text.strip()[:40]!r} is not {noun}", f"write {noun}, or leave it empty"))


def build_rule_inputs(rule: DatasetRule, params: QueryDict | None = None) -> Mapping[str, Any]:
    """What the inputs show: the rule's settings, or what was sent where it could not be read."""
    inputs: dict[str, Any] = {field.name: getattr(rule, field.name) for field in fields(DatasetRule) if field.name != "cleaning"}
    inputs |= {f"cleaning_{field.name}": getattr(rule.cleaning, field.name) for field in fields(Cleaning)}
    inputs["queues"], inputs["runs"] = list(rule.queues), ", ".join(map(str, rule.runs))
    if params is not None and SENT in params:
        inputs |= {name: params[name] for name in inputs if name in params and name not in ("queues", "cleaning_by")}
        inputs |= {name: name in params for name in BOXES}
        inputs["queues"] = parse_ids(params.getlist("queues"))
        inputs["cleaning_by"] = params.getlist("cleaning_by")
    return {name: "" if value is None else value for name, value in inputs.items()}
