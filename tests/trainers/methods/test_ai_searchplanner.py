"""AI-SearchPlanner: the card's numbers, GRPO without weights, and what a search is worth."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.checks.preflight import run_preflight_checks
from trainers.maths.advantages import z_score
from trainers.methods.worlds.ai_searchplanner import AISearchPlanner, Config, combine_terms, compute_search_cost
from trainers.worlds.search import Search

UNIT = st.floats(0, 1)


def test_the_worked_example():
    cost = compute_search_cost(2, 5, 3, 10)
    assert cost == pytest.approx(0.35)
    assert combine_terms(0.9 - 0.4, 0.8, cost, 0.5, 0.3) == pytest.approx(0.795)


@given(st.floats(-1, 1), UNIT, UNIT, UNIT, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_lambda_never_pays_more(gain, process, cost, weight, low, high):
    low, high = sorted((low, high))
    assert combine_terms(gain, process, cost, weight, high) <= combine_terms(gain, process, cost, weight, low) + 1e-9


def make_batch(world, example):
    """All that is needed, all and one search more, nothing, and a search without an end."""
    gold = world.gold(example)
    searches = gold[: gold.index("<answer>")]
    last = searches[searches.rindex("<search>") :]
    texts = [gold, searches + last + "<answer></answer>", "<answer></answer>", searches]
    scores = [world.rewards["correct"].function(text, example) for text in texts]
    return rollout_batch(scores, 4, texts=texts, examples=[example] * 4), searches.count("<search>")


def prepared(world, **config):
    method = AISearchPlanner(Config(**config))
    method.prepare(SimpleNamespace(task=world))
    return method


def test_what_a_group_is_paid():
    world = Search({"reader": True})
    example = next(one for one in world.examples("train", 50, 0, "medium") if world.answer_as_reader(one, []) != one.reference)
    batch, searches = make_batch(world, example)
    made = prepared(world, process_weight=0.5, cost_weight=0.4).rewards(batch, batch.reward)
    cost = [0.5 * (queries + 1) / 5 + 0.5 * queries / 4 for queries in (searches, searches + 1, 0)]
    expected = [1 + 0.5 - 0.4 * cost[0], 1 + 0.5 * searches / (searches + 1) - 0.4 * cost[1], -0.4 * cost[2]]
    assert made.tolist()[:3] == pytest.approx(expected, abs=1e-5)
    assert made[3] == pytest.approx(-0.4 * (0.5 * searches / 5 + 0.5 * searches / 4), abs=1e-5)


def test_a_search_for_what_the_reader_knows_is_not_worth_its_cost():
    world = Search({"reader": True, "known": 1.0})
    batch, _ = make_batch(world, world.examples("train", 1, 0, "medium")[0])
    made = prepared(world).rewards(batch, batch.reward)
    assert made.argmax() == 2


def test_without_weights_it_is_grpo():
    world = Search({"reader": True, "known": 0.5})
    for example in world.examples("train", 5, 0, "medium"):
        batch, _ = make_batch(world, example)
        made = prepared(world, process_weight=0.0, cost_weight=0.0).rewards(batch, batch.reward)
        assert torch.allclose(z_score(made, 4), z_score(batch.reward, 4), atol=1e-5)


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    options = {"task__name": "search", "task__options": {"reader": True, "known": 0.5}}
    trained = two_steps("ai-searchplanner", {"cost_weight": 0.3}, base="grpo", **options, **written_episodes)
    assert all(0 < step["ai-searchplanner/cost"] < 1 for step in trained.steps)
    assert all(-1.3 <= rollout.shaped["ai-searchplanner"] <= 1.5 for rollout in trained.rollouts)


def test_without_a_reader_the_run_is_refused(tmp_path):
    from tests.trainers.conftest import make_spec

    spec = make_spec(tmp_path, task__name="search", methods=[{"name": "ai-searchplanner"}], base={"name": "grpo"})
    assert [problem.field for problem in run_preflight_checks(spec).problems] == ["task.options.reader"]
