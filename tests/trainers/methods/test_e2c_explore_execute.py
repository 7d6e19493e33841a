"""E2C: the card's numbers, its parent without weight and constraint, alignment of any text a policy may write."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch, token_batch
from trainers.methods.tokens.e2c_explore_execute import (
    E2C,
    Config,
    aligned_titles,
    before_split,
    common_words,
    compute_plan_alignment,
    list_step_titles,
)

SPLIT = "</think>"
PLAN = "1. Set up equation\n2. **Solve quadratic**\n3. Check roots\n"


def of_texts(texts, rewards, group_size=2):
    """One token a character."""
    longest = max(map(len, texts))
    mask = torch.tensor([[1.0] * len(text) + [0.0] * (longest - len(text)) for text in texts])
    return rollout_batch(rewards, group_size, texts=texts, mask=mask)


def weights_of(method, rollout):
    return method.token_weights(loss_batch(torch.zeros_like(rollout.mask), torch.ones(len(rollout.texts)), rollout=rollout, mask=rollout.mask))


def test_the_worked_example_of_token_advantages():
    rollout = rollout_batch([1.0], 1, texts=["ab</think>cde"], mask=torch.ones(1, 6))
    rollout.ends = [[1, 2, 10, 11, 12, 13]]
    assert (0.5 * weights_of(E2C(Config(weight=2.0)), rollout)).tolist() == [[1.0, 1.0, 0.5, 0.5, 0.5, 0.5]]


def test_the_worked_example_of_the_reward():
    assert list_step_titles(PLAN) == ["set up equation", "solve quadratic", "check roots"]
    assert aligned_titles(list_step_titles(PLAN), ["set up equation", "we solve quadratic now"]) == pytest.approx(2 / 3)
    text = PLAN + SPLIT + "1. Set up equation\n2. Solve quadratic\n"
    method = E2C(Config())
    assert method.rewards(of_texts([text, text], [1.0, 0.0]), torch.tensor([1.0, 0.0])).tolist() == pytest.approx([2 / 3, 0.0])
    assert method.collect()["alignment_right"] == pytest.approx(2 / 3)


def test_on_equations_the_conclusion_stands_for_the_plan():
    assert compute_plan_alignment("<think>3+3=6 6+5=11</think><answer>11</answer>", SPLIT) == 1.0
    assert compute_plan_alignment("<think>3+3=6 6+5=11</think><answer>10</answer>", SPLIT) == 0.0
    assert compute_plan_alignment("<think>3+3=1</think><answer>11</answer>", SPLIT) == 0.0
    assert compute_plan_alignment("<think></think><answer>11</answer>", SPLIT) == 0.0
    assert compute_plan_alignment("<think>Thu+1=Fri</think><answer>Friday</answer>", SPLIT) == 1.0


def test_words_in_order():
    assert common_words("solve the quadratic", "first solve a quadratic equation") == pytest.approx(2 / 3)
    assert common_words("", "anything") == 0.0


def test_with_weight_1_and_the_plain_reward_it_is_its_parent():
    rollout, method = of_texts(["1+1=2</think>x", "no split"], [1.0, 0.0]), E2C(Config(weight=1.0, reward="plain"))
    assert torch.equal(weights_of(method, rollout), torch.ones_like(rollout.mask))
    rewards = torch.tensor([0.3, 0.7])
    assert torch.equal(method.rewards(rollout, rewards), rewards)


@settings(deadline=None)
@given(st.lists(st.text("1.=ab \n*</think>", max_size=30), min_size=2, max_size=2), st.sampled_from(["", SPLIT]))
def test_any_text_has_an_alignment_and_masked_tokens_no_extra_weight(texts, split):
    texts = [text + split + "x" for text in texts]
    assert all(0.0 <= compute_plan_alignment(text, SPLIT) <= 1.0 for text in texts)
    rollout, method = of_texts(texts, [1.0, 0.0]), E2C(Config(weight=3.0))
    rollout.mask[1] = 0.0
    weights = weights_of(method, rollout)
    assert set(weights.unique().tolist()) <= {1.0, 3.0}
    assert (weights[1] == 1.0).all()
    assert (weights[0] == 3.0).sum() == max(0, texts[0].find(SPLIT))


def test_fine_tuning_sees_the_plan_alone():
    ids, mask = torch.tensor([[9, 1, 2, 7, 8, 3], [9, 1, 2, 3, 4, 5]]), torch.tensor([[0.0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])
    assert before_split(ids, mask, [7, 8]).tolist() == [[0, 1, 1, 0, 0, 0], [0] * 6]
    method = E2C(Config())
    method.split_ids = [7, 8]
    batch = token_batch(torch.full((2, 6), -3.0), ids=ids, mask=mask)
    weights = method.sft_weights(batch)
    assert (-(weights * batch.logprobs * mask).sum() / mask.sum()).item() == pytest.approx(3.0)  # the mean over plan tokens


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("e2c-explore-execute", {"weight": 4.0}, base="grpo")
    for rollout in trained.rollouts:
        expected = compute_plan_alignment(rollout.completion, SPLIT) * rollout.rewards["correct"]
        assert rollout.shaped["e2c-explore-execute"] == pytest.approx(expected)
    first = trained.steps[0]
    assert first["e2c-explore-execute/plan_tokens"] > 1
    assert 1.0 < first["e2c-explore-execute/token_weight"] < 4.0


@pytest.mark.training
def test_two_real_steps_of_fine_tuning(two_steps):
    trained = two_steps("e2c-explore-execute", trainer="sft")
    assert 0.2 < trained.steps[0]["e2c-explore-execute/plan_share"] < 1.0
