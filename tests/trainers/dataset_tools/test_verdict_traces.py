"""Traces written knowing the verdict: the filter, demonstrations in the prompt, and traces of others that are checked."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.dataset_tools.application import apply_tool, load_tool
from trainers.contract.dataset_tools.verdict_traces import NO_CASE, NO_CLAUSE, NO_VERDICT, OTHER_VERDICT, UNCITED
from trainers.contract.rule_book import BOOK

CASE = "25 kg, sender 30, Sunday, books, worth 10, 5 km, permit."
TRACE = "<think>c1: 25 kg; c7: permit; c3: Sunday</think><answer>refused</answer>"


def outcome_of(row, form="prompt", seed=0, **config):
    (outcome,) = apply_tool(load_tool("prt", config), [row], form, seed)
    return outcome


def test_a_trace_cites_what_the_verdict_stands_on_and_ends_in_it():
    (made,) = outcome_of({"prompt": CASE, "reference": "refused", "data": {"case": CASE}}).made
    assert made.row == {"prompt": CASE, "completion": TRACE}
    assert made.note == "cites c1, c3, c7"


@pytest.mark.parametrize(
    ("trace", "config", "dropped"),
    [
        (TRACE, {}, ""),
        ("By c3 this is REFUSED.", {}, ""),
        ("c3, so refused? No, allowed.", {}, OTHER_VERDICT),
        ("refused by c3 at last", {}, OTHER_VERDICT),
        ("c11: refused", {}, NO_CLAUSE),
        ("c11: refused", {"clauses": 11}, ""),
        ("c0: refused", {}, NO_CLAUSE),
        ("refused", {}, ""),
        ("refused", {"must_cite": True}, UNCITED),
    ],
)
def test_traces_of_others_are_kept_where_they_end_in_the_verdict_and_cite_what_exists(trace, config, dropped):
    outcome = outcome_of({"prompt": CASE, "completion": trace, "reference": "refused"}, "completion", **config)
    assert outcome.dropped == dropped
    assert [made.row["completion"] for made in outcome.made] == ([] if dropped else [trace])


def test_rows_without_a_case_or_a_verdict_say_so():
    assert outcome_of({"prompt": "Hello?", "reference": "refused"}).dropped == NO_CASE
    assert outcome_of({"prompt": "Hello?", "completion": TRACE}, "completion").dropped == NO_VERDICT
    assert outcome_of({"prompt": "Hello?", "completion": TRACE, "reference": "refused"}, "completion").made
    for row, form in (({"prompt": CASE}, "prompt"), ({"prompt": CASE, "completion": TRACE}, "completion")):
        assert outcome_of(row, form).made[0].row["completion"] == TRACE, "the book has a verdict on its own cases"


def test_a_writer_who_errs_is_caught():
    rows = [{"prompt": CASE, "reference": "refused", "number": number} for number in range(200)]
    outcomes = list(apply_tool(load_tool("prt", {"slips": 0.5}), rows, "prompt", 0))
    counts = Counter(outcome.dropped for outcome in outcomes)
    assert set(counts) == {"", OTHER_VERDICT, NO_CLAUSE}
    assert 60 < counts[""] < 140
    assert {outcome.made[0].row["completion"] for outcome in outcomes if outcome.made} == {TRACE}


@given(st.integers(0, 5), st.booleans(), st.integers(0, 5))
def test_rules_and_demonstrations_stand_before_the_question(shots, rules, seed):
    prompt = [{"role": "system", "content": "Be short."}, {"role": "user", "content": CASE}]
    (made,) = outcome_of({"prompt": prompt, "reference": "refused"}, seed=seed, shots=shots, rules=rules).made
    lines = made.row["prompt"][1]["content"].split("\n")
    assert made.row["prompt"][0] == prompt[0]
    assert lines[-1] == CASE
    assert len(lines) == 1 + 2 * shots + (len(BOOK) if rules else 0)
    assert made.row["completion"] == TRACE
