"""DPO-PoP: the card's numbers, DPO without margins and weaker pairs, couples that point from strong to weak, and a target that is remembered."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods import pair_files
from tests.trainers.methods.batches import pair_batch
from trainers.adapters.dpo import method_loss
from trainers.methods.bases.dpo import DPO
from trainers.methods.pairs.dpo_pop import Config, DPOPoP, adaptive_margin, compute_polyak_average, draw_couples, rank_correlation
from trainers.methods.stack import Stack


def test_the_worked_examples():
    margins = adaptive_margin(torch.tensor([0.5, -0.3]), 5.0)
    assert margins.tolist() == [0.5, 0.0]
    terms = -logsigmoid(torch.tensor([1.2, 1.2]) - margins)
    assert terms.tolist() == pytest.approx([0.4032, 0.2633], abs=1e-4)
    assert -logsigmoid(torch.tensor(0.4)).item() == pytest.approx(0.5130, abs=1e-4)


@pytest.mark.parametrize("config", [Config(), Config(max_margin=0.0, weaker=False)])
def test_without_partners_it_is_dpo(config):
    batch = pair_batch(torch.tensor([[1.0, 2.0], [0.5, 0.0]]), torch.tensor([[0.3], [-0.4]]))
    loss = method_loss(Stack(DPO(), [DPOPoP(config)]), batch, lambda score: -logsigmoid(score))
    assert loss.item() == pytest.approx(-logsigmoid(0.1 * torch.tensor([2.7, 0.9])).mean().item())


def test_the_loss_of_a_couple():
    """h(i) = 1.2 against a weaker pair whose margin is 0.5 for the target and 0.4 for the policy."""

    class Known(DPOPoP):
        def difference(self, rows, model):
            return torch.tensor([{"reference": 0.0, "target": 5.0}.get(model, 4.0)])

        def target(self):
            return "target"

    method = Known(Config())
    method.run = type("Run", (), {"reference": "reference"})
    batch = pair_batch(torch.tensor([[12.0]]), torch.tensor([[0.0]]), rows=[{"partner": {}, "strength": 1.0}])
    loss = method_loss(Stack(DPO(), [method]), batch, lambda score: -logsigmoid(score))
    assert loss.item() == pytest.approx(0.4032 + 0.5130, abs=1e-4)


@given(st.lists(st.floats(0, 9), min_size=1, max_size=8), st.sampled_from(["random", "iterative"]), st.integers(1, 3), st.integers(0, 99))
def test_a_couple_points_from_the_stronger_to_the_weaker_pair(strengths, sampler, partners, seed):
    made = draw_couples(strengths, sampler, partners, random.Random(seed))
    assert len(made) == len(strengths) * partners
    assert all(weaker is None or strengths[one] > strengths[weaker] for one, weaker in made)
    if sampler == "iterative":
        assert sorted(one for one, _ in made) == sorted(list(range(len(strengths))) * partners)


def test_random_couples_favour_strong_pairs():
    strengths = [float(value) for value in range(20)]
    seen = [one for one, _ in draw_couples(strengths, "random", 50, random.Random(0))]
    assert sum(one >= 10 for one in seen) > 0.7 * len(seen)


@settings(deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=8), st.floats(0, 5))
def test_margins_are_bounded_and_carry_no_gradient(weaker, most):
    weaker = torch.tensor(weaker, requires_grad=True)
    margins = adaptive_margin(weaker, most)
    assert ((margins >= 0) & (margins <= most + 1e-6)).all()
    assert not margins.requires_grad


@given(st.permutations(list(range(6))))
def test_rank_correlation_sees_order_alone(order):
    values = torch.tensor([float(place) for place in order])
    assert rank_correlation(values, values.exp()).item() == pytest.approx(1)
    assert rank_correlation(values, -values).item() == pytest.approx(-1)
    assert rank_correlation(values, torch.ones(6)).item() == 0


def test_the_average_moves_slowly():
    assert compute_polyak_average(torch.tensor(1.0), torch.tensor(2.0), 0.99).item() == pytest.approx(1.01)


@pytest.mark.training
def test_real_steps_with_a_target_that_lags_and_is_remembered(tmp_path, two_steps, monkeypatch):
    kept = []
    monkeypatch.setattr(DPOPoP, "prepare", lambda self, run, before=DPOPoP.prepare: (before(self, run), kept.append(self))[0])
    dataset = pair_files.write(tmp_path, pair_files.rows(32, strength=lambda place: place % 4))
    trained = two_steps("dpo-pop", {"tau": 0.5}, trainer="dpo", dataset=dataset, training__max_steps=4, training__learning_rate=1e-3)
    first, last = trained.steps[0], trained.steps[-1]
    assert first["dpo-pop/couples"] == pytest.approx(3 / 8, abs=0.2)  # about as many as have a weaker partner among four strengths
    assert first["dpo-pop/margin"] == pytest.approx(0, abs=1e-4)  # the target is the reference
    assert last["dpo-pop/margin"] > 0.01
    assert last["dpo-pop/loss"] > 0
    method, weights = kept[-1], dict(kept[-1].run.model.named_parameters())
    state = method.state()
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(state["target"][name], weights[name].detach())
    method.restore(state)
    assert torch.equal(method.target().state_dict()[name], state["target"][name])
