"""Rows with marked spans: what is read, what is refused with its line, and what the preflight says about the method that trains on them."""

import json
import time

import pytest

from tests.trainers.conftest import make_spec
from tests.trainers.methods.pair_stacks import run_on_pairs
from tests.trainers.test_dataset_identity import rows_of
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.problems import SpecError
from trainers.contract.spans import MOST
from trainers.data import datasets, identity, pairs, token_spans

TEXT = "It is 4, not 5."
GOOD, BAD = {"start": 6, "end": 7, "label": "good"}, {"start": 9, "end": 14, "label": "bad"}
ROW = {"prompt": "2+2?", "completion": TEXT}
METHOD = [{"name": "span-credit"}]


def spans_of(spans, text=TEXT, trainer="sft", **more):
    return datasets.row_of({"prompt": "2+2?", "completion": text, "completion_spans": spans, **more}, trainer).get("completion_spans")


def test_spans_come_in_order_and_with_their_texts():
    assert spans_of([BAD, GOOD]) == [{**GOOD, "text": "4"}, {**BAD, "text": "not 5"}]
    assert spans_of([{**GOOD, "text": "4"}], label=True, trainer="kto") == [{**GOOD, "text": "4"}]
    assert spans_of([]) == []
    assert spans_of(None) is None
    turns = [{"role": "assistant", "content": "ab"}, {"role": "tool", "content": "cd"}, {"role": "assistant", "content": "éf"}]
    assert spans_of([{"start": 4, "end": 6, "label": "bad"}], turns)[0]["text"] == "éf"


@pytest.mark.parametrize(
    ("spans", "why"),
    [
        ("6-7", "no list of spans"),
        ([[6, 7]], "not an object"),
        ([{"start": 6, "end": 7}], "label is None"),
        ([{**GOOD, "label": "neutral"}], "use good or bad"),
        ([{**GOOD, "start": -1}], "0 or more"),
        ([{**GOOD, "start": True}], "whole number"),
        ([{**GOOD, "start": 6.0}], "whole number"),
        ([{**GOOD, "end": 6}], "not after its start"),
        ([{**GOOD, "end": 10**30}], "the answer has 15 characters"),
        ([{**GOOD, "end": len(TEXT) + 1}], "the answer has 15 characters"),
        ([{**GOOD, "end": 10}, BAD], "overlap: 6 to 10 and 9 to 14"),
        ([GOOD, GOOD], "overlap"),
        ([{**GOOD, "text": "5"}], "changed after it was marked"),
        ([{**GOOD, "weight": 3}], "only start, end, label, text"),
    ],
)
def test_spans_that_cannot_be_are_refused(spans, why):
    with pytest.raises(datasets.BrokenRow, match=why):
        spans_of(spans)


def test_a_million_spans_are_refused_at_once():
    begun = time.process_time()
    with pytest.raises(datasets.BrokenRow, match=f"at most {MOST:,}"):
        spans_of([GOOD] * 1_000_000)
    assert time.process_time() - begun < 2


def test_many_spans_of_a_long_answer_are_brought_onto_tokens_in_time():
    text = "1+1=2. " * 5_000
    spans = [{"start": at, "end": at + 3, "label": "bad" if at % 2 else "good"} for at in range(0, len(text) - 7, 7)]
    row = datasets.row_of({"prompt": "?", "completion": text, "completion_spans": spans}, "sft")
    begun = time.process_time()
    marked = token_spans.mark_tokens(run_on_pairs().tokenizer, row, "completion")
    assert time.process_time() - begun < 10
    assert len(marked.firsts) == len(spans)
    assert sum(marked.good) + sum(marked.bad) > len(spans)


def test_spans_of_what_is_not_trained_on_are_left_alone():
    row = datasets.row_of({**ROW, "chosen": 3, "chosen_spans": "anything"}, "sft")
    assert row["chosen_spans"] == "anything"
    assert not any(token_spans.mark_tokens(run_on_pairs().tokenizer, row, "completion").good)


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return {"path": str(path)}


def test_preflight_and_trainer_name_the_line(tmp_path):
    dataset = write(tmp_path / "rows.jsonl", [{**ROW, "completion_spans": [GOOD]}, {**ROW, "completion_spans": [{**BAD, "end": 99}]}])
    report = run_preflight_checks(make_spec(tmp_path / "run", "sft", dataset=dataset, methods=METHOD))
    (problem,) = report.problems
    assert problem.value.endswith("line 2")
    assert "completion_spans[0] ends at 99" in problem.message
    with pytest.raises(SpecError, match="line 2"):
        datasets.read_rows(tmp_path / "rows.jsonl", "sft")


@pytest.mark.parametrize(
    ("trainer", "rows", "warned"),
    [
        ("sft", [ROW], True),
        ("sft", [ROW, {**ROW, "completion_spans": [GOOD]}], False),
        ("dpo", [{**row, "rejected_spans": [], "completion_spans": [GOOD]} for row in rows_of(3)], True),
        ("sft", None, True),  # the task's own demonstrations
    ],
)
def test_the_method_without_spans_is_warned_about_with_the_fix(tmp_path, trainer, rows, warned):
    given = {} if rows is None else {"dataset": write(tmp_path / "rows.jsonl", rows)}
    report = run_preflight_checks(make_spec(tmp_path / "run", trainer, methods=METHOD, **given))
    found = [warning for warning in report.warnings if warning.field == "methods.0.name"]
    assert bool(found) == warned
    assert all("queue that asks for spans" in warning.fix for warning in found)
    assert not report.problems


def test_spans_are_in_the_identity_of_a_row_and_change_sides_with_the_noise():
    row = datasets.row_of({"prompt": "?", "chosen": TEXT, "rejected": "5", "rejected_spans": [{"start": 0, "end": 1, "label": "bad"}]}, "dpo")
    assert identity.row_digest(row, "dpo") != identity.row_digest({**row, "rejected_spans": []}, "dpo")
    assert identity.row_digest(row, "reward") == identity.row_digest({**row, "rejected_spans": []}, "reward")
    [noisy] = pairs.with_noise([row], 1.0, 0)
    assert noisy["chosen_spans"] == row["rejected_spans"]
    assert "rejected_spans" not in noisy


class Trimming:
    """A tokenizer of one character a token whose template trims and quotes the answer's lines."""

    def apply_chat_template(self, messages, tools=None, add_generation_prompt=False, tokenize=False):
        return "".join(f"[{m['role']}]" + "\n> ".join(m["content"].strip().split("\n")) for m in messages) + "[assistant]" * add_generation_prompt

    def __call__(self, text, add_special_tokens=True, return_offsets_mapping=False):
        return {"input_ids": [ord(char) for char in text], "offset_mapping": [(at, at + 1) for at in range(len(text))]}


def test_a_template_that_rearranges_the_answer_loses_only_what_is_ambiguous():
    text = " one\ntwo one "
    spans = [{"start": 1, "end": 4, "label": "bad", "text": "one"}, {"start": 5, "end": 8, "label": "good", "text": "two"}]
    row = {"prompt": [{"role": "user", "content": "?"}], "completion": [{"role": "assistant", "content": text}], "completion_spans": spans}
    marked = token_spans.mark_tokens(Trimming(), row, "completion")
    assert "".join(chr(token) for token, share in zip(marked.ids, marked.good, strict=True) if share) == "two"
    assert not any(marked.bad)
    assert marked.lost == 1
