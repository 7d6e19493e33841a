"""UniAPL: the card's numbers, GRPO without its weights, a term that no shift of the discriminator moves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import events_in, make_spec
from trainers.attempt import train
from trainers.contract.events import Metrics
from trainers.maths.advantages import centre_by_group
from trainers.maths.similarity import compute_text_similarity
from trainers.methods.tokens.uniapl import adversarial_loss
from trainers.tasks import registry

SCORES = st.lists(st.floats(0, 1), min_size=4, max_size=4)


def test_the_worked_example():
    preference = centre_by_group(torch.tensor([0.2, 0.6]), 2)
    assert preference.tolist() == pytest.approx([-0.2, 0.2])
    adversarial = adversarial_loss(preference, torch.tensor([[-1.0, -1.0], [-3.0, -1.0]]), torch.ones(2, 2))
    assert adversarial.item() == pytest.approx(0.1)
    assert (0.1 * 2.0 - 0.3 + 0.5 * adversarial).item() == pytest.approx(-0.05)


@given(SCORES, st.permutations(range(4)), st.floats(-1, 1))
def test_it_ignores_the_order_of_a_group_and_a_shift_of_the_discriminator(scores, order, shift):
    torch.manual_seed(0)
    scores, logprobs, mask = torch.tensor(scores), -torch.rand(4, 3), torch.ones(4, 3)
    loss = adversarial_loss(centre_by_group(scores, 4), logprobs, mask)
    order = list(order)
    assert torch.allclose(adversarial_loss(centre_by_group(scores[order], 4), logprobs[order], mask), loss, atol=1e-5)
    assert torch.allclose(adversarial_loss(centre_by_group(scores + shift, 4), logprobs, mask), loss, atol=1e-5)


def test_samples_more_like_the_teacher_become_likelier():
    logprobs = torch.full((2, 3), -1.0, requires_grad=True)
    adversarial_loss(centre_by_group(torch.tensor([0.9, 0.1]), 2), logprobs, torch.tensor([[1.0, 1, 0], [1, 1, 1]])).backward()
    assert logprobs.grad[0].tolist() == pytest.approx([-0.1, -0.1, 0.0])
    assert logprobs.grad[1].tolist() == pytest.approx([0.2 / 3] * 3)


@pytest.mark.parametrize("scores", [[0.7] * 4, [0.0] * 4])
def test_groups_that_are_all_alike_and_masked_rows_add_nothing(scores):
    assert adversarial_loss(centre_by_group(torch.tensor(scores), 4), torch.full((4, 1), -2.0), torch.ones(4, 1)).item() == 0.0
    assert adversarial_loss(torch.tensor([0.5, -0.5]), torch.full((2, 1), -2.0), torch.zeros(2, 1)).item() == 0.0


def test_its_gradient_is_that_of_finite_differences():
    logprobs = -torch.rand(2, 3, dtype=torch.double).requires_grad_()
    preference, mask = torch.tensor([0.3, -0.3], dtype=torch.double), torch.ones(2, 3, dtype=torch.double)
    assert torch.autograd.gradcheck(lambda x: adversarial_loss(preference, x, mask), logprobs.detach().requires_grad_())


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("uniapl", {"imitation": 0.2, "adversarial": 0.5}, base="grpo")
    task = registry.get_task("mini_gsm")
    golds = {example.prompt[-1].content: task.gold(example) for example in task.examples("train", 64, 0, "easy")}
    for number, step in enumerate(trained.steps, 1):
        expected = 0.2 * step["uniapl/imitation_loss"] + 0.5 * step["uniapl/adversarial_loss"]
        assert step["uniapl/loss"] == pytest.approx(expected, rel=1e-3)
        made = [
            compute_text_similarity(rollout.completion, golds[rollout.prompt[-1].content]) for rollout in trained.rollouts if rollout.step == number
        ]
        assert step["uniapl/similarity"] == pytest.approx(sum(made) / len(made), rel=1e-4)


@pytest.mark.training
def test_without_weights_it_is_grpo(two_steps, tmp_path):
    off = two_steps("uniapl", {"imitation": 0.0, "adversarial": 0.0}, base="grpo", training__learning_rate=1e-3)
    plain = tmp_path / "plain"
    assert train.run_training(make_spec(plain, base={"name": "grpo"}, training__max_steps=2, training__learning_rate=1e-3), plain) == train.FINISHED
    parent = [event.values for event in events_in(plain) if isinstance(event, Metrics) and "loss" in event.values]
    for own, theirs in zip(off.steps, parent, strict=True):
        assert (own["loss"], own["grad_norm"], own["reward"]) == pytest.approx((theirs["loss"], theirs["grad_norm"], theirs["reward"]), abs=1e-7)
