"""The world ``rule_book``: what a trace earns, and demonstrations with and without it."""

import random

import pytest

from trainers.contract.events import Message
from trainers.contract.rule_book import list_standing_clauses, read_case
from trainers.tasks.base import Example
from trainers.worlds.rule_book import RuleBook

CASE = "25 kg, sender 30, Sunday, books, worth 10, 5 km, permit."
EXAMPLE = Example([Message("user", CASE)], "refused", {"case": CASE})


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("<think>c1: 25 kg; c7: permit; c3: Sunday</think><answer>refused</answer>", (1, 1, 1)),
        ("<think>c3</think><answer>refused</answer>", (1, 0.5, 1)),
        ("<answer>refused</answer>", (1, 0, 1)),
        ("<think>c1; c7; c3</think><answer>allowed</answer>", (0, 1, 1)),
        ("<think>c1; c7; c3</think>", (0, 0, 0)),
        ("<think>no clause</think><answer>c1 c7 c3</answer>", (0, 0, 1)),  # only the thought cites
    ],
)
def test_what_a_trace_earns(text, scores):
    assert tuple(reward.function(text, EXAMPLE) for reward in RuleBook().rewards.values()) == scores


@pytest.mark.parametrize(("difficulty", "most"), [("easy", 2), ("medium", 4)])
def test_cases_of_a_difficulty_stand_on_so_many_clauses_at_most(difficulty, most):
    counts = {len(list_standing_clauses(read_case(example.data["case"]))) for example in RuleBook().examples("train", 200, 0, difficulty)}
    assert max(counts) == most


def test_demonstrations_are_traces_or_verdicts_alone():
    example = RuleBook().example(random.Random(0), "hard")
    assert RuleBook().demonstration(example, random.Random(0)) == RuleBook().gold(example)
    assert RuleBook({"verdicts_only": True}).demonstration(example, random.Random(0)) == f"<answer>{example.reference}</answer>"


def test_an_example_of_ones_own_without_its_case_has_no_citations_to_score():
    scores = {name: reward.function("<answer>refused</answer>", Example([], "refused")) for name, reward in RuleBook().rewards.items()}
    assert scores == {"correct": 1, "citations": None, "format": 1}
