"""FrugalRAG: the card's numbers, where exploration had enough, and what stopping early or late is paid."""

from math import log
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.worlds.frugalrag import Config, FrugalRAG, count_searches_until, score_form, score_stop
from trainers.policies.sampling import Completion
from trainers.worlds.base import replay_episode
from trainers.worlds.search import Search


def test_the_worked_example():
    assert score_stop(4, 2, True, 6, 2.0, 1.0) == pytest.approx(log(2), abs=1e-4)
    assert score_stop(2, 2, True, 6, 2.0, 1.0) == pytest.approx(2 + 1 / 3)
    assert score_stop(3, 2, False, 6, 2.0, 1.0) == pytest.approx(-log(2), abs=1e-4)


@given(st.integers(0, 6), st.integers(1, 6), st.booleans(), st.floats(0.1, 4), st.floats(0, 2))
def test_a_stop_is_bounded_and_best_where_exploration_had_enough(searches, enough, has_enough, most, alpha):
    found = score_stop(searches, enough, has_enough, 6, most, alpha)
    assert -most <= found <= most + alpha * enough / 6
    assert found <= score_stop(enough, enough, True, 6, most, alpha)


def make_texts(world, example):
    """Stops with all that is needed, one search later, at once, and never."""
    gold = world.gold(example)
    searches = gold[: gold.index("<answer>")]
    last = searches[searches.rindex("<search>") :]
    return [gold, searches + last + "<answer></answer>", "<answer></answer>", searches]


def explored(world, examples, samples=1):
    """A method whose exploring rollouts found the way and searched on."""
    method = FrugalRAG(Config(samples=samples))
    run = SimpleNamespace(task=world, rng=lambda *key: None)
    run.sample = lambda asked, temperature, key: [Completion([], text=make_texts(world, example)[1]) for example in asked]
    method.prepare(run)
    return method, method.data(examples, run)


def test_enough_is_where_the_exploring_rollout_had_all_that_is_needed():
    world = Search({"reader": True})
    examples = world.examples("train", 6, 0, "medium")
    method, kept = explored(world, examples)
    assert kept == examples
    assert list(method.enough.values()) == [len(example.data["evidence"]) for example in examples]
    replay = replay_episode(world, examples[0], "<answer></answer>")
    assert count_searches_until(replay, 2, 0.8) is None
    assert score_form(replay) == 0.5
    assert score_form(replay_episode(world, examples[0], "")) == score_form(replay_episode(world, examples[0], "none")) == -0.5


def test_a_group_is_paid_for_stopping_in_time():
    world = Search({"reader": True})
    example = next(one for one in world.examples("train", 20, 0, "medium") if len(one.data["evidence"]) == 2)
    method, _ = explored(world, [example])
    batch = rollout_batch([1, 1, 0, 0], 4, texts=make_texts(world, example), examples=[example] * 4)
    made = method.rewards(batch, batch.reward).tolist()
    exact, late = (2 + 2 / 4 + 0.5) / 2, (log(3) + 0.5) / 2
    assert made == pytest.approx([exact, late, (0 + 0.5) / 2, (0 + 0.5) / 2], abs=1e-5)
    logged = method.collect()
    assert logged["recall"] == 0.75
    assert logged["searches/2"] == pytest.approx((2 + 3 + 0 + 2) / 4)


def test_a_prompt_that_no_rollout_solved_is_dropped():
    world = Search({"reader": True})
    method, run = FrugalRAG(Config(samples=2)), SimpleNamespace(task=world)
    run.sample = lambda asked, temperature, key: [Completion([], text="<answer></answer>") for _ in asked]
    assert method.data(world.examples("train", 3, 0, "easy"), run) == []


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    options = {"task__name": "search", "task__options": {"reader": True}}
    trained = two_steps("frugalrag", {"samples": 4, "prompts": 16}, base="grpo", **options, **written_episodes)
    assert trained.steps[0]["frugalrag/prompts_kept"] == 1
    assert max(rollout.shaped["frugalrag"] for rollout in trained.rollouts) > 1
