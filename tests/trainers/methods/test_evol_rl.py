"""EVOL-RL: the card's numbers with its corrections, majority voting at band 0, and what holds for every group."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.maths.advantages import z_score
from trainers.methods.group.evol_rl import Config, EvolRL, compute_novelty_rewards, compute_working_novelty, find_majority_answer, scaled_within

ALIKE = torch.tensor([[1.0, 0.9, 0.5, 0.4], [0.9, 1.0, 0.6, 0.3], [0.5, 0.6, 1.0, 0.2], [0.4, 0.3, 0.2, 1.0]])
WITH = torch.tensor([True, True, True, False])
EVERYBODY = torch.ones(4, dtype=torch.bool)
TEXTS = st.sampled_from(
    ["<think>1+1=2</think><answer>2</answer>", "<think>3-1=2</think><answer>2</answer>", "<answer>3</answer>", "<answer></answer>", ""]
)


def answer(working, value):
    return f"<think>{working}</think><answer>{value}</answer>"


def test_the_worked_example():
    assert compute_working_novelty(ALIKE, WITH)[:3].tolist() == pytest.approx([0.2, 0.175, 0.425], abs=1e-6)
    assert scaled_within(compute_working_novelty(ALIKE, WITH), WITH).tolist() == pytest.approx([0.1, 0.0, 1.0, 1.0], abs=1e-5)
    assert compute_novelty_rewards(ALIKE, WITH, EVERYBODY).tolist() == pytest.approx([0.55, 0.50, 1.0, -0.5], abs=1e-5)


def test_a_verdict_of_one_of_equals_and_groups_with_hardly_any_valid_answer():
    same = torch.ones(4, 4)
    assert compute_novelty_rewards(same, torch.tensor([True, True, False, False]), EVERYBODY).tolist() == [0.75, 0.75, -0.75, -0.75]
    assert compute_novelty_rewards(ALIKE, torch.tensor([True, False, False, False]), EVERYBODY)[0] == 1.0
    for count in (0, 1):
        valid = torch.arange(4) < count
        assert compute_novelty_rewards(ALIKE, valid, valid).tolist() == [-1.0] * 4


def test_invalid_answers_are_in_no_mean_and_no_maximum():
    close = ALIKE.clone()
    close[3, :3] = close[:3, 3] = 1.0
    made = compute_novelty_rewards(close, WITH, WITH)
    assert made[3] == -1.0
    assert made[:3].tolist() == compute_novelty_rewards(ALIKE[:3, :3], WITH[:3], WITH[:3]).tolist()


def test_the_most_frequent_answer_wins_and_the_smaller_text_among_equals():
    assert find_majority_answer(["3", "2", "3", None, ""]) == "3"
    assert find_majority_answer(["3", "2"]) == find_majority_answer(["2", "3"]) == "2"
    assert find_majority_answer([None, ""]) is None


@settings(deadline=None, max_examples=40)
@given(st.lists(TEXTS, min_size=4, max_size=4), st.permutations(range(4)))
def test_rewards_follow_their_rows_and_their_sign_is_the_verdict(texts, order):
    def shaped(texts):
        return EvolRL().rewards(rollout_batch([0.0] * 4, 4, texts=texts), torch.zeros(4))

    made = shaped(texts)
    assert torch.allclose(shaped([texts[i] for i in order]), made[list(order)], atol=1e-5)
    assert (((made >= -1) & (made <= -0.5)) | ((made >= 0.5) & (made <= 1))).all()


@given(st.lists(st.booleans(), min_size=4, max_size=4))
def test_with_gold_labels_and_no_band_advantages_are_grpos(right):
    rewards = [float(value) for value in right]
    batch = rollout_batch(rewards, 4, texts=[answer("1+1=2", int(value)) for value in right])
    made = EvolRL(Config(label="gold", band=0)).rewards(batch, batch.reward)
    assert torch.allclose(z_score(made, 4), z_score(batch.reward, 4), atol=1e-3)


def test_the_verifier_is_not_asked_without_gold_labels():
    texts = [answer("1+1=2", 2), answer("2=2", 2), answer("9", 9), "no answer"]
    for rewards in ([1, 1, 0, 0], [0, 0, 1, 0]):
        made = EvolRL().rewards(rollout_batch(rewards, 4, texts=texts), torch.zeros(4))
        assert [value > 0 for value in made.tolist()] == [True, True, False, False]


def test_the_entropy_bonus_is_optional():
    batch = loss_batch(torch.zeros(2, 3), torch.zeros(2), entropies=torch.full((2, 3), 2.0))
    assert EvolRL().loss(batch) is None
    assert EvolRL(Config(entropy_weight=0.1)).loss(batch).mean().item() == pytest.approx(-0.2)


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("evol-rl", {"entropy_weight": 0.001})
    for step in (1, 2):
        for group in (0, 1):
            rows = [r for r in trained.rollouts if (r.step, r.group) == (step, group)]
            expected = EvolRL().rewards(rollout_batch([0.0] * 4, 4, texts=[r.completion for r in rows]), torch.zeros(4))
            assert [r.shaped["evol-rl"] for r in rows] == pytest.approx(expected.tolist(), abs=1e-4)
    assert 0 < trained.steps[0]["evol-rl/majority_share"] <= 1
