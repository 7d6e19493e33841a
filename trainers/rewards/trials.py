"""A definition tried on a few completions, and what is wrong with one: in a child that the lab forks, within seconds, without models or endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trainers.contract.problems import Problem, SpecError
from trainers.rewards.composition import build_reward
from trainers.rewards.definition_checks import find_definition_problems
from trainers.rewards.scoring_requests import DEFINITION, KeptScorers, parse_scoring_request, score_request

SLOW = "loads a model or asks an endpoint, which takes longer than a try may"


def answer_trial(data: bytes) -> Iterator[str]:
    """One line of JSON: the answer of ``python -m trainers score`` to the request ``data``. What is not light is refused."""
    scorers = KeptScorers()
    try:
        yield json.dumps(try_definition(scorers, data), allow_nan=False)
    finally:
        scorers.close()


def try_definition(scorers: KeptScorers, data: bytes) -> dict[str, Any]:
    try:
        request = parse_scoring_request(data)
        if problems := find_definition_problems(request.definition, "definition"):
            raise SpecError(problems)
        if not build_reward(request.definition).light:
            raise SpecError([Problem("definition", None, SLOW, "backtest it: a worker scores stored rollouts", given=False)])
        return {"ok": True, **score_request(scorers, request)}
    except SpecError as error:
        return {"ok": False, "problems": error.as_json()}


def answer_definition_check(data: bytes) -> Iterator[str]:
    """The problems of a definition as one line of JSON, their fields below ``definition``. What scoring needs is checked where it runs."""
    definition = DEFINITION.validate_json(data)
    found = find_definition_problems(definition, "definition", here=False)
    yield json.dumps(SpecError(found).as_json(), default=str)
