"""Runs of the built-in policy in the worlds with a search engine, as the recipe "GRPO in a world" trains them, and counts of what they did."""

from typing import Any

from bench.effect_cases import Quantity, tiny
from bench.equal_tokens import values_at_equal_tokens
from bench.policy_tokens import trace_heldout
from bench.worlds import read_recipe
from trainers.tasks.registry import get_task
from trainers.worlds.base import World

STEPS, LAST = 60, 15  # of which the last are looked at
ACCURACY_AT_WRITTEN = Quantity(
    "accuracy at written tokens",
    "held-out accuracy after as many tokens written by the policy, the world's left out",
    "higher",
    0.02,
    "two more of a hundred problems",
)


def run_search(
    seed: int,
    method: str = "",
    config: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    *,
    world: str = "search",
    difficulty: str = "",
    base: str = "grpo",
    **overrides: Any,
) -> tiny.Trained:
    """GRPO, with a method or without; ``options``: of the world."""
    found = get_task(world)
    assert isinstance(found, World)
    recipe = read_recipe(found)
    task = {**recipe.pop("task"), **({"difficulty": difficulty} if difficulty else {}), "options": options or {}}
    return tiny.run_train(seed, method, config, base=base, task=task, **{**recipe, "steps": STEPS, **overrides})


def list_last_texts(made: tiny.Trained, last: int = LAST) -> list[str]:
    """Episodes of the last steps, as text."""
    newest = max(rollout["step"] for rollout in made.rollouts)
    return [rollout["text"] for rollout in made.rollouts if rollout["step"] > newest - last]


def count_per_text(made: tiny.Trained, words: str, last: int = LAST) -> float:
    """How often ``words`` stand in an episode of the last steps, in the mean."""
    texts = list_last_texts(made, last)
    return sum(text.count(words) for text in texts) / len(texts)


def compare_at_written_tokens(own: tiny.Trained, parent: tiny.Trained) -> tuple[float, float]:
    """Held-out accuracy of both after as many tokens written by the policy."""
    return values_at_equal_tokens(*(trace_heldout(made, "heldout/accuracy") for made in (own, parent)))
