"""RC-GRPO: the card's numbers, the plain run when every member is marked high, and marks that follow quality in stage 1."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.events import Message
from trainers.maths.advantages import z_score
from trainers.methods.context import RunContext
from trainers.methods.prompts.rc_grpo import RCGRPO, Config, draw_quality_marks, variance_between
from trainers.tasks import registry
from trainers.tasks.base import Example

EXAMPLE = Example([Message("user", "3+4?")], "7")


def method(seed=0, **config):
    made = RCGRPO(Config(**config))
    made.prepare(RunContext(SimpleNamespace(spec=SimpleNamespace(seed=seed))))
    return made


def test_the_worked_examples():
    assert z_score(torch.tensor([1.0, 1, 0, 0]), 4).tolist() == pytest.approx([0.866, 0.866, -0.866, -0.866], abs=1e-3)
    assert z_score(torch.ones(4), 4).tolist() == [0.0] * 4
    rewards = torch.tensor([1.0] * 9 + [0] + [1] + [0] * 9)
    high = torch.tensor([True] * 10 + [False] * 10)
    assert variance_between(rewards, high).item() == pytest.approx(0.16)
    assert rewards.var(correction=0).item() == pytest.approx(0.25)


@given(st.lists(st.tuples(st.floats(-2, 2), st.booleans()), min_size=1, max_size=8), st.floats(-3, 3))
def test_the_variance_between_the_marks_is_a_floor_that_ignores_a_shift(members, shift):
    rewards = torch.tensor([reward for reward, _ in members], dtype=torch.double)
    high = torch.tensor([mark for _, mark in members])
    between = variance_between(rewards, high).item()
    assert 0 <= between <= rewards.var(correction=0).item() + 1e-6
    assert variance_between(rewards + shift, high).item() == pytest.approx(between, abs=1e-5)


@given(st.integers(1, 16), st.floats(0, 1), st.integers(0, 99))
def test_fixed_numbers_mark_the_rounded_share(members, share, seed):
    assert sum(draw_quality_marks(members, share, True, random.Random(seed))) == round(share * members)
    assert len(draw_quality_marks(members, share, False, random.Random(seed))) == members


def test_lots_have_the_share_as_their_mean_and_a_resumed_run_draws_the_same():
    rng = random.Random(0)
    assert sum(sum(draw_quality_marks(8, 0.3, False, rng)) for _ in range(500)) / 4000 == pytest.approx(0.3, abs=0.03)
    assert method(numbers="lot").prompts(EXAMPLE, 8, 3) == method(numbers="lot").prompts(EXAMPLE, 8, 3)


def test_all_high_is_the_plain_run():
    assert method(share=1.0).prompts(EXAMPLE, 4, 1) == [EXAMPLE.prompt] * 4


def test_members_of_a_group_are_asked_with_different_marks():
    texts = [prompt[-1].content for prompt in method(high="(high)", low="(low)").prompts(EXAMPLE, 4, 1)]
    assert texts == ["3+4? (high)"] * 2 + ["3+4? (low)"] * 2


def test_rewards_are_reported_by_mark():
    one = method()
    prompts = [prompt for _ in range(2) for prompt in one.prompts(EXAMPLE, 4, 1)]
    one.observe(rollout_batch([1, 1, 0, 0, 1, 1, 1, 1], 4, prompts=prompts))
    logged = one.collect()
    assert (logged["reward_high"], logged["reward_low"]) == (1.0, 0.5)
    assert (logged["between"], logged["silent"]) == (pytest.approx(0.125), 0.5)


def test_rows_of_a_dataset_are_marked_by_their_own_reward():
    training = SimpleNamespace(trainer="sft", demonstrations=4)
    run = RunContext(SimpleNamespace(spec=SimpleNamespace(seed=0, training=training, dataset="file")))
    rows = [{"prompt": [{"role": "user", "content": "q"}], "completion": [], "reward": reward} for reward in (1, 0, None)]
    one = method()
    assert [row["prompt"][0]["content"] for row in one.data(rows, run)] == ["q", "q (low)", "q"]
    logged = one.collect()
    assert (logged["data_high"], logged["data_unmarked"]) == (0.5, pytest.approx(1 / 3))


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("rc-grpo", base="grpo")
    for step, group in {(rollout.step, rollout.group) for rollout in trained.rollouts}:
        low = [r.prompt[-1].content.endswith(" (low)") for r in trained.rollouts if (r.step, r.group) == (step, group)]
        assert low.count(True) == low.count(False) == 2
    for place, step in enumerate(trained.steps, 1):
        low = [r.reward for r in trained.rollouts if r.step == place and r.prompt[-1].content.endswith(" (low)")]
        assert step["rc-grpo/reward_low"] == pytest.approx(sum(low) / len(low))


@pytest.mark.training
def test_stage_one_marks_the_tasks_demonstrations_by_their_quality(two_steps):
    trained = two_steps("rc-grpo", trainer="sft", training__demonstrations=200)
    task = registry.get_task("mini_gsm")
    examples, rng = task.examples("train", 200, 0, "easy"), random.Random(0)
    right = [task.rewards["correct"].function(task.demonstration(example, rng), example) for example in examples]
    assert trained.steps[0]["rc-grpo/data_high"] == pytest.approx(sum(right) / 200)
    assert trained.steps[0]["rc-grpo/data_unmarked"] == 0
