"""Verdicts on steps: the rules, and a real endpoint that answers as it likes."""

import pytest

from tests.trainers.judge_endpoint import step_endpoint
from trainers.contract.events import Message
from trainers.contract.problems import SpecError
from trainers.judges.step_judge import ask_step_verdicts, parse_step_verdicts, require_judge, score_steps_by_rule, true_equation
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import MiniGsm

EXAMPLE = Example([Message("user", "Max has 3 apples, gets 3. How many?")], "6", {"start": 3, "changes": [3]})


def test_an_equation_is_true_wherever_it_comes_from():
    assert [true_equation(step) for step in ("1+1=2", "9-4=5", "1+1=3", "x", "1+1=2 ")] == [True, True, False, False, False]


def test_a_step_is_supported_if_the_solution_has_it():
    assert score_steps_by_rule(MiniGsm(), EXAMPLE, ["3+3=6", "1+1=2", "3+3=7"]) == [1.0, 0.0, 0.0]
    assert score_steps_by_rule(MiniGsm(), Example([], "6"), ["3+3=6", "3+3=7"]) == [1.0, 0.0]


def test_a_real_endpoint_is_asked_once_for_each_completion_with_steps():
    with step_endpoint("3+3") as (judge, heard):
        assert ask_step_verdicts(judge, [EXAMPLE] * 3, [["3+3=6", "1+1=2"], [], ["2+2=4"]]) == [[1.0, 0.0], [], [0.0]]
    assert len(heard) == 2
    assert "Max has 3 apples" in heard[0]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("[1, 0]", [1, 0]), ("Sure: [1]", [1, 0]), ("[0.5, 7, 1]", [0.5, 1]), ("none", [0, 0]), ("[1, {}]", [0, 0]), ("]1[", [0, 0])],
)
def test_whatever_the_endpoint_says_there_is_one_verdict_for_each_step(answer, expected):
    assert parse_step_verdicts(answer, 2) == expected


def test_a_worker_without_a_judge_says_so():
    with pytest.raises(SpecError, match="no judge endpoint"):
        require_judge(None, "faithrl")
