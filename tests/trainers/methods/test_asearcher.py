"""ASearcher: the card's numbers, the base's loss without delay, and weights that are lent and given back."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.methods.session import Session
from trainers.methods.tokens.asearcher import ASearcher, Config, lend_weights, weigh_stale_tokens
from trainers.policies.sampling import Completion


def token_loss(logprob, proximal, behaviour, advantage, epsilon=0.4, cap=5.0):
    ratio = torch.exp(logprob - proximal)
    clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - epsilon, 1 + epsilon) * advantage)
    return -weigh_stale_tokens(proximal, behaviour, cap) * clipped


def test_the_worked_examples_of_the_card():
    values = [torch.tensor([value]) for value in (-0.8, -0.9, -1.0)]
    assert weigh_stale_tokens(values[1], values[2], 5.0).item() == pytest.approx(1.10517, abs=1e-5)
    assert token_loss(*values, 1.0).item() == pytest.approx(-1.22140, abs=1e-5)
    assert torch.exp(torch.tensor(-0.3 + 2.0)).item() == pytest.approx(5.474, abs=1e-3)
    assert token_loss(torch.tensor([-0.2]), torch.tensor([-0.3]), torch.tensor([-2.0]), 1.0).item() == 0


@given(st.lists(st.tuples(st.floats(-8, 0), st.floats(-8, 0)), min_size=1, max_size=6), st.floats(1, 20))
def test_weights_are_at_most_the_cap_and_never_negative(pairs, cap):
    proximal, behaviour = torch.tensor(pairs).T
    weights = weigh_stale_tokens(proximal, behaviour, cap)
    assert ((weights >= 0) & (weights <= cap)).all()
    assert torch.equal(weights == 0, torch.exp(proximal - behaviour) > cap)


def stale_batch(behaviour, mask=None):
    logprobs = torch.tensor([[-1.0, -2.0, -0.5], [-0.1, -3.0, -1.0]], requires_grad=True)
    notes = [{"age": 1, "behaviour": row} for row in behaviour]
    mask = torch.ones(2, 3) if mask is None else mask
    return loss_batch(logprobs, torch.ones(2), rollout=rollout_batch([1.0, 0.0], 2, notes=notes, mask=mask), mask=mask)


def test_without_a_delay_nothing_changes():
    batch = stale_batch([[-1.0, -2.0, -0.5], [-0.1, -3.0, -1.0]])
    assert torch.equal(ASearcher().token_weights(batch), torch.ones(2, 3))
    assert ASearcher().log_ratios(batch) is None


def test_ragged_rows_and_the_worlds_tokens_count_as_if_they_were_not_there():
    mask = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    method = ASearcher(Config(cap=2.0))
    weights = method.token_weights(stale_batch([[-1.0, 0.0, -2.5], [-0.1]], mask))
    assert weights.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert method.collect()["capped"] == pytest.approx(1 / 3)


def test_the_plain_ratio_is_the_one_to_the_weights_that_sampled():
    batch = stale_batch([[-1.5, -2.0, -0.5], [-0.1, -3.0, -2.0]])
    method = ASearcher(Config(ratio="plain"))
    assert method.token_weights(batch) is None
    assert torch.allclose(method.log_ratios(batch), torch.tensor([[0.5, 0, 0], [0, 0, 1.0]]))


def test_groups_of_equal_rewards_are_left_out_and_others_are_centred():
    batch = rollout_batch([1, 0, 0, 0, 1, 1, 1, 1], 4, notes=[{"age": 0}] * 8)
    assert ASearcher().advantages(batch, batch.reward).tolist() == [0.75, -0.25, -0.25, -0.25, 0, 0, 0, 0]
    assert batch.left_out.tolist() == [False] * 4 + [True] * 4


class Writing(Session):
    """Answers with the model's only weight."""

    def complete(self, prompts=None, examples=None, **rest):
        return [Completion([1], [2], [1], logprobs=[self.model.weight.item()]) for _ in prompts]


def roll_out(method, model, step, seed=0):
    session = Writing(None, model, [None] * 8, [[]] * 8, 2, step, 9, 1.0, 8, random.Random(seed))
    return method.rollout(session)


def test_groups_are_sampled_by_weights_no_older_than_the_delay():
    method, model = ASearcher(Config(delay=2)), torch.nn.Linear(1, 1, bias=False)
    seen = set()
    for step in range(1, 9):
        with torch.no_grad():
            model.weight.fill_(float(step))
        made = roll_out(method, model, step, step)
        assert model.weight.item() == step  # its own again
        for first, second in zip(made[::2], made[1::2], strict=True):
            assert first.notes["age"] == second.notes["age"] <= 2
            assert first.notes["behaviour"] == [step - first.notes["age"]]
            seen.add(first.notes["age"])
    assert seen == {0, 1, 2}
    again = ASearcher(Config(delay=2))
    again.restore(method.state())
    assert [step for step, _ in again.past] == [6, 7, 8]
    assert [one.notes for one in roll_out(again, model, 8)] == [one.notes for one in roll_out(method, model, 8)]


def test_lent_weights_are_given_back_after_a_failure():
    model = torch.nn.Linear(2, 1)
    before = model.weight.clone()

    def fail():
        assert model.weight.tolist() == [[0, 0]]
        raise RuntimeError

    with pytest.raises(RuntimeError), lend_weights(model, {"weight": torch.zeros(1, 2)}):
        fail()
    assert torch.equal(model.weight, before)


@pytest.mark.training
def test_two_real_steps_with_micro_batches(two_steps):
    trained = two_steps(
        "asearcher",
        {"delay": 2},
        training__max_steps=4,
        training__learning_rate=1e-3,
        training__per_device_train_batch_size=8,
        training__gradient_accumulation_steps=2,
    )
    assert trained.steps[0]["asearcher/age"] == 0
    assert trained.steps[0]["asearcher/distance"] < 1e-4  # nothing is old in the first step
    assert max(step["asearcher/age"] for step in trained.steps) > 0
    assert max(step["asearcher/distance"] for step in trained.steps[1:]) > 1e-4


def test_a_batch_sampled_in_two_halves_keeps_one_copy_a_step():
    method, model = ASearcher(Config(delay=1)), torch.nn.Linear(1, 1, bias=False)
    for _ in range(2):
        roll_out(method, model, 1)
    assert len(method.past) == 1
    assert SimpleNamespace(**method.state()).past[0][0] == 1
