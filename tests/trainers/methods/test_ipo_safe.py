"""Intervened preference optimisation: the card's numbers, a loss that begins at the cut, and chains that are corrected where they go wrong."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods import pair_files
from tests.trainers.methods.batches import pair_batch
from trainers.adapters.dpo import method_loss
from trainers.methods.bases.dpo import DPO
from trainers.methods.pairs.ipo_safe import Config, IPOSafe, compliance_cue, first_difference, from_cut, safety_trigger, shared_prefix
from trainers.methods.stack import Stack

GOLD = "<think>3+3=6 6+5=11</think><answer>11</answer>"


def base(score):
    return -logsigmoid(score)


def sides(prefix):
    """Two tokens shared, two of each side's own, with the card's log-ratios behind a prefix of any."""
    chosen, rejected = torch.tensor([[*prefix, 0.3, 0.2]]), torch.tensor([[*prefix, -0.1, -0.4]])
    ids = {"chosen_ids": torch.tensor([[7, 8, 1, 2]]), "rejected_ids": torch.tensor([[7, 8, 3, 4]])}
    return pair_batch(chosen, rejected, **ids)


@pytest.mark.parametrize("prefix", [(0.0, 0.0), (5.0, -90.0)])
def test_the_worked_examples(prefix):
    assert compliance_cue([0.4, 0.3, 0.05, 0.03], 0.1) == 2
    loss = method_loss(Stack(DPO(), [IPOSafe(Config(nll=0.0))]), sides(prefix), base)
    assert loss.item() == pytest.approx(0.6444, abs=1e-4)


def test_cues_and_triggers_may_be_missing():
    assert compliance_cue([0.4, 0.3], 0.1) is None
    assert compliance_cue([], 0.1) is None
    assert safety_trigger([0.2, 0.95, 0.5, 0.95, 0.96, 0.99], 0.9, 3) == 3
    assert safety_trigger([0.2, 0.95, 0.99], 0.9, 15) == 1  # to the end of the chain
    assert safety_trigger([0.2], 0.9, 1) is None


def test_sides_without_a_common_start_give_dpo():
    chosen, rejected = torch.tensor([[0.3, 0.2]]), torch.tensor([[-0.1, -0.4, 0.6]])
    batch = pair_batch(chosen, rejected, chosen_ids=torch.tensor([[1, 2]]), rejected_ids=torch.tensor([[2, 2, 2]]))
    loss = method_loss(Stack(DPO(), [IPOSafe(Config(nll=0.0))]), batch, base)
    assert loss.item() == pytest.approx(base(0.1 * (chosen.sum() - rejected.sum())).item())


def test_the_likelihood_term_counts_the_chosen_suffix_alone():
    batch = sides((-1.0, -2.0))
    assert IPOSafe(Config(nll=0.2)).loss(batch).item() == pytest.approx(-0.2 * 0.25)
    assert IPOSafe(Config(nll=0.0)).loss(batch) is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_nothing_before_the_first_difference_has_a_gradient(one, other):
    chosen, rejected = torch.tensor([one]), torch.tensor([other])
    start = shared_prefix(chosen, rejected)
    assert one[: start.item()] == other[: start.item()]
    values = torch.ones(1, len(one), requires_grad=True)
    from_cut(values, start).sum().backward()
    assert values.grad[0].tolist() == [float(place >= start.item()) for place in range(len(one))]


def test_a_fully_masked_pair_is_finite():
    nothing = torch.zeros(2, 1)
    batch = pair_batch(nothing, nothing, chosen_mask=nothing, rejected_mask=nothing)
    assert torch.isfinite(method_loss(Stack(DPO(), [IPOSafe(Config())]), batch, base))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think>3+3=6 6+5=12</think><answer>12</answer>", "<think>3+3=6 "),
        ("<think></think><answer>0</answer>", "<think>"),
        ("eleven", ""),
        ("<think>3+3=6 6+5=11</think><answer>12</answer>", "<think>3+3=6 6+5=11</think><answer>"),
    ],
)
def test_a_chain_is_cut_where_its_first_wrong_step_begins(text, kept):
    assert text[: first_difference(text, GOLD)] == kept


def slipped(example):
    """The gold chain with its last equation, and so its answer, off by one."""
    text, wrong = pair_files.gold(example), str(int(example.reference) + 1)
    return text.replace(f"={example.reference}</think>", f"={wrong}</think>").replace(f"<answer>{example.reference}", f"<answer>{wrong}")


@pytest.mark.training
def test_real_steps_on_corrected_chains(tmp_path, two_steps, monkeypatch):
    made = []
    monkeypatch.setattr(IPOSafe, "data", lambda self, rows, run, before=IPOSafe.data: made.append(before(self, rows, run)) or made[-1])
    dataset = pair_files.write(tmp_path, pair_files.rows(16, wrong=slipped))
    trained = two_steps("ipo-safe", {"benign": 0.25}, trainer="dpo", dataset=dataset)
    assert trained.steps[0]["ipo-safe/intervened"] == 1
    assert 0.2 < trained.steps[0]["ipo-safe/prefix_share"] < 0.8
    assert len(made[-1]) == 20
    assert sum("benign" in row for row in made[-1]) == 4
    row = made[-1][0]
    chosen, rejected = (row[side][0]["content"] for side in ("chosen", "rejected"))
    assert chosen[: row["cut"]] == rejected[: row["cut"]]
    assert chosen[row["cut"] :].startswith("Careful: ")
    assert rejected == slipped(pair_files.examples(16)[0])


@pytest.mark.training
def test_the_policy_finds_the_cue_and_writes_the_suffix(tmp_path, two_steps):
    dataset = pair_files.write(tmp_path, pair_files.rows(4, wrong=slipped))
    config = {"detect": "continuations", "continuations": 4, "regenerate": "policy", "benign": 0.0, "trigger": ""}
    trained = two_steps("ipo-safe", config, trainer="dpo", dataset=dataset)
    first = trained.steps[0]
    ratios = [value for name, value in sorted(first.items()) if name.startswith("ipo-safe/safety_ratio/")]
    assert ratios[0] > ratios[-1]  # often right from the first tag on, never after a wrong answer
    assert ratios[-1] == 0
    assert first["ipo-safe/intervened"] > 0


@pytest.mark.training
def test_rows_that_say_the_answer_but_not_the_way_to_it_stay_as_they_are(tmp_path, two_steps):
    made = [pair_files.pair(f"What is {place} and 1?", str(place + 1), "0", reference=str(place + 1)) for place in range(8)]
    trained = two_steps("ipo-safe", trainer="dpo", dataset=pair_files.write(tmp_path, made))
    assert trained.steps[0]["ipo-safe/intervened"] == 0
