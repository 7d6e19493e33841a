"""Searches in the world ``rewrites`` that try every rule at every position, whatever the policy is."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from trainers.policies import tiny
from trainers.rollouts.engine import Engine
from trainers.rollouts.moves import force_text
from trainers.rollouts.search_tree import SearchTree
from trainers.rollouts.tree import Node
from trainers.worlds.rewrites import RULES, Rewrites
from trainers.worlds.tool_use import write_call


def make_tree(world: Rewrites, question: str, paths: Sequence[Sequence[str]]) -> SearchTree:
    """A tree of given moves from the root; paths that begin alike share their beginning. No policy is needed for it."""
    family = tiny.find_family(world)
    tokenizer = tiny.build_tokenizer(family.texts, family.tags)
    run: Any = SimpleNamespace(task=world, tokenizer=tokenizer, prompt_ids=lambda prompts: [tokenizer.encode(prompts[0][-1].content)])
    engine = Engine(run, None, 1.0, 200, 8)
    example = world.read(question)
    assert example is not None
    tree = SearchTree(engine.open_episode(example, example.prompt).root)
    made: dict[tuple[str, ...], Node] = {(): tree.root}
    for path in paths:
        for count, rule in enumerate(path, 1):
            key, before = tuple(path[:count]), made[tuple(path[: count - 1])]
            if key not in made:
                made[key] = force_text(engine, before, write_call("move", rule))
                tree.above[made[key]] = before
                tree.steps.setdefault(before, []).append(made[key])
    return tree


def try_every_move(engine: Engine, at: Sequence[Node], count: int = 0, **rest: Any) -> list[list[Node]]:
    return [[force_text(engine, node, write_call("move", rule), train=True) for rule in RULES] for node in at]


@pytest.fixture
def every_move(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What to launch two steps with: no cold start is needed."""
    searching = ("astro", "cpl_step_apo", "prior_by_distance")
    for module in ("trainers.methods.session", *(f"trainers.methods.worlds.{name}" for name in searching)):
        monkeypatch.setattr(f"{module}.sample_steps", try_every_move)
    return {"policy": {"kind": "tiny", "cold_start": False}, "task__name": "rewrites"}
