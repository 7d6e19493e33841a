"""Problems around failures: where an answer goes wrong, the same mistake in a variant, and problems with one step more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.dataset_tools.application import apply_tool, load_tool
from trainers.contract.dataset_tools.failure_variants import NO_PROBLEM, NO_WORKING, RIGHT, SOLVED, Failure, find_failure, repeat_mistake
from trainers.contract.dataset_tools.word_problems import GAINS, LOSSES, WordProblem, read_lines, read_word_problem
from trainers.tasks import mini_gsm
from trainers.tasks.answers import worked_answer
from trainers.texts.problems import read_problem

TASK = mini_gsm.MiniGsm()
QUESTION = "Max has 8 apples, gets 3, drops 4, buys 5. How many?"
PROBLEM = read_word_problem(QUESTION)
RIGHT_ANSWER = "<think>8+3=11 11-4=7 7+5=12</think><answer>12</answer>"
WRONG = {
    "slip": "<think>8+3=11 11-4=6 6+5=11</think><answer>11</answer>",
    "direction": "<think>8+3=11 11+4=15 15+5=20</think><answer>20</answer>",
    "number": "<think>8+3=11 11-2=9 9+5=14</think><answer>14</answer>",
    "skipped": "<think>8+3=11 11+5=16</think><answer>16</answer>",
}
PROBLEMS = st.builds(
    lambda start, changes: WordProblem("Max", start, "apples", tuple(changes), tuple("gets" if one > 0 else "loses" for one in changes)),
    st.integers(0, 30),
    st.lists(st.integers(-9, 9).filter(bool), min_size=1, max_size=5),
).filter(lambda problem: problem.is_solvable)
FAILURES = st.tuples(st.sampled_from(["slip", "direction", "number", "skipped", "answer"]), st.integers(0, 4), st.integers(1, 4))


def apply(row, form, seed=0, **config):
    (outcome,) = apply_tool(load_tool("socratic-geo", config), [row], form, seed)
    return outcome


def make_pair_row(wrong):
    return {"prompt": [{"role": "user", "content": QUESTION}], "chosen": RIGHT_ANSWER, "rejected": wrong, "margin": 1.0, "chosen_spans": []}


def test_the_words_are_those_of_the_task():
    assert (GAINS, LOSSES) == (mini_gsm.GAINS, mini_gsm.LOSSES)
    for difficulty in TASK.difficulties:
        for example in TASK.examples("train", 20, 0, difficulty):
            problem = read_word_problem(example.prompt[0].content)
            assert str(problem) == example.prompt[0].content
            assert [str(line) for line in problem.lines] == mini_gsm.list_equations(example)
            assert str(problem.result) == example.reference


@pytest.mark.parametrize("mistake", WRONG)
def test_the_first_wrong_step_is_found_and_made_again(mistake):
    failure = find_failure(PROBLEM, WRONG[mistake])
    assert (failure.place, failure.mistake) == (1, mistake)
    lines, result = repeat_mistake(PROBLEM, failure)
    assert (" ".join(map(str, lines)), str(result)) == worked_answer(WRONG[mistake])


def test_answers_without_a_step_to_look_at_and_right_ones():
    assert find_failure(PROBLEM, RIGHT_ANSWER) is find_failure(PROBLEM, "<answer>12</answer>") is None
    assert find_failure(PROBLEM, "<think>8+3=11 11-4=7 7+5=12</think><answer>7</answer>") == Failure(2, "answer")
    assert apply(make_pair_row("<answer>3</answer>"), "preference").dropped == NO_WORKING
    assert apply(make_pair_row(RIGHT_ANSWER), "preference").dropped == RIGHT
    assert apply({**make_pair_row(""), "prompt": "How many?"}, "preference").dropped == NO_PROBLEM


@pytest.mark.parametrize("mistake", WRONG)
def test_a_pairs_variants_ask_the_failing_step_again(mistake):
    made = apply(make_pair_row(WRONG[mistake]), "preference", variants=3).made
    assert len({one.row["prompt"][0]["content"] for one in made}) == 3
    for one in made:
        example = read_problem(TASK, one.row["prompt"][0]["content"])
        assert [change for place, change in enumerate(example.data["changes"]) if place != 1] == [3, 5]
        assert example.data["changes"][1] < 0
        assert TASK.gold(example) == one.row["chosen"]
        assert find_failure(read_word_problem(one.row["prompt"][0]["content"]), one.row["rejected"]).place == 1
        assert not {"margin", "chosen_spans"} & set(one.row)
        assert f"{mistake} in step 2 of 3" in one.note


def test_any_step_may_change_in_the_arm_to_compare_with():
    row = make_pair_row(WRONG["direction"])
    changed = {one.note[-29:] for seed in range(20) for one in apply(row, "preference", seed, target="random").made}
    assert len(changed) == 3


def test_a_marked_answer_becomes_a_right_answer_to_a_variant_or_to_a_harder_problem():
    row = {"prompt": QUESTION, "completion": WRONG["slip"], "label": False, "reference": "12"}
    for one in apply(row, "kto", variants=2).made:
        example = read_problem(TASK, one.row["prompt"])
        assert (one.row["completion"], one.row["reference"]) == (TASK.gold(example), example.reference)
        assert "label" not in one.row
    (harder,) = apply({**row, "completion": RIGHT_ANSWER, "label": True}, "kto").made
    example = read_problem(TASK, harder.row["prompt"])
    assert example.data["changes"][:3] == [3, -4, 5]
    assert len(example.data["changes"]) == 4
    assert harder.row["completion"] == TASK.gold(example)
    assert apply({**row, "completion": RIGHT_ANSWER}, "kto", harder=False).dropped == SOLVED


@given(PROBLEMS, FAILURES)
def test_a_mistake_that_is_made_again_is_found_again(problem, failure):
    mistake, place, by = failure
    place = len(problem.changes) - 1 if mistake == "answer" else place % len(problem.changes)
    lines, result = repeat_mistake(problem, Failure(place, mistake, by if mistake in ("slip", "number") else 0))
    text = f"<think>{' '.join(map(str, lines))}</think><answer>{result}</answer>"
    found = find_failure(problem, text)
    if result != problem.result and lines and len(read_lines(" ".join(map(str, lines)))) == len(lines):
        assert found is not None
        assert repeat_mistake(problem, found) == (lines, result)


@given(st.text(alphabet="<>/think answer0123456789+-= ", max_size=60))
def test_any_text_is_read(text):
    find_failure(PROBLEM, text)
    apply({"prompt": QUESTION, "completion": text, "label": False}, "kto")
