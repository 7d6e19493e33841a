"""How much each reward function of a run counts in the reward it trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.training.catalog.catalog import CatalogError, load_catalog
from trainers.contract.reward_definitions import SHADOW
from trainers.contract.spec import HUMAN

EDITED_WEIGHTS = "edited_weights"  # in Run.latest: what edits have made of the weights of reward functions


def collect_reward_weights(spec: Mapping[str, Any]) -> dict[str, float]:
    """Weight of each reward function: the task's own, or the spec's. A task the catalogue does not know gives only the spec's."""
    task = get_spec_part(spec, "task")
    try:
        own = {reward["name"]: float(reward["weight"]) for reward in load_catalog().task(str(task.get("name", "")))["rewards"]}
    except CatalogError:
        own = {}
    listed = spec.get("rewards")
    for column in listed if isinstance(listed, list) else []:
        if isinstance(column, Mapping) and isinstance(name := column.get("name"), str):
            own |= {f"{name}{SHADOW}": 0.0} if column.get("shadow") else {name: to_weight(column.get("weight"))}
    people = get_spec_part(spec, "human").get("weight")
    human_weight = {HUMAN: float(people)} if isinstance(people, int | float) else {}
    return own | {name: float(value) for name, value in get_spec_part(task, "rewards").items() if isinstance(value, int | float)} | human_weight


def to_weight(value: Any) -> float:
    """Of a column; 1 unless it says otherwise."""
    return float(value) if isinstance(value, int | float) else 1.0


def get_spec_part(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = spec.get(name)
    return part if isinstance(part, Mapping) else {}
