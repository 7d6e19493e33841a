"""One wrong equation and its correction, put into right answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.dataset_tools.application import apply_tool, load_tool
from trainers.contract.dataset_tools.corrected_slips import EQUATION, draw_wrong_result, is_equation_right
from trainers.contract.spans import read_spans
from trainers.tasks.answers import worked_answer

CHAIN = "<think>3+3=6 6+5=11 11-2=9</think><answer>9</answer>"
LINES = st.lists(st.sampled_from(("Take 3.", "3 + 3 = 6", "So 6*5=30.", "30/6=5", "1+1=3")), min_size=1, max_size=6)


def made_from(row, seed=0, **config):
    (outcome,) = apply_tool(load_tool("advchain", config), [row], "completion", seed)
    return outcome.made[0].row if outcome.made else None, outcome


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("3+3=6", True),
        ("So 12 x 4 = 48.", True),
        ("7/2=3", False),
        ("8/2=4, then", True),
        ("8/0=0", False),
        ("2-5=-3", True),
        ("1+1=3", False),
        ("9-5-3=2", None),  # a part of it would be right
        ("1+2+3 = 5", None),
        ("3.5+1=4", None),
        ("1+1=2.5", None),
        ("1,000+5=5", None),
        ("x3+3=6", None),
        ("3+3=6 = 2*3", None),
    ],
)
def test_only_whole_equations_are_read(text, right):
    match = EQUATION.search(text)
    assert (is_equation_right(match) if match else None) is right


def test_the_chain_gets_a_wrong_step_and_its_correction_before_the_right_one():
    row = {"prompt": "p", "completion": "Take 3.\n3+3=6\n6+5=11"}
    seen = {made_from(row, seed, largest_slip=1, correction="no, {right}, not {wrong}")[0]["completion"] for seed in range(20)}
    assert seen == {
        "Take 3.\n3+3=5\nno, 6, not 5\n3+3=6\n6+5=11",
        "Take 3.\n3+3=7\nno, 6, not 7\n3+3=6\n6+5=11",
        "Take 3.\n3+3=6\n6+5=10\nno, 11, not 10\n6+5=11",
        "Take 3.\n3+3=6\n6+5=12\nno, 11, not 12\n6+5=11",
    }


def test_the_final_answer_of_a_worked_answer_stays_right():
    made, outcome = made_from({"prompt": "p", "completion": CHAIN})
    working, answer = worked_answer(made["completion"])
    assert answer == "9"
    assert working.count(" Wait, that is wrong. ") == 1
    assert "before step" in outcome.made[0].note


@given(LINES, st.integers(0, 20), st.booleans(), st.integers(1, 5))
def test_taking_out_what_was_put_in_gives_the_answer_back(lines, seed, mark, slip):
    text = "\n".join(lines)
    made, outcome = made_from({"prompt": "p", "completion": text}, seed, mark_wrong=mark, largest_slip=slip, steps="lines")
    right = [line for line in lines if any(is_equation_right(match) for match in EQUATION.finditer(line))]
    assert bool(right) == (made is not None) == (not outcome.dropped)
    if made is None:
        return
    said = made["completion"].split("\n")
    place = said.index("Wait, that is wrong.")
    assert said[: place - 1] + said[place + 1 :] == lines
    wrong = [match for match in EQUATION.finditer(said[place - 1]) if not is_equation_right(match)]
    assert len(wrong) == 1
    assert said[place + 1] in right
    spans = read_spans(made.get("completion_spans", []), made["completion"], "completion_spans")
    assert [span["text"] for span in spans] == ([said[place - 1]] if mark else [])


@given(st.integers(-50, 50), st.integers(1, 9), st.randoms(use_true_random=False))
def test_a_wrong_result_is_near_and_has_the_sign_of_the_right_one(right, largest, rng):
    wrong = draw_wrong_result(right, largest, rng)
    assert 1 <= abs(wrong - right) <= largest
    assert right < 0 or wrong >= 0


def test_marked_spans_move_with_their_text():
    spans = [{"start": 0, "end": 5, "label": "good", "text": "Take "}, {"start": 8, "end": 13, "label": "good", "text": "3+3=6"}]
    row = {"prompt": "p", "completion": "Take 3.\n3+3=6", "completion_spans": spans}
    made, _ = made_from(row, mark_wrong=True)
    found = read_spans(made["completion_spans"], made["completion"], "completion_spans")  # raises where a text does not stand there
    assert next((span["label"], span["text"]) for span in found) == ("good", "Take ")
    assert [span["label"] for span in found] == ["good", "bad", "good"]
    assert found[-1]["text"] == "3+3=6"


def test_a_share_of_the_rows_stays_as_it_is():
    rows = [{"prompt": str(number), "completion": CHAIN} for number in range(200)]
    outcomes = list(apply_tool(load_tool("advchain", {"share": 0.25}), rows, "completion", 0))
    changed = sum(outcome.made[0].row != row for outcome, row in zip(outcomes, rows, strict=True))
    assert 25 <= changed <= 75
    assert {outcome.made[0].note for outcome, row in zip(outcomes, rows, strict=True) if outcome.made[0].row == row} == {"left as it is"}
