"""HierSearch: the card's numbers, GRPO without the share of tools, and a planner that needs both agents."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.worlds.hiersearch import Config, HierSearch, score_planner
from trainers.worlds.two_corpora import TwoCorpora


def test_the_worked_example():
    assert score_planner("no", "yes", 1, 3, 0.1) == pytest.approx(0.0333, abs=1e-4)
    assert score_planner("a b c", "b c d e f g h"[:9], 0, 3, 0.1) == pytest.approx(4 / 7)
    assert score_planner(None, "yes", 3, 3, 0.1) == 0


@given(st.integers(0, 3), st.floats(0, 1), st.sampled_from(["yes", "no", "the yes", ""]))
def test_a_wrong_answer_never_pays_more_than_the_share_of_tools(used, share, answer):
    paid = score_planner(answer, "yes", used, 3, share)
    assert 0 <= paid <= 1
    assert (paid == 1) == ("yes" in answer or (used == 3 and share == 1))


def make_batch(world):
    """Both agents asked, one of them and a wrong answer, an answer at once, and no answer."""
    example = world.examples("train", 1, 0, "easy")[0]
    gold = world.gold(example)
    first = gold[: gold.index("</information>") + len("</information>")]
    texts = [gold, first + "<answer>none</answer>", "<answer>none</answer>", first]
    scores = [world.rewards["correct"].function(text, example) for text in texts]
    return rollout_batch(scores, 4, texts=texts, examples=[example] * 4)


def test_a_wrong_answer_pays_for_the_agents_that_were_asked():
    world = TwoCorpora({"agents": True})
    method = HierSearch()
    method.prepare(SimpleNamespace(task=world))
    batch = make_batch(world)
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx([1, 0.05, 0, 0])
    logged = method.collect()
    assert (logged["asked/local"], logged["asked/web"]) == (0.75, 0.25)


def test_without_the_share_it_is_grpo():
    world = TwoCorpora({"agents": True})
    method = HierSearch(Config(tool_share=0.0))
    method.prepare(SimpleNamespace(task=world))
    batch = make_batch(world)
    assert torch.equal(method.rewards(batch, batch.reward), batch.reward)


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    options = {"task__name": "two_corpora", "task__options": {"agents": True, "junk": 0.3}}
    trained = two_steps("hiersearch", base="grpo", **options, **written_episodes)
    assert {round(rollout.shaped["hiersearch"], 3) for rollout in trained.rollouts} <= {0.0, 1.0}
    assert all(step["hiersearch/agent_searches"] >= step["hiersearch/calls"] for step in trained.steps)
