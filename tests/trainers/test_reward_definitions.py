"""Reward functions as data: what a spec takes and refuses."""

from typing import Any

import pytest

from trainers.contract.problems import SpecError
from trainers.contract.reward_definitions import MOST_DEPTH, has_code, walk_definition
from trainers.contract.spec import RunSpec, parse_spec

LEAF: dict[str, Any] = {"kind": "library", "function": "regex", "config": {"pattern": "x"}}
CODE: dict[str, Any] = {"kind": "code", "source": "def score(completion, reference, data):\n    return 1.0\n"}


def parse_rewards(*columns: dict[str, Any]) -> RunSpec:
    return parse_spec({"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}, "output": "/runs/1", "rewards": list(columns)})


def test_a_composition_is_read_with_everything_inside_it() -> None:
    gate = {"kind": "gate", "gate": LEAF, "reward": {"kind": "sum", "parts": [{"reward": CODE, "weight": 2}, {"reward": LEAF}]}}
    definition = parse_rewards({"name": "gated", "definition": gate}).rewards[0].definition
    assert [part.kind for part in walk_definition(definition)] == ["gate", "library", "sum", "code", "library"]
    assert has_code(definition)
    assert not has_code(parse_rewards({"name": "plain", "definition": LEAF}).rewards[0].definition)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(SpecError, match="two reward functions have this name"):
        parse_rewards({"name": "same", "definition": LEAF}, {"name": "same", "definition": CODE})


@pytest.mark.parametrize("nested", [MOST_DEPTH, 200])
def test_compositions_have_a_greatest_depth(nested: int) -> None:
    definition = LEAF
    for _ in range(nested):
        definition = {"kind": "product", "parts": [definition]}
    with pytest.raises(SpecError, match="deep"):
        parse_rewards({"name": "deep", "definition": definition})


@pytest.mark.parametrize("name", ["", "Upper", "with space", "a" * 41])
def test_a_column_has_a_name_that_a_chart_can_have(name: str) -> None:
    with pytest.raises(SpecError, match=r"rewards\.0\.name"):
        parse_rewards({"name": name, "definition": LEAF})
