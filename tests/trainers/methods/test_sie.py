"""SIE: the card's numbers, prompts that keep all their facts at ratio 1, and a reward that spam does not raise."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.methods.context import RunContext
from trainers.methods.worlds.sie import SIE, Config, choose_ratios, grade_structured_answer, normalize_answer
from trainers.worlds.graph import Graph

WORLD = {"name": "graph", "difficulty": "easy", "options": {"in_context": True, "support": 0.5}}
RIGHT, WRONG = "<answer>Rome</answer>", "<answer>Oslo</answer>"


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (f"<think>a</think>{RIGHT}", 1.0),
        (f"<think>{RIGHT}", 0.85),
        (f"<think>a</think>{WRONG}", 0.2),
        ("<think>a</think>", 0.0),
        (RIGHT, 0.8),
        (f"{RIGHT}<think>a</think>", 0.8),  # the tags are there, but not in their order
        ("<think>a</think>" + "<answer>" * 12 + "Rome</answer>", 0.85 / 4),  # the last pair of tags holds it
        ("<think>a</think>" + RIGHT * 12, 0.85 / 4),
        ("<think>a</think><answer>the rome.</answer>", 1.0),
    ],
)
def test_the_worked_examples(text, score):
    assert grade_structured_answer(text, "Rome") == pytest.approx(score)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "Rome", "Oslo", " "]), max_size=30))
def test_the_reward_is_bounded_and_the_right_answer_never_earns_less(pieces):
    text = "".join(pieces)
    right, wrong = grade_structured_answer(text, "Rome"), grade_structured_answer(text, "Lima")
    assert 0 <= right <= 1
    assert wrong <= min(right, 0.2)


@given(st.text(max_size=20))
def test_normalizing_twice_is_normalizing_once(text):
    once = normalize_answer(text)
    assert "the" not in once.split()
    assert normalize_answer(once) == once


def test_the_mixed_set_has_every_share():
    assert choose_ratios(7, "mixed") == [1.0, 0.75, 0.5, 0.25, 0.0, 1.0, 0.75]
    assert choose_ratios(2, "0.5") == [0.5, 0.5]


@pytest.mark.parametrize(("ratio", "missing"), [("1", {0}), ("0", {2}), ("0.5", {1})])
def test_prompts_keep_the_share_that_is_chosen(ratio, missing):
    rows = Graph(WORLD["options"]).examples("train", 12, 0, "easy")
    run = RunContext(SimpleNamespace(spec=SimpleNamespace(seed=0)))
    told = SIE(Config(ratio=ratio)).data(rows, run)
    assert {len(example.data["missing"]) for example in told} == missing
    assert [example.reference for example in told] == [example.reference for example in rows]
    assert told == SIE(Config(ratio=ratio)).data(rows, run)
    if ratio == "1":
        assert all(fact in example.prompt[0].content for example in told for fact in example.data["support"])


def test_accuracy_is_reported_by_what_is_missing():
    examples = Graph(WORLD["options"]).examples("train", 4, 0, "easy")
    for place, example in enumerate(examples):
        example.data["missing"] = [0] * (place % 2)
    method = SIE()
    method.observe(rollout_batch([1, 0, 1, 1], 4, examples=examples))
    assert method.collect() == {"right_complete": 1.0, "right_missing": 0.5}


def test_it_needs_the_facts_in_the_prompt(tmp_path):
    spec = make_spec(tmp_path, task={"name": "graph"}, methods=[{"name": "sie"}])
    assert [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems] == ["task.options.in_context"]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("sie", {"ratio": "0"}, base="grpo", task=WORLD, **{**written_episodes, "training__max_completion_length": 40})
    for rollout in trained.rollouts:
        assert rollout.shaped["sie"] == pytest.approx(grade_structured_answer(rollout.completion, rollout.reference))
    assert torch.isfinite(torch.tensor([step["loss"] for step in trained.steps])).all()
    assert "sie/right_missing" in trained.steps[0]
    assert "sie/right_complete" not in trained.steps[0]
