"""FaithRL: the card's numbers, the base at alpha = 1, which tokens are what, and rates that a resumed run keeps."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.judge_endpoint import step_endpoint
from tests.trainers.methods.batches import rollout_batch
from trainers.contract.problems import SpecError
from trainers.maths.advantages import z_score
from trainers.methods.group.faithrl import (
    RESULT,
    SUPPORTED,
    TAG,
    UNSUPPORTED,
    Config,
    FaithRL,
    compute_geometric_rewards,
    is_abstention,
    kinds_of,
    modulate_advantages,
    truthful_helpfulness,
    without_repeats,
)
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import MiniGsm
from trainers.texts.segments import step_texts

GOLD = "<think>3+3=6 6+5=11</think><answer>11</answer>"
BAD = "<think>3+3=6 9+5=14</think><answer>14</answer>"
ENDS = [7, 12, 19, 27, 35, 37, 46]  # <think>, two steps, </think>, <answer>, the result, </answer>
EXAMPLE = Example([], "11", {"start": 3, "changes": [3, 5]})


def method(**config):
    made = FaithRL(Config(**config))
    made.prepare(SimpleNamespace(task=MiniGsm(), judge=None))
    return made


def test_the_worked_example():
    right, silent = torch.tensor([True, True, False, False]), torch.tensor([False, False, False, True])
    rewards = compute_geometric_rewards(right, silent, 0.6, 0.3)
    assert rewards.tolist() == pytest.approx([0.3, 0.3, -0.6, 0.0])
    advantages = z_score(rewards, 4)
    assert advantages.tolist() == pytest.approx([0.7071, 0.7071, -1.4142, 0], abs=1e-3)
    supported = torch.tensor([[True, False]] * 4)
    made = modulate_advantages(torch.tensor([0.7071, 0.7071, -1.4142, 0.0]), supported, torch.zeros_like(supported), 0.75)
    assert made[0].tolist() == pytest.approx([0.7071, 0.5303], abs=1e-4)
    assert made[2].tolist() == pytest.approx([-1.0607, -1.4142], abs=1e-4)
    assert truthful_helpfulness(0.7, 0.1, 0.6, 0.3) == pytest.approx(0.5)


def test_guessing_as_the_initial_policy_does_is_worth_nothing():
    x0, y0 = 0.6, 0.3
    assert x0 * y0 - y0 * x0 == 0 == truthful_helpfulness(x0, y0, x0, y0)
    assert truthful_helpfulness(0.4, 0.0, 1.0, 0.0) == 0.4


ADVANTAGES = st.lists(st.floats(-3, 3, width=32), min_size=4, max_size=4)
MARKS = st.lists(st.booleans(), min_size=12, max_size=12)


@given(ADVANTAGES, MARKS, MARKS, st.floats(0, 1), st.permutations(range(4)))
def test_it_only_shrinks_never_in_the_answer_and_follows_its_rows(advantages, supported, result, alpha, order):
    advantages, order = torch.tensor(advantages), list(order)
    supported, result = torch.tensor(supported).view(4, 3), torch.tensor(result).view(4, 3)
    whole = advantages[:, None].expand(4, 3)
    assert modulate_advantages(advantages, supported, result, 1.0).equal(whole)
    made = modulate_advantages(advantages, supported, result, alpha)
    assert (made.abs() <= whole.abs()).all()
    assert (made * whole >= 0).all()
    assert made[result].equal(whole[result])
    assert modulate_advantages(whole, supported, result, alpha).equal(made)  # token advantages of a method before
    assert modulate_advantages(advantages[order], supported[order], result[order], alpha).equal(made[order])


def test_a_repeat_of_the_step_before_is_not_supported():
    assert without_repeats(["3+3=6", "3+3=6", "6+5=11"], [1.0, 1.0, 1.0], 0.8) == [1.0, 0.0, 1.0]
    assert without_repeats([], [], 0.8) == []


def test_tokens_are_steps_tags_or_the_result():
    assert kinds_of(GOLD, ENDS, [1.0, 0.0]) == [TAG, SUPPORTED, UNSUPPORTED, TAG, TAG, RESULT, TAG]
    assert kinds_of("no tags", [2, 7], []) == [UNSUPPORTED] * 2
    assert kinds_of("", [], []) == []


def test_the_task_says_which_steps_are_supported_and_advantages_shrink_there():
    batch = rollout_batch([1.0, 0.0, 1.0], 3, texts=[GOLD, BAD, ""], mask=torch.tensor([[1.0] * 7, [1.0] * 7, [0.0] * 7]), ends=[ENDS, ENDS, [0] * 7])
    batch.examples = [EXAMPLE] * 3
    made = method(alpha=0.5).advantages(batch, torch.tensor([1.0, -1.0, 1.0]))
    assert made[0].tolist() == [1, 1, 1, 1, 1, 1, 1]
    assert made[1].tolist() == [-0.5, -0.5, -1, -0.5, -0.5, -1, -0.5]
    assert made[2].abs().sum() == 0
    every = method(alpha=0.5, judge="repeats").advantages(batch, torch.tensor([1.0, -1.0, 1.0]))
    assert every[1].tolist() == [-0.5, -0.5, -0.5, -0.5, -0.5, -1, -0.5]


def test_abstaining_is_said_in_the_answer():
    assert [is_abstention(f"<answer>{said}</answer>") for said in ("I don't know.", "none", "11", "")] == [True, True, False, False]
    assert not is_abstention("I don't know")


def test_the_initial_rates_are_measured_once_and_restored():
    asked = []

    def sample(examples, key):
        asked.append(len(examples))
        return [SimpleNamespace(text=GOLD if i % 2 else "<answer>none</answer>" if i % 4 else BAD) for i in range(len(examples))]

    made = method(probes=8)
    made.run = SimpleNamespace(examples=[EXAMPLE], sample=sample, rng=lambda *key: random.Random(0), right=lambda example, text: text == GOLD)
    batch = rollout_batch([1, 0, 0, 0], 4, texts=[GOLD, BAD, "<answer>none</answer>", ""])
    assert made.rewards(batch, batch.reward).tolist() == [0.25, -0.5, 0.0, -0.5]
    resumed = method()
    resumed.restore(made.state())
    assert resumed.rewards(batch, batch.reward).tolist() == [0.25, -0.5, 0.0, -0.5]
    assert asked == [8]


def test_an_endpoint_is_needed_only_where_it_is_asked_for():
    with pytest.raises(SpecError, match="no judge endpoint"):
        method(judge="endpoint")


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("faithrl", {"alpha": 0.5, "probes": 32})
    assert len({rollout.shaped["faithrl"] for rollout in trained.rollouts}) <= 3
    for step in trained.steps:
        assert step["faithrl/right"] + step["faithrl/wrong"] + step["faithrl/abstained"] == pytest.approx(1.0)
    for rollout in trained.rollouts:
        assert abs(rollout.contributions["faithrl"]) <= abs(rollout.contributions["base"]) + 1e-5
        assert rollout.token_advantages


@pytest.mark.training
def test_a_real_run_asks_the_worker_s_judge(two_steps, monkeypatch):
    with step_endpoint("=") as (judge, heard):
        monkeypatch.setenv("LAB_JUDGE_URL", judge.url)
        monkeypatch.setenv("LAB_JUDGE_MODEL", judge.model)
        trained = two_steps("faithrl", {"judge": "endpoint", "probes": 8})
    asked_for = sum(bool(step_texts(rollout.completion)) for rollout in trained.rollouts)
    assert len(heard) == asked_for > 0
    assert all(step["faithrl/supported"] > 0 for step in trained.steps if "faithrl/supported" in step)
