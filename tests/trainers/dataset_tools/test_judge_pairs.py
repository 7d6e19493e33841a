"""Rows of a judge out of preference pairs: both orders, which verdict is preferred, and what is left of the pair's own columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.dataset_tools.application import apply_tool, load_tool
from trainers.contract.dataset_tools.judge_pairs import NO_TEXT, SAME
from trainers.contract.pair_judgements import read_verdict, swap_place
from trainers.data.datasets import row_of

PAIR = {"prompt": "7+3?", "chosen": "<think>7+3=10</think><answer>10</answer>", "rejected": "11", "margin": 0.5, "chosen_spans": [], "who": "Mia"}


def make_rows(row=PAIR, seed=0, **config):
    (outcome,) = apply_tool(load_tool("judge-shelf-life", config), [row], "preference", seed)
    return [made.row for made in outcome.made] or outcome.dropped


def test_a_pair_becomes_two_rows_one_in_each_order():
    first, second = make_rows(tier="weak")
    assert first["prompt"] == [{"role": "user", "content": f"7+3?\nA: {PAIR['chosen']}\nB: 11\nA or B?"}]
    assert second["prompt"] == [{"role": "user", "content": f"7+3?\nA: 11\nB: {PAIR['chosen']}\nA or B?"}]
    assert [row["chosen"][0]["content"] for row in (first, second)] == ["<answer>A</answer>", "<answer>B</answer>"]
    assert [row["rejected"][0]["content"] for row in (first, second)] == ["<answer>B</answer>", "<answer>A</answer>"]
    assert set(first) == {"prompt", "chosen", "rejected", "who", "tier"}  # a margin and spans were said of another pair
    assert (first["who"], first["tier"]) == ("Mia", "weak")


def test_the_better_answers_working_can_be_the_reason():
    first, _ = make_rows(reason=True)
    assert first["chosen"][0]["content"] == "<think>7+3=10</think><answer>A</answer>"
    assert first["rejected"][0]["content"] == "<answer>B</answer>"
    assert make_rows({**PAIR, "chosen": "10"}, reason=True)[0]["chosen"][0]["content"] == "<answer>A</answer>"


def test_one_order_is_drawn_for_each_pair():
    drawn = [make_rows(seed=seed, orders="one") for seed in range(12)]
    assert {len(rows) for rows in drawn} == {1}
    assert {read_verdict(rows[0]["chosen"][0]["content"]) for rows in drawn} == {"A", "B"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rejected": f" {PAIR['chosen']}\n"}, SAME),
        ({"prompt": ""}, NO_TEXT),
        ({"prompt": [{"role": "system", "content": "x"}, {"role": "user", "content": "7+3?"}]}, NO_TEXT),
        ({"prompt": [{"role": "user", "content": None}]}, NO_TEXT),
        ({"prompt": None}, NO_TEXT),
    ],
)
def test_what_cannot_be_judged_is_dropped_with_its_reason(change, why):
    assert make_rows({**PAIR, **change}) == why


@given(st.text(min_size=1).filter(str.strip), st.text(), st.text(), st.booleans())
def test_verdicts_contradict_each_other_and_rows_can_be_trained_on(question, better, worse, reason):
    rows = make_rows({"prompt": question, "chosen": better, "rejected": worse}, reason=reason)
    if better.strip() == worse.strip():
        assert rows == SAME
        return
    for row in rows:
        chosen, rejected = (read_verdict(row[side][0]["content"]) for side in ("chosen", "rejected"))
        assert chosen == swap_place(rejected)
        assert row_of(row, "dpo")["chosen"] == row["chosen"]
        assert row_of(row, "sft")["completion"] == row["chosen"]
