"""Shared-out reward: the shares add up, equal ones are the base, and gains are those of the world or of the policy's belief."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from tests.trainers.methods.stacks import small_run
from trainers.methods.tokens.shared_out_reward import (
    Config,
    SharedOutReward,
    count_turns_left,
    find_step_ends,
    find_token_steps,
    measure_turns_saved,
    share_out,
    weigh_gains,
    write_head,
)
from trainers.worlds.base import replay_episode
from trainers.worlds.rooms import Rooms

TEXT = "<think>3+3=6 6+5=11</think><answer>11</answer>"
LETTERS = list(range(1, len(TEXT) + 1))  # one token a character
WEIGHTS = st.lists(st.floats(0, 1e6, width=32), min_size=4, max_size=4)


def batch_of(text=TEXT, entropies=None, **fields):
    """A completion of one token a character, and one that is cut short."""
    mask = torch.ones(2, len(text))
    mask[1, 4:] = 0.0
    rollout = rollout_batch([1.0, 0.0], 2, mask=mask, texts=[text, text[:4]], ends=[LETTERS[: len(text)], LETTERS[:4]], **fields)
    return loss_batch(torch.zeros_like(mask), torch.tensor([1.0, -1.0]), mask=mask, rollout=rollout, entropies=entropies)


def test_a_worked_example():
    there = torch.tensor([[1.0, 1, 1], [1, 0, 0]])
    weights = torch.tensor([[1.0, 3, 0], [5, 0, 0]])
    assert torch.allclose(share_out(weights, there, 0.0, 0.0), torch.tensor([[0.75, 2.25, 0], [1, 1, 1]]))
    assert torch.allclose(share_out(weights, there, 0.2, 0.0)[0], torch.tensor([0.8, 2.0, 0.2]))
    assert torch.allclose(share_out(weights, there, 0.0, 1.0)[0], torch.tensor([12, 9, 0]) / 7)  # 1, .75 and 0 over their mean


@given(WEIGHTS, st.integers(0, 4), st.floats(0, 1), st.floats(0, 1))
def test_whatever_the_weights_the_reward_is_shared_out_whole(weights, count, even, gamma):
    there = (torch.arange(4) < count).float()[None]
    factors = share_out(torch.tensor([weights]), there, even, gamma)
    assert (factors >= 0).all()
    assert float((factors * there).sum()) == pytest.approx(count, rel=1e-4)
    assert (factors[there == 0] == 1).all()


@given(st.floats(0.1, 100), st.integers(1, 6))
def test_equal_weights_are_the_base_and_so_is_an_even_reward(weight, count):
    there = torch.ones(1, count)
    assert torch.allclose(share_out(weight * there, there, 0.0, 0.0), there)
    assert torch.allclose(share_out(torch.rand(1, count), there, 1.0, 0.0), there)
    assert torch.allclose(share_out(torch.zeros(1, count), there, 0.0, 0.0), there)


def test_steps_are_equations_or_what_is_written_between_the_words_of_a_world():
    steps = find_token_steps([1.0] * len(TEXT), LETTERS, TEXT)
    assert [TEXT[place] for place, step in enumerate(steps) if step == 0] == list("3+3=6")
    assert [TEXT[place] for place, step in enumerate(steps) if step == 1] == list("6+5=11")
    assert set(steps) == {-1, 0, 1}
    assert find_token_steps([1, 1, 0, 0, 1, 0, 1], [], "") == [0, 0, -1, -1, 1, -1, 2]
    assert find_token_steps([0, 0, 1], [1, 2, 3], "abc") == [-1, -1, -1]  # given words at the beginning are no turn of anybody
    assert find_token_steps([1, 1, 0], [1], "a") == [-1, -1, -1]
    assert find_step_ends([-1, 0, 0, -1, 1, -1]) == [1, 3, 5]
    assert find_step_ends([-1, -1]) == []


def test_tokens_get_the_factor_of_their_step_and_others_keep_the_advantage():
    entropies = torch.full((2, len(TEXT)), 0.5)
    entropies[0, TEXT.index("6+5") : TEXT.index("</think>")] = 1.5
    method = SharedOutReward(Config(even=0.0))
    weights = method.token_weights(batch_of(entropies=entropies))
    assert weights[0, TEXT.index("3+3")] == pytest.approx(0.5)
    assert weights[0, TEXT.index("6+5")] == pytest.approx(1.5)
    assert weights[0, 0] == weights[0, -1] == 1
    assert weights[1].tolist() == [1] * len(TEXT)
    assert method.collect() == pytest.approx({"steps": 1.0, "largest_share": 0.75, "even_share": 0.5})


def test_lengths_share_by_tokens_and_equal_weights_leave_the_advantage_as_it_is():
    weights = SharedOutReward(Config(weights="length", even=0.0)).token_weights(batch_of())
    assert weights[0, TEXT.index("3+3")] == pytest.approx(2 * 5 / 11)
    assert weights[0, TEXT.index("6+5")] == pytest.approx(2 * 6 / 11)
    assert torch.equal(SharedOutReward(Config(weights="equal")).token_weights(batch_of()), torch.ones(2, len(TEXT)))


def test_gains_in_a_world_are_the_turns_that_a_move_has_saved():
    world = Rooms()
    example = world.lay_out({"rooms": 4, "at": 2, "key": 1, "door": 4})
    way = world.way(example, world.begin(example))
    there = [count_turns_left(world, example, state) for state in states_of(world, example, way)]
    assert there == list(range(len(way), -1, -1))
    assert measure_turns_saved(there) == [1.0] * len(way)
    lost = [count_turns_left(world, example, state) for state in states_of(world, example, ["<do>right</do>", "<do>open</do>"])]
    assert lost == [len(way), len(way) + 1, None]
    assert measure_turns_saved(lost) == [-1.0, -(len(way) + 1.0)]
    assert measure_turns_saved([None, None, 2]) == [0.0, 0.0]
    assert weigh_gains([1.0, -2.0], True) == [1.0, 0.0]
    assert weigh_gains([1.0, -2.0], False) == [0.0, 2.0]


def states_of(world, example, turns):
    text = world.write_episode(example, turns)
    return [world.begin(example), *(turn.step.state for turn in replay_episode(world, example, text).turns)]


def test_gains_elsewhere_are_those_of_the_policys_belief():
    run = small_run()
    method = SharedOutReward(Config(weights="gain"))
    method.prepare(run)
    example = run.examples[0]
    (prompt,) = run.prompt_ids([example.prompt])
    begun = [run.completion_ids(text, end=False) for text in ("<think>", "<think>3+3=6", "<think>3+3=6 6+5=11")]
    beliefs = method.measure_beliefs(prompt, begun, example)
    gold = run.completion_ids(example.reference, end=False)
    alone, _ = run.logprobs([[*prompt, *begun[1], *run.completion_ids("</think><answer>", end=False)]], [gold])
    assert beliefs[1] == pytest.approx(math.exp(alone.mean().item()), rel=1e-4)
    assert len(beliefs) == 3
    assert all(0 < belief < 1 for belief in beliefs)
    assert [write_head(text) for text in ("", "<think>3", "<think>3</think>")] == ["<answer>", "</think><answer>", "<answer>"]


def test_a_completion_without_steps_or_a_reference_has_no_gains():
    method = SharedOutReward(Config(weights="gain"))
    method.prepare(small_run())
    batch = batch_of("abcdefgh")
    assert torch.equal(method.token_weights(batch), torch.ones(2, 8))


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    trained = two_steps("shared-out-reward", {"weights": "gain"}, base="grpo")
    for step in trained.steps:
        assert step["shared-out-reward/steps"] > 1
        assert step["shared-out-reward/largest_share"] >= step["shared-out-reward/even_share"] - 1e-6
        assert step["shared-out-reward/token_weight"] == pytest.approx(1.0, abs=0.5)
        assert "shared-out-reward/gain_right" in step
