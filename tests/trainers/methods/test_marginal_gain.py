"""Marginal gain: worked numbers, gains that are differences of determinants, and the base without weight."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.group.marginal_gain import Config, MarginalGain, compare_texts, compute_marginal_gains

TEXTS = st.lists(st.text(alphabet="abc 1+=", max_size=8), min_size=1, max_size=6)
LIKENESS = st.sampled_from(["trigrams", "same text"])


def shaped(rewards, texts, **config):
    batch = rollout_batch(rewards, len(rewards), texts=texts)
    return MarginalGain(Config(**config)).rewards(batch, batch.reward)


def test_a_worked_example():
    assert compute_marginal_gains(torch.eye(3)).tolist() == pytest.approx([1, 1, 1])
    assert compute_marginal_gains(torch.ones(2, 2)).tolist() == pytest.approx([math.log2(3 / 2)] * 2)
    assert compute_marginal_gains(torch.ones(8, 8)).tolist() == pytest.approx([math.log2(9 / 8)] * 8, rel=1e-4)
    half = torch.tensor([[1, 0.5], [0.5, 1]])
    assert compute_marginal_gains(half).tolist() == pytest.approx([math.log2(3.75 / 2)] * 2)
    made = shaped([1, 1, 1, 0], ["a", "a", "b", "c"], alike="same text", weight=0.5)
    twin = 1 - 0.5 * (1 - math.log2(3 / 2))
    assert made.tolist() == pytest.approx([twin, twin, 1.0, 0.0])


@settings(deadline=None)
@given(TEXTS, LIKENESS)
def test_a_gain_is_the_value_with_a_member_minus_the_value_without(texts, by):
    alike = compare_texts(texts, by)
    gains = compute_marginal_gains(alike)

    def value(places):
        some = alike[places][:, places].double()
        return float(torch.logdet(torch.eye(len(places)) + some) / math.log(2)) if places else 0.0

    everybody = list(range(len(texts)))
    expected = [value(everybody) - value([other for other in everybody if other != place]) for place in everybody]
    assert gains.tolist() == pytest.approx(expected, abs=1e-4)
    assert ((gains > 0) & (gains <= 1 + 1e-6)).all()


@settings(deadline=None)
@given(TEXTS, st.randoms(use_true_random=False), LIKENESS)
def test_gains_follow_their_rows_and_wrong_answers_keep_their_reward(texts, rng, alike):
    rewards = [float(rng.random() < 0.5) for _ in texts]
    order = rng.sample(range(len(texts)), len(texts))
    made = shaped(rewards, texts, alike=alike, weight=0.8)
    again = shaped([rewards[place] for place in order], [texts[place] for place in order], alike=alike, weight=0.8)
    assert torch.allclose(again, made[order], atol=1e-5)
    wrong = torch.tensor(rewards) == 0
    assert (made[wrong] == 0).all()
    assert (made[~wrong] > 0).all()  # being right pays, whatever the others wrote


def test_without_weight_it_is_the_base():
    assert shaped([1, 1, 0], ["a", "a", "b"], weight=0.0).tolist() == [1, 1, 0]


def test_texts_that_are_the_same_gain_alike_and_less_than_others():
    texts = ["3+3=6 6+5=11", "3+3=6 6+5=11", "5+3=8 8+3=11"]
    for by in ("trigrams", "same text"):
        one, twin, other = compute_marginal_gains(compare_texts(texts, by)).tolist()
        assert one == pytest.approx(twin, abs=1e-5)
        assert other > one + 0.1


def test_each_group_is_a_pool_of_its_own():
    batch = rollout_batch([1.0] * 4, 2, texts=["a", "b", "a", "a"])
    method = MarginalGain(Config(alike="same text"))
    made = method.rewards(batch, batch.reward)
    assert made[:2].tolist() == [1, 1]
    assert made[2:].max() < 1
    assert method.collect() == pytest.approx({"right": 1.0, "different": 1.5, "gain": (1 + math.log2(1.5)) / 2}, rel=1e-4)


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    trained = two_steps("marginal-gain", base="grpo")
    for rollout in trained.rollouts:
        assert rollout.shaped["marginal-gain"] == pytest.approx(rollout.reward, abs=1e-5)  # one right answer of four: nothing is like it
    assert all(step["marginal-gain/different"] == 1 for step in trained.steps)
