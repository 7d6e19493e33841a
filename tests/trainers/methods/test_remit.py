"""ReMiT: the card's numbers, plain fine-tuning where the models agree or the bound is 0, weights that ignore a constant gap."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.methods.tokens.remit import guided_weights

EXPERT, LEARNER = torch.tensor([[-0.5, -2.0, -1.0]]), torch.tensor([[-1.0, -2.0, -0.8]])
ALL = torch.ones(1, 3)
NUMBERS = st.lists(st.floats(-12, 0), min_size=4, max_size=4)


def test_the_worked_example():
    free = guided_weights(EXPERT, LEARNER, ALL, 1.0)
    assert free[0].tolist() == pytest.approx([1.1974, 0.9500, 0.8511], abs=1e-4)
    weights = guided_weights(EXPERT, LEARNER, ALL, 0.1)
    assert weights[0].tolist() == pytest.approx([1.1, 0.95, 0.9], abs=1e-4)
    assert (weights * -LEARNER).mean().item() == pytest.approx(1.2400, abs=1e-4)
    assert -LEARNER.mean().item() == pytest.approx(1.2667, abs=1e-4)


@given(NUMBERS, NUMBERS, st.floats(0, 1), st.floats(-3, 3))
def test_weights_stay_in_bounds_and_ignore_a_constant_gap(expert, learner, bound, shift):
    expert, learner = torch.tensor([expert], dtype=torch.double), torch.tensor([learner], dtype=torch.double)
    weights = guided_weights(expert, learner, torch.ones(1, 4), bound)
    assert ((weights >= 1 - bound - 1e-9) & (weights <= 1 + bound + 1e-9)).all()
    assert torch.allclose(guided_weights(expert + shift, learner, torch.ones(1, 4), bound), weights)


@given(NUMBERS)
def test_plain_fine_tuning_where_the_models_agree_or_the_bound_is_0(logprobs):
    logprobs = torch.tensor([logprobs])
    assert torch.allclose(guided_weights(logprobs, logprobs, torch.ones(1, 4), 0.5), torch.ones(1, 4))
    assert torch.equal(guided_weights(logprobs, -logprobs, torch.ones(1, 4), 0.0), torch.ones(1, 4))


def test_masked_tokens_do_not_move_the_mean_of_their_sequence():
    expert = torch.tensor([[-0.5, -2.0, -1.0, -90.0], [-1.0, -1.0, -1.0, -1.0], [-3.0, -1.0, -1.0, -1.0]])
    learner = torch.tensor([[-1.0, -2.0, -0.8, -0.1], [-2.0, -2.0, -2.0, -2.0], [-9.0, -2.0, -2.0, -2.0]])
    mask = torch.tensor([[1.0, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    weights = guided_weights(expert, learner, mask, 0.1)
    assert weights[0].tolist() == pytest.approx([1.1, 0.95, 0.9, 1.0], abs=1e-4)
    assert weights[1:].tolist() == [[1.0] * 4] * 2  # no loss token; a single one is its own mean


@pytest.mark.training
def test_real_steps_with_the_policy_it_starts_from(two_steps):
    trained = two_steps("remit", {"bound": 0.3}, trainer="sft", training__max_steps=3, training__learning_rate=1e-2)
    first, *_, last = trained.steps
    assert first["remit/token_weight"] == pytest.approx(1.0, abs=1e-4)  # both models are the same
    assert first["remit/up_weighted"] + first["remit/down_weighted"] <= 1.0
    assert last["remit/up_weighted"] > 0
    assert sum(last[f"remit/weights/{place:02d}"] for place in range(20)) == pytest.approx(1)
    assert all(last[f"remit/weights/{place:02d}"] == 0 for place in (0, 1, 2, 3, 17, 18, 19))  # 1 +- 0.3
