"""Countdown puzzles read from prompts, solved, and answered with traces of so many dead ends."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.dataset_tools.application import apply_tool, load_tool
from trainers.contract.dataset_tools.countdown_puzzles import CountdownPuzzle, can_make_target, read_puzzle, write_expression
from trainers.contract.dataset_tools.countdown_traces import NO_PUZZLE

STEP = re.compile(r"Step (\d+): (\d+) ([-+*/]) (\d+) = (\d+)\. Left: ([\d, ]+)\.")
BACK = re.compile(r"This is a dead end: back to step (\d+)\. Left: ([\d, ]+)\.")


def prompt_of(numbers, target):
    return f"Using the numbers [{', '.join(map(str, numbers))}], create an equation that equals {target}."


def made_from(prompt, seed=0, **config):
    (outcome,) = apply_tool(load_tool("how-much-backtrack", config), [{"prompt": prompt, "reference": ""}], "prompt", seed)
    return [one.row["completion"] for one in outcome.made], outcome


def evaluate_expression(text):
    assert re.fullmatch(r"[\d+*/() -]+", text)
    return eval(re.sub(r"\d+", r"Fraction(\g<0>)", text), {"Fraction": Fraction})  # numbers and signs alone


@pytest.mark.parametrize(
    ("text", "puzzle"),
    [
        ("Using the numbers [19, 36, 55, 7], create an equation that equals 65. You can use basic", ((19, 36, 55, 7), 65)),
        ("Using the numbers 3, 5, 7, create an expression that equals 22.\nYou can only", ((3, 5, 7), 22)),
        ("Find a way to make 22 using some or all of these numbers: 3, 5, 7.\nEach", ((3, 5, 7), 22)),
        ("Calculate 22 using the numbers 3, 5, 7.\nEach number", ((3, 5, 7), 22)),
        ("Using the numbers [1, 2, 3, 4, 5], create an equation that equals 15.", None),
        ("Add 3 and 5.", None),
        ("9" * 5000, None),
    ],
)
def test_puzzles_are_read_as_tinyzero_and_reasoning_gym_write_them(text, puzzle):
    assert read_puzzle(text) == (CountdownPuzzle(*puzzle) if puzzle else None)


@pytest.mark.parametrize(
    ("values", "target", "possible"),
    [((3, 5, 7), 22, True), ((1, 1), 3, False), ((2, 3), 5, True), ((1, 2), 0, False), ((2, 2), 0, True), ((6, 4), 2, True), ((6, 4), 1, False)],
)
def test_what_can_be_made_of_numbers(values, target, possible):
    assert can_make_target(tuple(sorted(values)), target) is possible


def test_the_papers_trace_has_three_ways_back_and_its_answer_evaluates_to_the_target():
    (text,), outcome = made_from(prompt_of([3, 5, 7], 22), dead_ends=3)
    *lines, end, answer = text.split("\n")[1:]
    assert (end, len(re.findall("back to step", text))) == ("</think>", 3)
    assert evaluate_expression(answer.removeprefix("<answer>").removesuffix("</answer>")) == 22
    assert STEP.fullmatch(lines[-1])[5] == "22"
    assert outcome.made[0].note == "3 dead ends"
    assert outcome.made[0].row.keys() == {"prompt", "completion"}


@given(st.lists(st.integers(1, 20), min_size=3, max_size=4), st.integers(0, 3), st.integers(0, 5), st.sampled_from(["right", "wrong", "shuffled"]))
def test_every_line_is_true_of_the_numbers_left_there(numbers, dead_ends, seed, contents):
    puzzle = CountdownPuzzle(tuple(numbers), 24)
    texts, outcome = made_from(prompt_of(numbers, 24), seed, dead_ends=dead_ends, contents=contents)
    if outcome.dropped:
        assert not puzzle.can_reach_goal(puzzle.start) or outcome.dropped == "problems with too few dead ends"
        return
    lines = texts[0].split("\n")[1:-2]
    assert sum(BACK.fullmatch(line) is not None for line in lines) == dead_ends
    at = {0: sorted(numbers)}
    for line in lines:
        if back := BACK.fullmatch(line):
            assert contents == "shuffled" or sorted(map(int, back[2].split(", "))) == at[int(back[1])]
            continue
        depth, one, sign, other, result = (part if part in "+-*/" else int(part) for part in STEP.fullmatch(line).groups()[:5])
        assert evaluate_expression(f"{one} {sign} {other}") == result
        at[depth] = sorted(map(int, STEP.fullmatch(line)[6].split(", ")))
        if contents != "shuffled":
            assert sorted([*at[depth], one, other]) == sorted([*at[depth - 1], result])
    value = evaluate_expression(re.search("<answer>(.+)</answer>", texts[0])[1])
    assert (value == 24) == (contents != "wrong")


def test_a_puzzle_can_have_several_traces_and_others_say_why_they_have_none():
    assert len({*made_from(prompt_of([3, 5, 7], 22), per_prompt=4, dead_ends=2)[0]}) == 4
    assert made_from("Hello?")[1].dropped == NO_PUZZLE
    assert made_from(prompt_of([1, 1], 7))[1].dropped == "problems without a solution"
    assert made_from(prompt_of([2, 3], 5), dead_ends=20)[1].dropped == "problems with too few dead ends"


def test_an_expression_has_no_outer_brackets():
    assert write_expression([(22, "((3 * 5) + 7)")]) == "(3 * 5) + 7"
