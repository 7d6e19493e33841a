"""The preflight's report on a spec that comes as text: for the command line, and for a child that the lab forks for every check."""

import json
from collections.abc import Iterator
from typing import Any

from trainers.checks.model_facts import parse_model_answer
from trainers.checks.model_lookup import look_up_model
from trainers.checks.preflight import PreflightReport, build_refusal_report, run_preflight_checks
from trainers.contract import refusals
from trainers.contract.machine import Machine, parse_machine
from trainers.contract.problems import SpecError
from trainers.contract.spec import RunSpec, parse_spec


def answer_preflight(data: bytes, policy_pending: bool, model: str | None, machine: dict[str, Any] | None = None) -> Iterator[str]:
    """The report as one line of JSON. ``model``: what a look-up said of the policy's model, in place of looking it up here; ``machine``: the one that
    is to train, in place of this one."""
    try:
        report = report_on_spec(parse_spec_text(data), policy_pending, model, parse_machine(machine) if machine else None)
    except SpecError as error:
        report = build_refusal_report(error)
    yield json.dumps(report.as_json(), allow_nan=False)


def parse_spec_text(text: bytes) -> RunSpec:
    """Raises SpecError."""
    return parse_spec(refusals.decode_strict_json(text, "standard input"))


def report_on_spec(spec: RunSpec, policy_pending: bool, model: str | None, machine: Machine | None = None) -> PreflightReport:
    """Raises SpecError for a ``model`` that no look-up said."""
    answer = parse_model_answer(model) if model else None if policy_pending else look_up_model(spec.policy)
    return run_preflight_checks(spec, policy_pending, answer, machine)
