"""VRAG-RL: what the order of retrieval is worth, that nothing is paid without a search, and that it is GRPO without both."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.ranking import compute_ndcg
from trainers.methods.worlds.vrag_rl import VRAGRL, Config, count_searches_before, reward_retrieval
from trainers.worlds.observations import Observation
from trainers.worlds.search import Search, read_facts, write_query

WEIGHTS = (0.7, 0.1, 0.2)
SHARES = st.floats(0, 1)


def test_the_worked_example():
    ndcg = torch.tensor(compute_ndcg(["beside", "first", "second"], ["first", "second"]))
    one = torch.tensor(1.0)
    assert reward_retrieval(one, one, ndcg, WEIGHTS, True).item() == pytest.approx(0.9387, abs=1e-4)
    assert reward_retrieval(one, 0 * one, ndcg, WEIGHTS, True).item() == 0
    assert reward_retrieval(one, 0 * one, ndcg, WEIGHTS, False).item() == pytest.approx(0.8387, abs=1e-4)
    assert reward_retrieval(0 * one, one, 0 * ndcg, WEIGHTS, True).item() == pytest.approx(0.1)


@given(st.booleans(), st.booleans(), SHARES, SHARES, st.booleans())
def test_a_better_order_is_never_paid_less_and_never_more_than_the_right_answer(right, form, low, high, gate):
    low, high = sorted((low, high))
    paid = [
        reward_retrieval(torch.tensor(float(right)), torch.tensor(float(form)), torch.tensor(order), WEIGHTS, gate).item() for order in (low, high)
    ]
    assert 0 <= paid[0] <= paid[1] <= 1 + 1e-6
    assert paid[1] - paid[0] < WEIGHTS[0]


def test_searches_before_the_first_needed_document():
    example = SimpleNamespace(data={"evidence": [4, 7]})
    beside, needed = (Observation("<search>x</search>", "<information>y</information>", {"hits": hits}) for hits in ([1, 2], [3, 7]))
    assert count_searches_before([needed, beside], example) == 0
    assert count_searches_before([beside, beside, needed], example) == 2
    assert count_searches_before([beside, beside], example) == 2
    assert count_searches_before([], example) == 0


def make_batch(world):
    """Four members: the shortest way; the same after two searches beside the point; the right answer at once; a search and no answer."""
    example = next(one for one in world.examples("train", 8, 0, "medium") if len(one.data["evidence"]) == 2)
    way, known = world.way(example, world.begin(example)), read_facts(example)
    queries = [write_query(fact) for fact in known.facts]
    beside = [query for query in queries if not set(known.engine.search(query, 2)) & set(example.data["evidence"])][:2]
    ways = [way, [*beside, *way], way[-1:], way[:1]]
    return rollout_batch([1, 1, 1, 0], 4, texts=[world.write_episode(example, one) for one in ways], examples=[example] * 4)


def test_rewards_of_a_group():
    world, method = Search(), VRAGRL()
    method.prepare(SimpleNamespace(task=world))
    batch = make_batch(world)
    short, long, at_once, cut = method.rewards(batch, batch.reward).tolist()
    assert 0.8 < long < short <= 1 + 1e-6
    assert at_once == cut == 0
    logged = method.collect()
    assert logged["form"] == 0.5
    assert logged["searches"] == pytest.approx((2 + 4 + 1) / 3)
    assert logged["searches_before"] == pytest.approx(2 / 3)


def test_without_order_form_and_gate_it_is_grpo():
    world, method = Search(), VRAGRL(Config(answer=1.0, form=0.0, retrieval=0.0, gate=False))
    method.prepare(SimpleNamespace(task=world))
    batch = make_batch(world)
    assert torch.equal(method.rewards(batch, batch.reward), batch.reward)


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("vrag-rl", base="grpo", task={"name": "search", "difficulty": "medium"}, **written_episodes)
    paid = [rollout.shaped["vrag-rl"] for rollout in trained.rollouts]
    assert max(paid) > 0.9
    assert min(paid) == 0
    assert all(0 < step["vrag-rl/ndcg"] <= 1 for step in trained.steps)
