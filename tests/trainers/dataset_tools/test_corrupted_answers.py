"""Right answers with their steps out of order, as the rejected side of pairs."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.dataset_tools.application import apply_tool, load_tool
from trainers.contract.dataset_tools.base import RowDropped
from trainers.contract.dataset_tools.corrupted_answers import CorruptedAnswers, draw_step_order
from trainers.contract.dataset_tools.steps import find_steps, reorder_steps
from trainers.data.datasets import row_of

CHAIN = "<think>3+3=6 6+5=11 11-2=9</think><answer>9</answer>"
TEXTS = st.text(alphabet=st.sampled_from("ab=1 .\n<think>/"), max_size=60)
LINES = st.lists(st.sampled_from(("find a", "add b", "2+2=4", "so c")), min_size=1, max_size=7)


def made_from(row, form="completion", seed=0, **config):
    (outcome,) = apply_tool(load_tool("skyreels-v2", config), [row], form, seed)
    return [made.row for made in outcome.made], outcome


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (CHAIN, ["3+3=6", "6+5=11", "11-2=9"]),
        ("First a.\n\n  Then b. And c.\nSo d.", ["First a.", "Then b. And c.", "So d."]),
        ("It costs 3.5 each. Twice that is 7! So 7", ["It costs 3.5 each.", "Twice that is 7!", "So 7"]),
        ("x=1 only", ["x=1 only"]),
        ("<think>a. b.", ["<think>a.", "b."]),  # never closed: the whole text is read
        ("<think></think><answer>9</answer>", []),
        ("  \n ", []),
    ],
)
def test_steps_are_lines_else_equations_else_sentences_of_the_working(text, steps):
    assert [text[start:end] for start, end in find_steps(text)] == steps


@given(TEXTS, st.sampled_from(("auto", "lines", "equations", "sentences")), st.randoms(use_true_random=False))
def test_another_order_moves_whole_steps_and_nothing_else(text, kind, rng):
    steps = find_steps(text, kind)
    assert all(one[1] <= other[0] for one, other in pairwise(steps))
    assert all(text[slice(*step)].strip() == text[slice(*step)] != "" for step in steps)
    order = rng.sample(range(len(steps)), len(steps))
    made = reorder_steps(text, steps, order)
    assert sorted(made) == sorted(text)
    assert reorder_steps(text, steps, range(len(steps))) == text
    if order != list(range(len(steps))) and len({text[slice(*step)] for step in steps}) == len(steps):
        assert made != text


@given(LINES, st.sampled_from(("mix", "shuffle", "swap")), st.integers(1, 5), st.booleans(), st.integers(0, 9))
def test_the_rejected_answer_is_the_chosen_one_in_another_order(lines, distortion, per_answer, keep_last, seed):
    text = "\n".join(lines)
    rows, outcome = made_from(
        {"prompt": "p", "completion": text}, seed=seed, distortion=distortion, per_answer=per_answer, keep_last=keep_last, steps="lines"
    )
    movable = lines[:-1] if keep_last else lines
    assert bool(rows) == (len(set(movable)) > 1) == (not outcome.dropped)
    assert len({row["rejected"] for row in rows}) == len(rows) <= per_answer
    for row in rows:
        said = row["rejected"].split("\n")
        assert row["chosen"] == text != row["rejected"]
        assert sorted(said) == sorted(lines)
        assert not keep_last or said[-1] == lines[-1]
        if distortion == "swap":
            assert sum(one != other for one, other in zip(said, lines, strict=True)) == 2


@pytest.mark.parametrize(("steps", "reason"), [([], "fewer than two"), (["a"], "fewer than two"), (["a", "a", "a"], "all the same")])
def test_an_answer_without_another_order_is_dropped_with_the_reason(steps, reason):
    for kind in ("shuffle", "swap"):
        with pytest.raises(RowDropped, match=reason):
            draw_step_order(steps, kind, random.Random(0))


def test_a_shuffle_that_draws_the_order_there_was_still_gives_another():
    orders = {tuple(draw_step_order(["a", "b"], "shuffle", random.Random(seed))) for seed in range(20)}
    assert orders == {(1, 0)}


def test_the_final_answer_of_a_worked_answer_stays():
    rows, _ = made_from({"prompt": "p", "completion": CHAIN}, per_answer=5)
    assert 3 <= len(rows) <= 5
    assert all(row["rejected"].endswith("</think><answer>9</answer>") for row in rows)


def test_columns_of_the_pair_are_those_that_still_hold():
    chosen, rejected = [{"role": "assistant", "content": "a\nb"}], [{"role": "assistant", "content": "c"}]
    spans = [{"start": 0, "end": 1, "label": "good", "text": "a"}]
    row = {
        "prompt": "p",
        "chosen": chosen,
        "rejected": rejected,
        "chosen_spans": spans,
        "rejected_spans": [],
        "margin": 2.0,
        "weight": 0.5,
        "tools": [],
    }
    before = repr(row)
    ((made,), _) = made_from(row, "preference")
    assert repr(row) == before
    assert made == {
        "prompt": "p",
        "chosen": chosen,
        "rejected": [{"role": "assistant", "content": "b\na"}],
        "chosen_spans": spans,
        "weight": 0.5,
        "tools": [],
    }
    ((pair,), _) = made_from({"prompt": "p", "completion": "a\nb", "completion_spans": spans, "label": True}, "kto")
    assert pair == {"prompt": "p", "chosen": "a\nb", "rejected": "b\na", "chosen_spans": spans}


@pytest.mark.parametrize(
    ("row", "form", "reason"),
    [
        ({"prompt": "p", "completion": "a\nb", "label": False}, "kto", "labelled bad"),
        ({"prompt": "p", "completion": [{"role": "assistant", "content": "a\nb"}] * 2}, "completion", "several messages"),
        ({"prompt": "p", "completion": [{"role": "assistant", "content": "a\nb", "tool_calls": [{}]}]}, "completion", "calls of tools"),
        ({"prompt": "p"}, "completion", "several messages"),
    ],
)
def test_rows_without_one_right_text_are_dropped(row, form, reason):
    rows, outcome = made_from(row, form)
    assert rows == []
    assert reason in outcome.dropped


def test_what_is_made_is_what_dpo_reads():
    rows, _ = made_from({"prompt": "p", "completion": CHAIN, "weight": 2}, per_answer=3)
    assert all(row_of(row, "dpo")["rejected"][0]["content"] == row["rejected"] for row in rows)
    assert len(rows) == 3
    assert set(CorruptedAnswers.forms.values()) == {"preference"}
