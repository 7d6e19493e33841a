"""How much each reward function of a run counts in the reward it trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.training.catalog.catalog import CatalogError, load_catalog
from trainers.contract.spec import HUMAN

EDITED_WEIGHTS = "edited_weights"  # in Run.latest: what edits have made of the weights of reward functions


def collect_reward_weights(spec: Mapping[str, Any]) -> dict[str, float]:
    """Weight of each reward function: the task's own, or the spec's. A task the catalogue does not know gives only the spec's."""
    task = get_spec_part(spec, "task")
    try:
        own = {reward["name"]: float(reward["weight"]) for reward in load_catalog().task(str(task.get("name", "")))["rewards"]}
    except CatalogError:
        own = {}
    people = get_spec_part(spec, "human").get("weight")
    human_weight = {HUMAN: float(people)} if isinstance(people, int | float) else {}
    return own | {name: float(value) for name, value in get_spec_part(task, "rewards").items() if isinstance(value, int | float)} | human_weight


def get_spec_part(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = spec.get(name)
    return part if isinstance(part, Mapping) else {}
