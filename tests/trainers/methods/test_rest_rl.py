"""ReST-RL: the card's numbers, beginnings that are real beginnings, and forced tokens that are not trained on."""

import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.prompts.rest_rl import Config, ReSTRL, beginnings, drawn, place_odds, trailing, upper_confidence, varies

GOOD = "<think>3+3=6 6+5=11</think><answer>11</answer>"


def test_the_worked_examples():
    rewards = torch.tensor([[1, 0.5, 0, 1, 0.5], [0.5, 0.5, 0.5, 0.5, 0.5]])
    assert rewards[0].std(correction=0).item() == pytest.approx(0.3742, abs=1e-4)
    assert varies(rewards, 0.05).tolist() == [True, False]
    assert place_odds(4, 0.95) == pytest.approx([0.2696, 0.2561, 0.2433, 0.2311], abs=1e-4)
    assert upper_confidence(0.6, 3, 10) == pytest.approx(0.8064, abs=1e-4)


def test_lines_are_steps_where_there_is_one_line():
    assert beginnings(GOOD) == ["<think>3+3=6", "<think>3+3=6 6+5=11"]
    assert beginnings("a\nb\nc") == ["a\n", "a\nb\n", "a\nb\nc"]
    assert beginnings("<answer>3</answer>") == beginnings("") == beginnings("<think></think>") == []


@given(st.text(alphabet="ab \n<think>/", max_size=40), st.floats(0, 2), st.floats(0.1, 1))
@settings(deadline=None, max_examples=50)
def test_what_is_drawn_begins_the_text(text, share, alpha):
    for begun, part in drawn(text, share, alpha, random.Random(0)):
        assert text.strip().startswith(begun) or text.startswith(begun)
        assert 0 < part <= 1


@given(st.integers(1, 40), st.floats(0.05, 1))
def test_early_lines_are_favoured(lines, alpha):
    odds = place_odds(lines, alpha)
    assert sum(odds) == pytest.approx(1.0)
    assert all(one >= other for one, other in pairwise(odds))


def test_a_share_of_the_lines_is_drawn():
    assert len(drawn(GOOD, 0.5, 0.95, random.Random(0))) == 1
    assert len(drawn(GOOD, 2.0, 0.95, random.Random(0))) == 4
    assert drawn(GOOD, 0.0, 0.95, random.Random(0)) == []


def shaped(texts, finished=True, **config):
    batch = rollout_batch([1.0] * len(texts), len(texts), texts=texts, finished=torch.full((len(texts),), finished))
    return ReSTRL(Config(**config)).rewards(batch, batch.reward).tolist()


def test_a_clean_stop_earns_a_little_and_trailing_text_costs_a_little():
    assert trailing(GOOD) == 0
    assert trailing(GOOD + "xyz") == 3
    assert shaped([GOOD, GOOD + "xyz", "nothing"], trailing_penalty=0.01) == pytest.approx([1.001, 0.97, 1.0])
    assert shaped([GOOD], finished=False) == [1.0]


def test_without_bonus_and_penalty_the_reward_is_its_parents():
    assert shaped([GOOD, GOOD + "xyz"], stop_bonus=0.0, trailing_penalty=0.0) == [1.0, 1.0]


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("rest-rl", {"prompts": 40, "share": 2.0, "good": 0.5}, training__max_steps=3)
    first = trained.steps[0]
    assert 0 < first["rest-rl/prompts_kept"] < 1
    assert any(step["rest-rl/begun"] > 0 for step in trained.steps)
    begun = [r for r in trained.rollouts if len(r.turns) > 1]
    for rollout in begun:
        given_turn, own = rollout.turns[0], rollout.turns[1]
        assert (given_turn.role, own.role) == ("given", "assistant")
        assert given_turn.start == 0 < given_turn.end == own.start
        assert rollout.completion.startswith("<think>")
    assert begun
