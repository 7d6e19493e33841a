"""Span credit: weights by hand, DPO and SFT where nothing is marked or the weights are 1, gradients in proportion, and real steps on marked rows."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods import pair_files
from tests.trainers.methods.batches import pair_batch, token_batch
from tests.trainers.methods.pair_stacks import batch_of, outcome_on_pairs, plain_rows, run_on_pairs
from trainers.adapters.dpo import average_token_ratios, method_loss
from trainers.contract.problems import SpecError
from trainers.contract.spans import find_spans_of, swap_span_sides
from trainers.data.token_spans import mark_tokens
from trainers.methods.bases.dpo import DPO
from trainers.methods.stack import Stack
from trainers.methods.tokens.span_credit import Config, SpanCredit, align_tokens, compute_span_weights

PAIR = torch.tensor([[0.2, 0.4, 0.6]]), torch.tensor([[-0.1, 0.5]])
EVEN = {"supporting": 1.0, "opposing": 1.0}
SHARES = st.lists(st.floats(0, 1), min_size=4, max_size=4)


def prepared(**config: float) -> SpanCredit:
    method = SpanCredit(Config(**config))
    method.prepare(run_on_pairs())
    return method


def sigmoid_loss(score):
    return torch.nn.functional.softplus(-score)


def test_the_worked_example():
    supporting, opposing = torch.tensor([[1.0, 0.0, 0.5, 1.0]]), torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert compute_span_weights(supporting, opposing, mask, (2.0, 0.0), False).tolist() == [[2.0, 0.0, 1.5, 1.0]]
    scaled = compute_span_weights(supporting, opposing, mask, (2.0, 0.0), True)
    assert scaled[0].tolist() == pytest.approx([2 * 3 / 3.5, 0.0, 1.5 * 3 / 3.5, 1.0])


@pytest.mark.parametrize("reduce", [None, average_token_ratios])
def test_the_loss_of_a_pair_by_hand(monkeypatch, reduce):
    """Chosen: the second token is in a bad span. Rejected: the first is in a bad span, the second half in a good one."""
    shares = {"chosen": ([[0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]), "rejected": ([[0.0, 0.5]], [[1.0, 0.0]])}
    method = prepared(supporting=3.0, opposing=0.5)
    monkeypatch.setattr(method, "token_shares", lambda rows, side, ids, mask: (*(torch.tensor(one) for one in shares[side]), 0))
    more = {"reduce": reduce} if reduce else {}
    loss = method_loss(Stack(DPO(), [method]), pair_batch(*PAIR, **more), sigmoid_loss)
    chosen, rejected = 0.2 + 0.5 * 0.4 + 0.6, 3.0 * -0.1 + 0.75 * 0.5
    score = chosen / 3 - rejected / 2 if reduce else 0.1 * (chosen - rejected)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-score)), rel=1e-6)
    found = method.collect()
    assert found["token_weight"] == pytest.approx((1 + 0.5 + 1 + 3 + 0.75) / 5)
    assert (found["good"], found["bad"], found["marked_rows"]) == (pytest.approx(0.1), pytest.approx(0.4), 1.0)


@given(SHARES, SHARES, st.floats(0, 10), st.floats(0, 10))
def test_weights_lie_between_those_of_their_spans(good, bad, supporting, opposing):
    good, bad = torch.tensor([good]), torch.tensor([bad])
    bad = torch.minimum(bad, 1 - good)  # spans do not overlap
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    weights = compute_span_weights(good, bad, mask, (supporting, opposing), False)
    assert (weights >= min(1.0, supporting, opposing) - 1e-4).all()
    assert (weights <= max(1.0, supporting, opposing) + 1e-4).all()
    scaled = compute_span_weights(good, bad, mask, (supporting, opposing), True)
    total = float((scaled * mask).sum())
    assert math.isclose(total, 3.0, rel_tol=1e-3) or not (weights * mask).any()


def test_it_is_dpo_with_weights_of_1_and_on_rows_without_spans():
    assert not outcome_on_pairs(["span-credit"], {"span-credit": EVEN}).differs(outcome_on_pairs([]))
    assert outcome_on_pairs(["span-credit"]).differs(outcome_on_pairs([]))
    bare = [{name: value for name, value in row.items() if "spans" not in name} for row in plain_rows()]
    batch = batch_of(run_on_pairs(), bare)
    own, parent = (method_loss(Stack(DPO(), methods), batch, sigmoid_loss) for methods in ([prepared()], []))
    assert own.item() == parent.item()


def gradients(method: SpanCredit, rows: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor, Any]:
    batch = batch_of(run_on_pairs(), rows)
    loss = method_loss(Stack(DPO(), [method]), batch, sigmoid_loss)
    return (*torch.autograd.grad(loss, (batch.chosen_logprobs, batch.rejected_logprobs)), batch)


def test_gradients_are_in_proportion_to_the_weights():
    """The bad equation of a rejected answer is pushed down three times as hard; in a chosen answer it gets no gradient."""
    rows = plain_rows()
    chosen, rejected, batch = gradients(prepared(supporting=3.0, opposing=0.0), rows)
    for row, marked, gradient, ids in zip(rows, ("chosen_spans" in row for row in rows), zip(chosen, rejected, strict=True), batch.rows, strict=True):
        side, own = ("chosen", gradient[0]) if marked else ("rejected", gradient[1])
        shares = mark_tokens(run_on_pairs().tokenizer, ids, side)
        inside = torch.tensor(shares.bad[shares.start :])
        assert inside.any()
        assert set(inside.tolist()) == {0.0, 1.0}
        plain = own[: len(inside)][inside == 0].abs()
        assert torch.allclose(plain, plain[:1].expand_as(plain))
        assert torch.allclose(own[: len(inside)][inside == 1].abs(), (0.0 if marked else 3.0) * plain[:1]), row


def test_a_batch_cut_into_micro_batches_gives_the_same_gradient():
    rows = plain_rows()
    whole = gradients(prepared(normalise=True), rows)
    parts = [gradients(prepared(normalise=True), rows[start : start + 2]) for start in range(0, len(rows), 2)]
    for side in (0, 1):
        for place, gradient in enumerate(whole[side]):
            own = parts[place // 2][side][place % 2] / 3
            assert torch.allclose(gradient[: len(own)], own, atol=1e-6)
            assert not gradient[len(own) :].any()


def test_a_token_that_a_span_cuts_counts_by_its_share():
    tokenizer = run_on_pairs().tokenizer
    text = "So <answer>4"
    row = {"prompt": [{"role": "user", "content": "?"}], "completion": [{"role": "assistant", "content": text}]}
    offsets = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
    start, end = max(offsets, key=lambda offset: offset[1] - offset[0])
    assert end - start > 1, "no token of several characters"
    span = {"start": start + 1, "end": len(text), "label": "good", "text": text[start + 1 :]}
    marked = mark_tokens(tokenizer, {**row, "completion_spans": [span]}, "completion")
    shares = marked.good[marked.start : marked.start + len(offsets)]
    assert shares == [1.0 if at > start else (end - start - 1) / (end - start) if at == start else 0.0 for at, _ in offsets]
    assert not any(marked.good[: marked.start] + marked.good[marked.start + len(offsets) :])  # neither the prompt nor the end token


def test_supervised_weights_are_those_of_the_completions_tokens():
    method, run = prepared(supporting=2.0, opposing=0.0), run_on_pairs()
    text = "<think>1+1=3</think><answer>3</answer>"
    spans = [
        {"start": 7, "end": 12, "label": "bad", "text": "1+1=3"},
        {"start": 28, "end": 29, "label": "good", "text": "3"},
    ]
    row = {"prompt": [{"role": "user", "content": "?"}], "completion": [{"role": "assistant", "content": text}], "completion_spans": spans}
    marked = mark_tokens(run.tokenizer, row, "completion")
    ids = torch.tensor([marked.ids[1:], [0] * (len(marked.ids) - 1)])
    mask = (torch.arange(ids.shape[1]) >= marked.start - 1).float().expand(2, -1)
    weights = method.sft_weights(token_batch(torch.zeros(ids.shape), rows=[row, {}], ids=ids, mask=mask))
    pieces = [run.tokenizer.decode([token]) for token in ids[0].tolist()]
    assert "".join(piece for piece, weight in zip(pieces, weights[0].tolist(), strict=True) if weight == 0.0) == "1+1=3"
    assert "".join(piece for piece, weight in zip(pieces, weights[0].tolist(), strict=True) if weight == 2.0) == "3"
    assert weights[1].tolist() == [1.0] * ids.shape[1]
    found = method.collect()
    assert found["unmapped"] == 0.0
    assert found["marked_rows"] == 0.5


def test_spans_of_a_text_that_is_gone_or_cut_off_have_no_effect_and_are_counted():
    method, run = prepared(), run_on_pairs()
    row = plain_rows()[0]
    rewritten = {**row, "rejected": [{"role": "assistant", "content": "<think></think><answer>0</answer>"}]}
    swapped = {**row, "chosen": row["rejected"], "rejected": row["chosen"]}  # by a method that leaves other columns alone
    assert mark_tokens(run.tokenizer, rewritten, "rejected").lost == 1
    assert any(mark_tokens(run.tokenizer, swapped, "chosen").bad)
    assert mark_tokens(run.tokenizer, swap_span_sides(swapped), "chosen").bad == mark_tokens(run.tokenizer, swapped, "chosen").bad
    marked = mark_tokens(run.tokenizer, row, "rejected")
    ids = torch.tensor([marked.ids[1 : marked.start + 1]])  # one token of the answer is left
    mask = torch.zeros(ids.shape)
    mask[0, -1] = 1.0
    assert len(align_tokens(marked, ids[0].tolist(), [ids.shape[1] - 1])) == 1
    *_, lost = method.token_shares([row], "rejected", ids, mask)
    assert lost == 1


def test_an_answer_that_begins_like_the_marked_one_takes_no_spans_from_it():
    sides = {side: [{"role": "assistant", "content": f"7 * 8 = 54, so {end}"}] for side, end in (("chosen", "no"), ("rejected", "yes"))}
    span = {"start": 0, "end": 10, "label": "bad", "text": "7 * 8 = 54"}
    row = {"prompt": [{"role": "user", "content": "?"}], **sides, "rejected_spans": [span]}
    assert find_spans_of(row, "rejected") == ([span], 0)
    assert find_spans_of(row, "chosen") == ([], 0)


def test_a_tokenizer_without_offsets_is_refused():
    class Slow:
        is_fast = False

    class Run:
        tokenizer = Slow()

    with pytest.raises(SpecError, match="which characters a token covers"):
        SpanCredit().prepare(Run())  # type: ignore[arg-type]


def marked_rows(count: int) -> list[dict[str, Any]]:
    rows = pair_files.rows(count)
    for row in rows:
        text = row["rejected"][0]["content"]
        start = text.index("0</answer>")
        row["rejected_spans"] = [{"start": start, "end": start + 1, "label": "bad"}]
        row["chosen_spans"] = [{"start": 0, "end": len("<think>"), "label": "good"}]
    return rows


@pytest.mark.training
@pytest.mark.feature(100)
def test_two_real_steps_of_dpo(two_steps, tmp_path):
    dataset = pair_files.write(tmp_path, marked_rows(16))
    trained = two_steps(
        "span-credit", trainer="dpo", dataset=dataset, training__gradient_accumulation_steps=2, training__per_device_train_batch_size=4
    )
    for step in trained.steps:
        assert step["span-credit/marked_rows"] == 1.0
        assert 0 < step["span-credit/bad"] < 0.5
        assert step["span-credit/token_weight"] == pytest.approx(1 + step["span-credit/good"] + step["span-credit/bad"], abs=1e-4)
        assert step["span-credit/unmapped"] == 0.0


@pytest.mark.training
@pytest.mark.feature(100)
def test_two_real_steps_of_sft(two_steps, tmp_path):
    rows = [{"prompt": row["prompt"], "completion": row["rejected"], "completion_spans": row["rejected_spans"]} for row in marked_rows(16)]
    trained = two_steps("span-credit", trainer="sft", dataset=pair_files.write(tmp_path, rows), training__per_device_train_batch_size=8)
    for step in trained.steps:
        assert step["span-credit/token_weight"] == pytest.approx(1 - step["span-credit/bad"], abs=1e-4)
        assert step["span-credit/unmapped"] == 0.0
