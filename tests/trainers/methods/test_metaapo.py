"""MetaAPO: the card's numbers, DPO where nothing is sampled, and a meta-learner that is remembered."""

from io import BytesIO

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods import pair_files
from tests.trainers.methods.batches import pair_batch
from trainers.methods.pairs.metaapo import Config, MetaAPO, MetaLearner, best_and_worst, meta_optimiser, mix_pair_losses

losses = st.lists(st.floats(0, 20), min_size=1, max_size=5)


def base(score):
    return -logsigmoid(score)


def test_the_worked_examples():
    learner = MetaLearner()
    fit = logsigmoid(torch.tensor([0.0, 2.0]))
    assert fit.tolist() == pytest.approx([-0.6931, -0.1269], abs=1e-4)
    assert learner(fit).tolist() == pytest.approx([0.3336, 0.4683], abs=1e-4)
    offline, online = base(torch.tensor([0.2])), base(torch.tensor([0.6]))
    assert (offline.item(), online.item()) == pytest.approx((0.5981, 0.4375), abs=1e-4)
    weight = learner(fit[1:]).detach().requires_grad_()
    loss = mix_pair_losses(weight, offline, online)
    loss.sum().backward()
    assert loss.item() == pytest.approx(0.5127, abs=1e-4)
    assert weight.grad.item() == pytest.approx(0.1607, abs=2e-4)


@given(losses, st.floats(0, 1))
def test_the_mixture_lies_between_and_a_weight_of_one_is_dpo(offline, weight):
    offline = torch.tensor(offline)
    online, weight = offline.flip(0) + 1, torch.full_like(offline, weight)
    found = mix_pair_losses(weight, offline, online)
    assert (found >= torch.minimum(offline, online) - 1e-4).all()
    assert (found <= torch.maximum(offline, online) + 1e-4).all()
    assert torch.equal(mix_pair_losses(torch.ones_like(offline), offline, online), offline)


def test_rows_that_nothing_is_known_about_are_trained_on_as_in_dpo():
    method = MetaAPO(Config())
    batch = pair_batch(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.5], [0.0]]), rejected_mask=torch.tensor([[1.0], [0.0]]))
    score = torch.tensor([0.25, 0.0])
    assert torch.equal(method.pair_loss(batch, score, base), base(score))


def test_answers_of_the_same_worth_make_no_pair():
    assert best_and_worst(["a", "b", "c", "d"], [0.0, 1.0, 0.0, 1.0]) == ("b", "a")
    assert best_and_worst(["a", "b"], [0.5, 0.5]) is None


def with_online_pairs(**config):
    """A method that has drawn for both rows; online pairs are fitted much better than offline ones."""
    method = MetaAPO(Config(**config))
    method.drawn = {0: (0, "right", "wrong"), 1: (0, "right", "wrong")}
    method.online_gap = lambda batch, places: torch.full((len(places),), 40.0)
    return method


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=2))
def test_weights_fall_where_the_offline_loss_is_the_larger_one(gaps):
    method = with_online_pairs(meta_every=1, meta_rate=0.01)
    batch = pair_batch(torch.tensor(gaps)[:, None], torch.zeros(2, 1))
    fit = logsigmoid(torch.tensor(gaps))
    before = method.learner(fit)
    method.pair_loss(batch, 0.1 * torch.tensor(gaps), base)
    assert (method.learner(fit) < before).all()


def test_weight_decay_is_decoupled_and_spares_biases():
    """AdamW, as the authors': a weight without gradient shrinks by rate * decay, which Adam's own decay would make a whole step of ``rate``."""
    learner = MetaLearner()
    optimiser = meta_optimiser(learner, 0.005, 1e-2)
    for parameter in learner.parameters():
        parameter.data.fill_(0.1)
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    assert learner.inner.weight.flatten()[0].item() == pytest.approx(0.1 * (1 - 0.005 * 1e-2), rel=1e-6)
    assert learner.outer.weight.flatten()[0].item() == pytest.approx(0.1 * (1 - 0.005 * 1e-2), rel=1e-6)
    assert learner.inner.bias[0].item() == learner.outer.bias[0].item() == pytest.approx(0.1, rel=1e-7)


def test_it_learns_every_so_many_batches_and_goes_on_after_a_checkpoint():
    def go(method, count):
        for place in range(count):
            method.pair_loss(pair_batch(torch.tensor([[-2.0 + place], [1.0]]), torch.zeros(2, 1)), torch.tensor([-0.2, 0.1]), base)
        return method

    whole, half = go(with_online_pairs(meta_every=3), 7), go(with_online_pairs(meta_every=3), 4)
    resumed = with_online_pairs(meta_every=3)
    file = BytesIO()
    torch.save(half.state(), file)
    file.seek(0)
    resumed.restore(torch.load(file, weights_only=True))
    assert resumed.drawn == half.drawn
    for place in range(4, 7):
        resumed.pair_loss(pair_batch(torch.tensor([[-2.0 + place], [1.0]]), torch.zeros(2, 1)), torch.tensor([-0.2, 0.1]), base)
    assert all(torch.equal(one, other) for one, other in zip(whole.learner.parameters(), resumed.learner.parameters(), strict=True))
    assert whole.collect()["meta_loss"] > 0
    assert len(resumed.buffer) == 1


@pytest.mark.training
def test_real_steps_with_pairs_of_the_policys_own(tmp_path, two_steps, written_samples, monkeypatch):
    kept = []
    monkeypatch.setattr(MetaAPO, "prepare", lambda self, run, before=MetaAPO.prepare: (before(self, run), kept.append(self))[0])
    dataset = pair_files.write(tmp_path, pair_files.rows(16, flip_every=2))
    options = {"dataset": dataset, "training__max_steps": 4, "training__learning_rate": 1e-3}
    trained = two_steps("metaapo", {"rounds": 2, "meta_every": 2, "answers": 4}, trainer="dpo", **options)
    first, last = trained.steps[0], trained.steps[-1]
    assert first["metaapo/offline_weight"] == pytest.approx(0.3336, abs=1e-3)  # the policy is its own reference
    assert 0 < first["metaapo/online_share"] < 1
    assert [step["metaapo/reference_updated"] for step in trained.steps] == [0, 0, 1, 0]
    assert last["metaapo/curve/00"] != first["metaapo/curve/00"]
    method = kept[-1]
    for row, (_, best, worst) in method.drawn.items():
        example = method.examples[row]
        assert not best or method.run.score(example, best) > method.run.score(example, worst)
