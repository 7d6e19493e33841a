"""Verdicts on outputs of tools: what the judge is shown, how often it is asked, and what is read of its answers."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.events import Message
from trainers.judges.output_judge import ask_output_verdicts, parse_output_verdict
from trainers.tasks.base import Example

EXAMPLE = Example([Message("user", "What is the city of Eva?")], "Rome")


def test_each_output_is_judged_alone_and_equal_ones_once():
    heard = []

    def ask(questions):
        heard.extend(questions)
        return [f"{int('Rome' in question)}" for question in questions]

    outputs = [["Eva's city is Rome.", "Leo's city is Oslo."], [], ["Eva's city is Rome."]]
    assert ask_output_verdicts(SimpleNamespace(ask=ask), [EXAMPLE] * 3, outputs) == [[1.0, 0.0], [], [1.0]]
    assert len(heard) == 2
    assert all("city of Eva" in question for question in heard)
    assert "Oslo" not in heard[0]
    assert ask_output_verdicts(SimpleNamespace(ask=None), [EXAMPLE], [[]]) == [[]]


@pytest.mark.parametrize(("answer", "verdict"), [("1", 1), ("0.25", 0.25), ("I say 0.5.", 0.5), ("7", 1), ("-1", 0), ("yes", 0), ("", 0)])
def test_what_is_read_of_an_answer(answer, verdict):
    assert parse_output_verdict(answer) == verdict


@given(st.text())
def test_every_answer_is_a_verdict_from_0_to_1(answer):
    assert 0 <= parse_output_verdict(answer) <= 1
