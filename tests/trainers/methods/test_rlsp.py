"""RLSP: the card's numbers, the base at alpha = 1, and that length alone never beats being right."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.group.rlsp import RLSP, Config, compute_exploration_reward, hacked_groups, mix_exploration_rewards
from trainers.texts.segments import step_texts

WORKED, BARE = "<think>1+1=2 2+1=3 3+1=4</think><answer>4</answer>", "<think></think><answer>4</answer>"


def test_the_worked_example():
    half = torch.tensor([0.5])
    assert mix_exploration_rewards(torch.tensor([1.0]), half, 0.8).item() == pytest.approx(0.9)
    assert mix_exploration_rewards(torch.tensor([0.0]), half, 0.8).item() == pytest.approx(0.1)
    longest_wrong, shortest_right = mix_exploration_rewards(
        torch.tensor([0.0, 1.0]), compute_exploration_reward(torch.tensor([1e6, 0.0]), 20), 0.8
    ).tolist()
    assert longest_wrong == pytest.approx(0.2)
    assert shortest_right == pytest.approx(0.8)


@given(st.floats(0.51, 1), st.lists(st.integers(0, 50), min_size=2, max_size=2), st.integers(1, 30))
def test_above_one_half_a_right_answer_earns_more_than_any_wrong_one(alpha, counts, reference):
    wrong, right = mix_exploration_rewards(
        torch.tensor([0.0, 1.0]), compute_exploration_reward(torch.tensor(counts, dtype=torch.float32), reference), alpha
    ).tolist()
    assert right > wrong


@given(st.lists(st.sampled_from([WORKED, BARE, "", "<think>1+1=2"]), min_size=4, max_size=4), st.permutations(range(4)))
def test_with_all_weight_on_the_outcome_it_is_the_base_and_rewards_follow_their_rows(texts, order):
    rewards = torch.tensor([1.0, 0, 0.5, -1])
    assert RLSP(Config(alpha=1)).rewards(rollout_batch([1, 0, 0, 0], 4, texts=texts), rewards).equal(rewards)
    method, order = RLSP(Config()), list(order)
    made = method.rewards(rollout_batch([1, 0, 0, 0], 4, texts=texts), rewards)
    again = method.rewards(rollout_batch([1, 0, 0, 0], 4, texts=[texts[i] for i in order]), rewards[order])
    assert torch.allclose(again, made[order])


def test_exploring_is_paid_only_below_the_target():
    batch = rollout_batch([1, 0], 2, texts=[WORKED, BARE])
    assert RLSP(Config(target=0.4)).rewards(batch, batch.reward).equal(batch.reward)
    assert RLSP(Config(target=0.5)).rewards(batch, batch.reward)[0] == pytest.approx(0.8 + 0.2 * 0.5)


def test_it_says_where_length_is_hacked():
    right = torch.tensor([True, False, False, False])
    exploration = torch.tensor([0.0, 1.0, 1.0, 1.0])
    assert hacked_groups(mix_exploration_rewards(right.float(), exploration, 0.3), right, 2).item() == 0.5
    assert hacked_groups(mix_exploration_rewards(right.float(), exploration, 0.6), right, 2).item() == 0.0


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("rlsp", {"alpha": 0.6, "reference": 2})
    for rollout in trained.rollouts:
        steps = min(1.0, len(step_texts(rollout.completion)) / 2)
        assert rollout.shaped["rlsp"] == pytest.approx(0.6 * rollout.reward + 0.4 * steps, abs=1e-5)
    assert trained.steps[0]["rlsp/exploration"] > 0
