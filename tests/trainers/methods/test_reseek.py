"""ReSeek: what verdicts are paid, and that without pay for them it is GRPO."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.worlds.reseek import Config, ReSeek, discount_sum, score_verdict
from trainers.worlds.judged_search import JudgedSearch, split_verdict, write_verdict

PAID = (0.3, -0.6, -0.3)
SIDES = st.sampled_from(["yes", "no"])


def test_the_worked_example():
    steps = [score_verdict("yes", "yes", *PAID), score_verdict("yes", "no", *PAID), score_verdict("no", "no", *PAID)]
    assert discount_sum([*steps, 1.0], 1.0) == pytest.approx(1.0)
    assert score_verdict("no", "yes", *PAID) == -0.3
    assert discount_sum([1.0, 2.0, 4.0], 0.5) == pytest.approx(3.0)


@given(SIDES, SIDES)
def test_accepting_what_does_not_help_costs_most(verdict, right):
    paid = score_verdict(verdict, right, *PAID)
    assert (paid > 0) == (verdict == right)
    assert paid >= score_verdict("yes", "no", *PAID)


def make_batch(world):
    """Right all through; with the verdicts turned round; an answer at once; and a search without a verdict after it."""
    example = world.examples("train", 1, 0, "medium")[0]
    gold = world.gold(example)
    turned = gold.replace("<judge>yes", "<judge>?").replace("<judge>no", "<judge>yes").replace("<judge>?", "<judge>no")
    without = gold.replace("<judge>yes</judge>", "").replace("<judge>no</judge>", "")
    texts = [gold, turned, "<answer>none</answer>", without]
    scores = [world.rewards["correct"].function(text, example) for text in texts]
    return rollout_batch(scores, 4, texts=texts, examples=[example] * 4), gold.count("<judge>")


def test_rewards_of_a_group():
    world, method = JudgedSearch(), ReSeek()
    method.prepare(SimpleNamespace(task=world))
    batch, searches = make_batch(world)
    assert searches >= 2
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx([0.3 * searches + 1, -0.3 * searches + 1, 0, 0])
    logged = method.collect()
    assert logged["right_yes"] == logged["wrong_no"] == 0.5
    assert logged["asked_again"] == pytest.approx((searches - 1) / searches)


def test_without_pay_for_verdicts_it_is_grpo():
    world, method = JudgedSearch(), ReSeek(Config(match=0.0, accept_wrong=0.0, reject_right=0.0))
    method.prepare(SimpleNamespace(task=world))
    batch, _ = make_batch(world)
    assert torch.equal(method.rewards(batch, batch.reward), batch.reward)


@given(SIDES, st.text(max_size=20))
def test_a_verdict_is_read_as_it_is_written(verdict, rest):
    assert split_verdict(write_verdict(verdict) + rest) == (verdict, rest)
    assert split_verdict("x" + write_verdict(verdict)) == ("", "x" + write_verdict(verdict))


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("reseek", base="grpo", task__name="judged_search", **written_episodes)
    assert max(rollout.shaped["reseek"] for rollout in trained.rollouts) >= 1.3
    assert all(step["reseek/right_yes"] == 1 for step in trained.steps)
