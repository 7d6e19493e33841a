"""EAG-RL: the card's numbers, an expert that finds the columns that count, a bound that opens, and GRPO's loss where it does not."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.methods.worlds.eag_rl import (
    EAGRL,
    Config,
    clip_surrogate,
    compute_upper_bound,
    fit_expert,
    rank_features,
)
from trainers.worlds.records import NOISE, WEIGHTS, Records, make_record, measure_overlap

WORLD = Records({"leak": 0.7})
EXAMPLE = make_record({"mood": 1, "pulse": 1, "iron": 0, "sugar": -1, "sleep": 1})
SPEC = SimpleNamespace(seed=0, task=SimpleNamespace(difficulty="easy"))


def make_method(**config):
    method = EAGRL(Config(records=400, **config))
    method.prepare(SimpleNamespace(task=WORLD, attempt=SimpleNamespace(spec=SPEC)))
    return method


def test_the_cards_numbers():
    assert measure_overlap(["a", "b", "c"], ["b", "c", "d"]) == 0.5
    assert 1 + 0.5 * 0.5 == 1.25
    assert compute_upper_bound(1.0, 2.0, 0.2, 0.2) == pytest.approx(0.3)
    assert compute_upper_bound(3.0, 2.0, 0.2, 0.2) == compute_upper_bound(1.0, 0.0, 0.2, 0.2) == 0.2


def test_the_expert_finds_what_counts_though_noise_leaks():
    expert = fit_expert(WORLD.examples("train", 800, 0, "easy"))
    assert [expert[column] > 0 for column in WEIGHTS] == [weight > 0 for weight in WEIGHTS.values()]
    assert max(abs(expert[column]) for column in NOISE) < min(abs(expert[column]) for column in WEIGHTS)
    rows = WORLD.examples("heldout", 100, 0, "easy")
    overlaps = [measure_overlap(rank_features(expert, row.data["values"], 3), row.data["deciding"]) for row in rows]
    assert sum(overlaps) / 100 > 0.9


def test_rewards_of_a_group():
    texts = [
        "<features>pulse, sugar, sleep</features><answer>no</answer>",
        "<features>mood, pulse</features><answer>yes</answer>",
        "<features>pulse</features>no",
        "<answer>no</answer>",
    ]
    batch = rollout_batch([1.0, 0.0, 0.0, 0.0], 4, texts=texts, examples=[EXAMPLE] * 4)
    assert make_method().rewards(batch, batch.reward).tolist() == pytest.approx([1.7, 0.25 * 0.5 + 0.2, 1 / 6, 0])
    assert make_method(weight=0.0).rewards(batch, batch.reward).tolist() == pytest.approx([1.2, 0.2, 0, 0])


def test_the_bound_follows_the_entropy_and_survives_a_checkpoint():
    method = make_method(rise=0.4)
    for entropy, bound in ((2.0, 0.2), (1.0, 0.4), (4.0, 0.2)):
        method.observe(rollout_batch([0.0, 0.0], 2, entropies=torch.full((2, 3), entropy)))
        assert method.upper == pytest.approx(bound)
    other = make_method()
    other.restore(method.state())
    assert (other.reference_entropy, other.upper) == (2.0, method.upper)
    assert EAGRL(Config(reference=1.5)).reference_entropy == 1.5


@given(st.floats(-1, 1), st.floats(-2, 2), st.floats(0.0, 0.5))
def test_a_wider_bound_never_costs_and_matters_above_it_alone(log_ratio, advantage, more):
    narrow, wide = (clip_surrogate(torch.tensor([[log_ratio]]), torch.tensor([[advantage]]), 0.2, 0.2 + extra).item() for extra in (0.0, more))
    assert wide <= narrow + 1e-6
    if advantage <= 0 or torch.tensor(log_ratio).exp() <= 1.2:
        assert wide == pytest.approx(narrow)


def test_without_a_rise_the_loss_and_its_gradient_are_grpos():
    old, advantages = torch.tensor([[-1.0, -2.0, -0.5], [-0.7, -0.1, -1.1]]), torch.tensor([1.0, -0.5])
    logprobs = (old + torch.tensor([[0.3, -0.3, 0.05], [0.3, -0.3, -0.05]])).requires_grad_()
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    batch = loss_batch(logprobs, advantages, old_logprobs=old, mask=mask)
    method = make_method(rise=0.0)
    method.policy_loss(batch).backward()
    ratio = (logprobs.detach() - old).exp().requires_grad_()
    expected = -torch.min(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None])
    ((expected * mask).sum(1) / mask.sum(1)).mean().backward()
    assert torch.allclose(logprobs.grad, ratio.grad * ratio.detach(), atol=1e-6)
    method.upper = 0.5
    logprobs.grad = None
    method.policy_loss(batch).backward()
    assert logprobs.grad[0, 0] < 0  # what the narrow bound had stopped


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    settings = {"records": 200}
    trained = two_steps("eag-rl", settings, base="grpo", task={"name": "records"}, training__num_iterations=2, **written_episodes)
    for rollout in trained.rollouts:
        if rollout.rewards["correct"]:
            assert rollout.shaped["eag-rl"] >= 1.2 + 0.5 * 0.5 - 1e-6
        else:
            assert rollout.shaped["eag-rl"] == 0
    assert {"eag-rl/overlap", "eag-rl/upper_bound"} <= set(trained.steps[0])
