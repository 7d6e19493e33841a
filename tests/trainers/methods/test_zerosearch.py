"""ZeroSearch: the rising rate, how a batch comes to it, and the F1 that is paid."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.history import History
from trainers.methods.worlds.zerosearch import Config, ZeroSearch, compute_noise_rate, list_levels, weigh_levels
from trainers.worlds.search import Search

RATE = st.floats(0, 1)


def test_the_worked_example():
    assert [compute_noise_rate(done, 200, 0.0, 0.5, 4.0) for done in (0, 50, 100, 150, 200, 300)] == pytest.approx(
        [0, 0.0690, 0.1667, 0.3047, 0.5, 0.5], abs=1e-4
    )
    assert compute_noise_rate(50, 200, 0.2, 0.6, 1.0) == pytest.approx(0.3)


@given(st.integers(0, 99), RATE, RATE, st.floats(1, 100))
def test_the_rate_moves_one_way_between_its_ends(done, first, last, base):
    now, later = (compute_noise_rate(step, 100, first, last, base) for step in (done, done + 1))
    assert min(first, last) - 1e-9 <= now <= max(first, last) + 1e-9
    assert (later - now) * (last - first) >= -1e-9


@given(RATE, RATE, st.integers(2, 20), RATE)
def test_a_batch_has_the_rate_as_its_mean(first, last, count, share):
    levels = list_levels(first, last, count)
    if max(levels) - min(levels) < 1e-6:
        return
    rate = first + share * (last - first)
    weights = weigh_levels(rate, levels)
    assert sum(weights) == pytest.approx(1)
    assert sum(weight > 1e-9 for weight in weights) <= 2
    assert sum(weight * level for weight, level in zip(weights, levels, strict=True)) == pytest.approx(rate, abs=1e-6)


def test_prompts_stand_at_every_level_and_are_drawn_at_the_two_around_the_rate():
    world, method = Search(), ZeroSearch(Config(levels=3))
    examples = world.examples("train", 2, 0, "easy")
    rows = method.data(examples, SimpleNamespace(task=world))
    assert [row.data["junk"] for row in rows] == [0, 0.25, 0.5] * 2
    assert [row.prompt for row in rows] == [example.prompt for example in examples for _ in range(3)]
    history = History(len(rows), 100)
    history.step = 1
    assert method.curriculum(history).tolist() == [1, 0, 0] * 2
    history.step = 51
    assert method.curriculum(history).tolist() == pytest.approx([1 / 3, 2 / 3, 0] * 2, abs=1e-5)


def test_at_a_constant_rate_of_the_world_it_is_grpo_on_the_world_as_it_is():
    world, method = Search(), ZeroSearch(Config(first=0.0, last=0.0))
    examples = world.examples("train", 3, 0, "easy")
    rows = method.data(examples, SimpleNamespace(task=world))
    assert [row.data for row in rows] == [{**example.data, "junk": 0.0} for example in examples]
    method.prepare(SimpleNamespace(task=world))
    texts = [world.gold(rows[0]), "<answer>none</answer>", world.gold(rows[0]).replace("<answer>", "<answer>The "), "none"]
    scores = [world.rewards["correct"].function(text, rows[0]) for text in texts]
    assert scores == [1, 0, 0, 0]
    assert method.rewards(rollout_batch(scores, 4, texts=texts, examples=[rows[0]] * 4), like_rewards(scores)).tolist() == [1, 0, 1, 0]


def like_rewards(scores):
    return rollout_batch(scores, len(scores)).reward


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    config = {"first": 0.0, "last": 0.5, "levels": 3}
    trained = two_steps("zerosearch", config, base="grpo", task__name="search", task__options={"junk": 0.5}, **written_episodes)
    assert [step["zerosearch/rate"] for step in trained.steps] == pytest.approx([0, 1 / 6], abs=1e-5)
    assert trained.steps[0]["zerosearch/noisy"] == 0
    assert {rollout.shaped["zerosearch"] for rollout in trained.rollouts} == {0, 1}
