"""Critique-Coder: the card's verdicts and advantages, rewards routed by the kind of prompt, balanced labels."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.events import Message
from trainers.maths.advantages import group_std, z_score
from trainers.methods.group.critique_coder import (
    KEY,
    Config,
    CritiqueCoder,
    balance_critique_items,
    make_critique_example,
    parse_verdict,
    verdict_rewards,
)
from trainers.tasks import registry
from trainers.tasks.base import Example

QUESTION = Example([Message("user", "1+1?")], "2", {"start": 1, "changes": [1]})


def test_the_worked_examples():
    text = r"\conclusion{F} no, wait: \conclusion{T}"
    assert verdict_rewards([parse_verdict(text)] * 2, [True, False]) == [1.0, 0.0]
    assert verdict_rewards([parse_verdict("I do not know")] * 2, [True, False]) == [0.0, 0.0]
    rewards = torch.tensor([1.0, 1, 0, 1, 0, 0, 0, 1])
    assert group_std(rewards, 8)[0].item() == pytest.approx(0.5345, abs=1e-4)
    assert z_score(rewards, 8, epsilon=0.0)[:3].tolist() == pytest.approx([0.9354, 0.9354, -0.9354], abs=1e-4)
    assert z_score(torch.ones(8), 8).tolist() == [0.0] * 8


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("<answer>False</answer>", "True/False", False),
        (r"\conclusion{T} /conclusion{F}", "True/False", False),
        ("<answer>1</answer>", "1/0", True),
        ("<answer> 0 </answer>", "1/0", False),
        ("<answer>10</answer>", "1/0", None),
        ("<answer>1", "1/0", None),
        ("", "1/0", None),
    ],
)
def test_a_verdict_is_the_last_answer(text, words, said):
    assert parse_verdict(text, words) is said


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_has_a_verdict_or_none(text):
    assert parse_verdict(text) in (True, False, None)
    assert parse_verdict(text + r"\conclusion{True}") is True


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 8))
@settings(deadline=None)
def test_labels_are_balanced(right, wrong, count):
    items = [(QUESTION, str(place), place < right) for place in range(right + wrong)]
    kept = balance_critique_items(items, count, random.Random(0))
    assert len(kept) <= count
    assert sum(label for _, _, label in kept) * 2 == len(kept)
    assert len({solution for _, solution, _ in kept}) == len(kept)


def test_the_tasks_own_rewards_have_no_quarrel_with_a_critique_item():
    for task in registry.all_tasks().values():
        example = task.examples("train", 1, 0, next(iter(task.difficulties)))[0]
        item = make_critique_example(example, task.gold(example), True, "1/0")
        for reward in task.rewards.values():
            assert reward.function("<think></think><answer>1</answer>", item) in (0, 1, None)


def mixed_batch(texts, **fields):
    items = [make_critique_example(QUESTION, "x", True, "1/0")] * 2 + [make_critique_example(QUESTION, "y", False, "1/0")] * 2 + [QUESTION] * 2
    return rollout_batch([0, 0, 0, 0, 0.5, 1.0], 2, texts=texts, examples=items, **fields)


TEXTS = [f"<answer>{said}</answer>" for said in ("1", "0", "1", "0", "2", "2")]


def test_rewards_are_routed_by_the_kind_of_prompt():
    method, batch = CritiqueCoder(), mixed_batch(TEXTS)
    assert method.rewards(batch, batch.reward).tolist() == [1, 0, 0, 1, 0.5, 1]
    logged = method.collect()
    assert (logged["solve_reward"], logged["critique_reward"], logged["verdict_given"]) == (0.75, 0.5, 1.0)
    assert (logged["solve_flat"], logged["critique_flat"]) == (0.0, 0.0)


def test_without_critique_items_it_is_its_parent():
    method, batch = CritiqueCoder(Config(share=0.0)), rollout_batch([0.0, 1.0], 2)
    rows = [QUESTION]
    run = type("Run", (), {"rng": lambda self, *key: random.Random(0)})()
    assert method.data(rows, run) == [QUESTION]
    assert torch.equal(method.rewards(batch, batch.reward), batch.reward)
    assert method.advantages(batch, torch.tensor([0.1, -0.1])).tolist() == pytest.approx([0.1, -0.1])


def test_what_is_cut_off_teaches_nothing():
    batch = rollout_batch([0.0, 1.0], 2, finished=torch.tensor([True, False]))
    assert CritiqueCoder().advantages(batch, torch.tensor([-1.0, 1.0])).tolist() == [-1.0, 0.0]
    assert CritiqueCoder().advantages(batch, torch.ones(2, 3)).tolist() == [[1.0] * 3, [0.0] * 3]
    assert CritiqueCoder(Config(mask_truncated=False)).advantages(batch, torch.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.training
def test_two_real_steps(two_steps, written_samples):
    trained = two_steps("critique-coder", {"share": 0.4, "solutions": 4})
    asked = [r for r in trained.rollouts if r.prompt[-1].content.endswith("\n1 or 0?")]
    assert asked
    assert len(asked) < len(trained.rollouts)
    for rollout in trained.rollouts:
        expected = float(parse_verdict(rollout.completion, "1/0") is (rollout.reference == "1")) if rollout in asked else rollout.reward
        assert rollout.shaped["critique-coder"] == expected
    assert KEY not in QUESTION.data
