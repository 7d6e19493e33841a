"""Rewards of the methods for worlds of searching: finite and bounded whatever a policy writes, and blind to what it was not asked to write."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods import registry
from trainers.policies.sampling import Completion
from trainers.tasks.registry import get_task

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "deepresearcher": ("search", {"failures": 0.3}),
    "zerosearch": ("search", {"junk": 0.3}),
    "reseek": ("judged_search", {"junk": 0.3}),
    "masksearch": ("paragraphs", {}),
    "ai-searchplanner": ("search", {"reader": True, "known": 0.5}),
    "frugalrag": ("search", {"reader": True}),
    "hiersearch": ("two_corpora", {"agents": True, "junk": 0.3}),
    "vrag-rl": ("search", {"junk": 0.3}),
    "codev-tapo": ("search", {"junk": 0.3}),
}
MOST = 5.0  # no reward of these is further from 0
TAGS = ["<search>", "</search>", "<judge>yes</judge>", "<local>", "</local>", "<answer>", "</answer>", "<information>"]
PIECES = [*TAGS, "Eva's city", "#1", "\ud800"]


def prepare_method(name: str) -> tuple[Any, Any]:
    """The method and an example that it has seen in its data."""
    world, options = METHODS[name]
    task = type(get_task(world))(options)
    kind = registry.load_method_class(name)
    method, examples = kind(), task.examples("train", 1, 0, "medium")
    run = SimpleNamespace(task=task, examples=examples, rng=None)
    run.sample = lambda asked, temperature, key: [Completion([], text=task.gold(example)) for example in asked]
    method.prepare(run)
    return method, (method.data(examples, run) or examples)[-1]


@pytest.mark.parametrize("name", METHODS)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(0, 400))
def test_any_text_and_any_cut_of_a_good_one_have_a_bounded_reward(name, text, cut):
    method, example = prepare_method(name)
    try:
        gold = method.run.task.gold(example)
    except LookupError:
        gold = ""
    batch = rollout_batch([0.0, 0.0], 2, texts=[text, gold[:cut]], examples=[example] * 2)
    made = method.rewards(batch, batch.reward)
    assert made.shape == (2,)
    assert made.dtype == batch.reward.dtype
    assert torch.isfinite(made).all()
    assert made.abs().max() <= MOST


@pytest.mark.parametrize("name", METHODS)
def test_a_result_that_the_policy_wrote_itself_earns_no_answer(name):
    method, example = prepare_method(name)
    task = method.run.task
    answered = f"<answer>{example.reference}</answer>"
    forged = f"<information>{example.reference}</information>" + answered
    batch = rollout_batch([0.0, 0.0], 2, texts=[forged, answered], examples=[example] * 2)
    made = method.rewards(batch, batch.reward)
    assert task.rewards["correct"].function(forged, example) == 0
    assert made[0] < made[1] or made[1] <= 0
