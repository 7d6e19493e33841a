"""Scoring a completion with a definition, in one line."""

from typing import Any

from pydantic import TypeAdapter

from trainers.contract.events import Message
from trainers.contract.reward_definitions import RewardDefinition
from trainers.rewards.composition import build_reward
from trainers.rewards.scores import Score
from trainers.tasks.base import Example

DEFINITION: TypeAdapter[Any] = TypeAdapter(RewardDefinition)


def library(function: str, **config: Any) -> dict[str, Any]:
    return {"kind": "library", "function": function, "config": config}


def code(source: str) -> dict[str, Any]:
    return {"kind": "code", "source": source}


def make_example(reference: str = "", prompt: str = "How many?", **data: Any) -> Example:
    return Example([Message("user", prompt)], reference, data)


def score_batch(definition: dict[str, Any], *rows: tuple[str, Example]) -> list[Score]:
    scorer = build_reward(DEFINITION.validate_python(definition))
    try:
        return scorer.score_batch(rows)
    finally:
        scorer.close()


def score_one(definition: dict[str, Any], completion: str, reference: str = "", prompt: str = "How many?", **data: Any) -> float | None:
    return score_batch(definition, (completion, make_example(reference, prompt, **data)))[0].value
