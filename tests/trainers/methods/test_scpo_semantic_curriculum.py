"""SCPO: the card's numbers, DPO without its second context, stages from coarse to fine, and a reference that moves between them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods import pair_files
from tests.trainers.methods.batches import pair_batch
from trainers.attempt.stages import stage_of, stage_starts
from trainers.methods.pairs.scpo_semantic_curriculum import SCPO, Config, compute_swap_share, cut_into_stages, four_margins, retell_problem

scores = st.floats(-20, 20)


def base(score):
    return -logsigmoid(score)


def test_the_worked_example():
    margins = four_margins(*(torch.tensor([value]) for value in (1.0, 0.2, 0.5, 0.1)))
    assert margins[:, 0].tolist() == pytest.approx([0.8, 0.4, 0.9, 0.3])
    assert base(margins)[:, 0].tolist() == pytest.approx([0.3711, 0.5130, 0.3412, 0.5544], abs=1e-4)
    assert base(margins).mean().item() == pytest.approx(0.4449, abs=1e-4)


@given(scores, scores, scores, scores, scores)
def test_margins_ignore_a_shift_of_all_scores_and_swapping_the_contexts_only_permutes_them(a, b, c, d, shift):
    values = [torch.tensor([value], dtype=torch.double) for value in (a, b, c, d)]
    margins = four_margins(*values)
    assert torch.allclose(four_margins(*(value + shift for value in values)), margins)
    assert sorted(four_margins(values[2], values[3], values[0], values[1])[:, 0].tolist()) == pytest.approx(sorted(margins[:, 0].tolist()))


def test_a_row_without_a_second_context_is_trained_on_as_in_dpo():
    batch = pair_batch(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.2, 0.3]]))
    score = torch.tensor([0.05])
    assert torch.equal(SCPO(Config()).pair_loss(batch, score, base), base(score))


@pytest.mark.parametrize("two_way", [True, False])
def test_the_loss_of_a_row_with_one(two_way, monkeypatch):
    method = SCPO(Config(two_way=two_way))
    method.starts = [1]
    monkeypatch.setattr(method, "margins", lambda batch, places: torch.tensor([[0.8], [0.4], [0.9], [0.3]]))
    batch = pair_batch(torch.zeros(2, 1), torch.zeros(2, 1), rows=[{}, {"contrast": [{}]}])
    batch.score = torch.tensor([0.1, 0.8])
    losses = method.pair_loss(batch, batch.score, base)
    assert losses[0].item() == pytest.approx(base(torch.tensor(0.1)).item())
    assert losses[1].item() == pytest.approx(0.4449 if two_way else 0.3711, abs=1e-4)


def test_an_answer_that_swaps_with_its_context_is_right_in_both():
    high, low = torch.tensor([-1.0, -1.0]), torch.tensor([-2.0, -2.0])
    assert compute_swap_share(high, low, torch.tensor([-1.0, -3.0]), low).item() == 0.5


@given(st.integers(1, 200), st.integers(1, 9))
def test_stages_share_the_steps(steps, stages):
    starts = stage_starts(steps, stages)
    sizes = [end - start for start, end in zip(starts, [*starts[1:], steps + 1], strict=True)]
    assert starts[0] == 1
    assert max(sizes) - min(sizes) <= 1
    assert [stage_of(start, starts) for start in starts] == list(range(len(starts)))


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(1, 5))
def test_coarse_differences_come_first(similarities, stages):
    parts = cut_into_stages([{"similarity": value} for value in similarities], stages)
    assert sorted(similarities) == [row["similarity"] for part in parts for row in part]
    assert all(parts)


@pytest.mark.parametrize("level", ["attribute", "relation"])
def test_a_retold_story_has_another_answer_and_says_so(level):
    for example in pair_files.examples(40):
        other = retell_problem(example, level)
        assert other.reference == str(int(example.reference) + 1)
        assert pair_files.gold(other) != pair_files.gold(example)
        numbers, before = ([word.strip(",.") for word in e.prompt[0].content.split() if word.strip(",.").isdigit()] for e in (other, example))
        assert [int(n) for n in numbers] == [other.data["start"], *map(abs, other.data["changes"])]
        assert sum(one != was for one, was in zip(numbers, before, strict=True)) == 1


@pytest.mark.training
def test_real_steps_in_stages_with_a_moving_reference(tmp_path, two_steps):
    dataset = pair_files.write(tmp_path, pair_files.rows(18))
    name = "scpo-semantic-curriculum"
    trained = two_steps(name, {"stages": 2}, trainer="dpo", dataset=dataset, training__max_steps=4, training__learning_rate=1e-3)
    steps = trained.steps
    assert [step[f"{name}/stage"] for step in steps] == [0, 0, 1, 1]
    assert [step[f"{name}/reference_updated"] for step in steps] == [0, 0, 1, 0]
    assert steps[0][f"{name}/similarity"] < steps[-1][f"{name}/similarity"]
    margins = ("answers", "answers_contrast", "contexts", "contexts_contrast")
    assert all(steps[0][f"{name}/margin_{margin}"] == pytest.approx(0, abs=1e-4) for margin in margins)
    assert sum(steps[2][f"{name}/margin_{margin}"] for margin in margins) > 0.01
    assert 0 < steps[-1][f"{name}/flips"] <= 1


@pytest.mark.training
def test_rows_may_bring_their_own_contrast(tmp_path, two_steps):
    dataset = pair_files.write(tmp_path, pair_files.rows(8, contrast=lambda place: "Max has 0 apples. How many?"))
    trained = two_steps("scpo-semantic-curriculum", trainer="dpo", dataset=dataset)
    assert trained.steps[-1]["loss"] > 0
