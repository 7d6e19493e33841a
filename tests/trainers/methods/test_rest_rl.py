"""ReST-RL: the card's numbers, beginnings that are real beginnings, and forced tokens that are not trained on."""

import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.prompts.rest_rl import (
    Config,
    ReSTRL,
    count_trailing_characters,
    draw_beginnings,
    has_varying_rewards,
    list_beginnings,
    place_odds,
    upper_confidence,
)

GOOD = "<think>3+3=6 6+5=11</think><answer>11</answer>"


def test_the_worked_examples():
    rewards = torch.tensor([[1, 0.5, 0, 1, 0.5], [0.5, 0.5, 0.5, 0.5, 0.5]])
    assert rewards[0].std(correction=0).item() == pytest.approx(0.3742, abs=1e-4)
    assert has_varying_rewards(rewards, 0.05).tolist() == [True, False]
    assert place_odds(4, 0.95) == pytest.approx([0.2696, 0.2561, 0.2433, 0.2311], abs=1e-4)
    assert upper_confidence(0.6, 3, 10) == pytest.approx(0.8064, abs=1e-4)


def test_lines_are_steps_where_there_is_one_line():
    assert list_beginnings(GOOD) == ["<think>3+3=6", "<think>3+3=6 6+5=11"]
    assert list_beginnings("a\nb\nc") == ["a\n", "a\nb\n", "a\nb\nc"]
    assert list_beginnings("<answer>3</answer>") == list_beginnings("") == list_beginnings("<think></think>") == []


@given(st.text(alphabet="ab \n<think>/", max_size=40), st.floats(0, 2), st.floats(0.1, 1))
@settings(deadline=None, max_examples=50)
def test_what_is_drawn_begins_the_text(text, share, alpha):
    for begun, part in draw_beginnings(text, share, alpha, random.Random(0)):
        assert text.strip().startswith(begun) or text.startswith(begun)
        assert 0 < part <= 1


@given(st.integers(1, 40), st.floats(0.05, 1))
def test_early_lines_are_favoured(lines, alpha):
    odds = place_odds(lines, alpha)
    assert sum(odds) == pytest.approx(1.0)
    assert all(one >= other for one, other in pairwise(odds))


def test_a_share_of_the_lines_is_drawn():
    assert len(draw_beginnings(GOOD, 0.5, 0.95, random.Random(0))) == 1
    assert len(draw_beginnings(GOOD, 2.0, 0.95, random.Random(0))) == 4
    assert draw_beginnings(GOOD, 0.0, 0.95, random.Random(0)) == []


def shaped(texts, finished=True, **config):
    batch = rollout_batch([1.0] * len(texts), len(texts), texts=texts, finished=torch.full((len(texts),), finished))
    return ReSTRL(Config(**config)).rewards(batch, batch.reward).tolist()


def test_an_end_that_is_written_earns_a_little_and_every_character_after_it_costs_a_little():
    """As in the authors' code: 1e-3 whatever follows, less 1e-6 a character after the first end, another answer included."""
    assert count_trailing_characters(GOOD) == count_trailing_characters("nothing") == 0
    assert count_trailing_characters(GOOD + "xyz") == 3
    assert count_trailing_characters(GOOD + GOOD) == len(GOOD)
    assert shaped([GOOD, GOOD + "xyz", "nothing"], trailing_penalty=0.01) == pytest.approx([1.001, 0.971, 1.0])
    assert shaped([GOOD + "xyz"], trailing_penalty=1e-6)[0] == pytest.approx(1 + 1e-3 - 3e-6, abs=3e-7)
    assert shaped([GOOD], finished=False) == pytest.approx([1.001])  # what it was cut off in comes after the answer


def test_without_bonus_and_penalty_the_reward_is_its_parents():
    assert shaped([GOOD, GOOD + "xyz"], stop_bonus=0.0, trailing_penalty=0.0) == [1.0, 1.0]


@pytest.mark.training
def test_two_real_steps(two_steps, written_samples):
    trained = two_steps("rest-rl", {"prompts": 40, "share": 2.0, "good": 0.0}, training__max_steps=3)  # the best answer is good whatever it earns
    first = trained.steps[0]
    assert first["rest-rl/prompts_kept"] == 1  # each prompt has right and wrong answers
    assert any(step["rest-rl/begun"] > 0 for step in trained.steps)
    begun = [r for r in trained.rollouts if len(r.turns) > 1]
    for rollout in begun:
        given_turn, own = rollout.turns[0], rollout.turns[1]
        assert (given_turn.role, own.role) == ("given", "assistant")
        assert given_turn.start == 0 < given_turn.end == own.start
        assert rollout.completion.startswith("<think>")
    assert begun
