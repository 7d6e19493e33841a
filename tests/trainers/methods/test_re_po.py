"""RE-PO: the card's numbers, DPO when every label is surely right, and a posterior that finds flipped labels."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods.batches import pair_batch
from trainers.methods.pairs.re_po import REPO, Config, compute_label_posterior, soft_loss
from trainers.tasks import registry


def base(score):
    return -logsigmoid(score)


def test_the_worked_examples():
    margins = torch.tensor([0.4, -3.0])
    weight = compute_label_posterior(torch.sigmoid(margins), torch.full((2,), 0.9))
    assert weight.tolist() == pytest.approx([0.9307, 0.3094], abs=1e-4)
    assert soft_loss(margins, weight).tolist() == pytest.approx([0.5407, 0.9769], abs=1e-4)
    method = REPO(Config())
    method.pair_loss(pair_batch(torch.zeros(2, 1), torch.zeros(2, 1)), margins, base)
    assert method.reliabilities["everybody"] == pytest.approx(0.8720, abs=1e-4)


def test_any_pairwise_loss_gives_a_belief():
    """IPO with the losses of the card."""
    assert torch.sigmoid(torch.tensor(0.36 - 0.16)).item() == pytest.approx(0.5498, abs=1e-4)


@given(st.floats(-8, 8))
def test_a_reliable_label_gives_dpo(margin):
    margin = torch.tensor(margin, dtype=torch.double)
    weight = compute_label_posterior(torch.sigmoid(margin), torch.tensor(1.0 - 1e-12, dtype=torch.double))
    assert soft_loss(margin, weight).item() == pytest.approx(-logsigmoid(margin).item(), abs=1e-6)


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=6), st.floats(0.51, 0.999))
def test_the_posterior_is_a_probability_that_grows_with_the_margin(margins, eta):
    margins = torch.tensor(sorted(margins), dtype=torch.double)
    weight = compute_label_posterior(torch.sigmoid(margins), torch.full_like(margins, eta))
    assert ((weight >= 0) & (weight <= 1)).all()
    assert (weight.diff() >= -1e-9).all()
    assert torch.isfinite(soft_loss(margins, weight)).all()


def test_annotators_have_reliabilities_of_their_own_that_survive_a_checkpoint():
    rows = [{"annotator": "ann"}, {"annotator": "bob"}]
    method = REPO(Config(rate=0.5))
    for _ in range(5):
        method.pair_loss(pair_batch(torch.zeros(2, 1), torch.zeros(2, 1), rows=rows), torch.tensor([4.0, -4.0]), base)
    assert method.reliabilities["ann"] > 0.9 > 0.5 > method.reliabilities["bob"]
    resumed = REPO(Config(rate=0.5))
    resumed.restore(method.state())
    assert resumed.reliabilities == method.reliabilities


def test_only_the_margin_gets_a_gradient():
    margin = torch.tensor([0.7], dtype=torch.double, requires_grad=True)
    loss = REPO(Config()).pair_loss(pair_batch(torch.zeros(1, 1), torch.zeros(1, 1)), margin, base)
    loss.sum().backward()
    weight = compute_label_posterior(torch.sigmoid(margin.detach()), torch.tensor([0.9], dtype=torch.double))
    assert margin.grad.item() == pytest.approx((torch.sigmoid(margin.detach()) - weight).item(), abs=1e-9)


@pytest.mark.training
def test_two_real_steps_on_noisy_pairs(tmp_path, two_steps):
    task, rows = registry.get_task("mini_gsm"), []
    for place, example in enumerate(task.examples("pairs", 32, 0, "easy")):
        right, wrong = task.gold(example), "<think></think><answer>0</answer>"
        flipped = place % 4 == 0
        chosen, rejected = (wrong, right) if flipped else (right, wrong)
        prompt = [{"role": "user", "content": example.prompt[0].content}]
        sides = {name: [{"role": "assistant", "content": text}] for name, text in (("chosen", chosen), ("rejected", rejected))}
        rows.append({"prompt": prompt, **sides, "flipped": flipped, "annotator": "ann"})
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    trained = two_steps("re-po", trainer="dpo", dataset={"path": str(file)}, training__max_steps=6, training__learning_rate=1e-3)
    last = trained.steps[-1]
    assert trained.steps[0]["re-po/posterior"] == pytest.approx(0.9, abs=1e-3)  # nothing is known yet
    assert last["re-po/posterior_flipped"] < last["re-po/posterior_clean"]
    assert sum(last[f"re-po/posterior_of_pairs/{place:02d}"] for place in range(20)) == pytest.approx(1)
