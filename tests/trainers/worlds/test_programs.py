"""The world ``programs``: the language, tests that are shown and hidden, words for programs, and Python in the sandbox."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainers.contract.events import Message
from trainers.sandbox import SandboxProbe, probe_sandbox
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, replay_episode
from trainers.worlds.list_programs import (
    MOST_VALUE,
    OPERATIONS,
    Program,
    ProgramError,
    draw_cases,
    parse_program,
    read_document,
    run_program,
    write_document,
    write_program,
    write_python,
)
from trainers.worlds.programs import Programs, run_python_cases

CASES = [[[3, 1, 2], [2, 1, 3]], [[5, 0, 4], [4, 0, 5]], [[1, 2, 3], [3, 2, 1]], [[9, 8, 7], [7, 8, 9]]]
EXAMPLE = Example([Message("user", "Code.")], "reverse", {"program": [["reverse", 0]], "cases": CASES, "shown": CASES[:2], "level": "easy"})
PROGRAMS = st.lists(st.sampled_from(list(OPERATIONS)), min_size=1, max_size=3).map(
    lambda names: tuple((name, 2 if OPERATIONS[name].takes_number else 0) for name in names)
)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("<code>reverse</code>", (1, 1, 1, 1)),
        ("<code>sort</code><information>0 of 2, got 1 2 3</information><code>reverse</code>", (1, 1, 0, 1)),
        ("<think>turn</think><code>reverse</code>", (1, 1, 1, 1)),
        ("<code>sort</code><information>0 of 2, got 1 2 3</information>" * 2 + "<code>sort</code>", (0, 0.25, 0, 1)),  # it sorts 9 8 7
        ("<code>turn</code><information>0 of 2, no such operation</information><code>add</code>", (0, 0, 0, 1)),
        ("<code>sort</code><information>2 of 2, got 1 2 3</information><code>reverse</code>", (0, 0, 0, 0)),
        ("<code>reverse", (0, 0, 0, 0)),
        ("<answer>reverse</answer>", (0, 0, 0, 0)),
    ],
)
def test_what_programs_earn(text: str, scores: tuple[float, ...]) -> None:
    assert tuple(reward.function(text, EXAMPLE) for reward in Programs().rewards.values()) == scores


def test_there_are_twenty_operations_and_no_words_name_one() -> None:
    assert len(OPERATIONS) == 20
    assert len({operation.words for operation in OPERATIONS.values()}) == 20
    assert not {word for operation in OPERATIONS.values() for word in operation.words.split()} & set(OPERATIONS)


@given(PROGRAMS)
def test_a_program_is_read_as_it_is_written_in_code_and_in_words(program: Program) -> None:
    assert parse_program(write_program(program)) == program
    assert read_document(write_document(program)) == program


@given(PROGRAMS, st.lists(st.integers(0, 9), max_size=5))
def test_its_python_does_the_same(program: Program, values: list[int]) -> None:
    space: dict[str, object] = {}
    exec(write_python(program), space)  # ours, not a policy's
    try:
        expected = run_program(program, values)
    except ProgramError:
        return
    assert space["f"](values) == expected  # type: ignore[operator]


@pytest.mark.parametrize("text", ["", "add", "add 10", "add ³", "take -1", "reverse 2", "double " * 7, "exec", "reverse\0"])
def test_what_is_no_program(text: str) -> None:
    with pytest.raises(ProgramError):
        parse_program(text)


def test_programs_have_a_budget_and_numbers_a_size() -> None:
    with pytest.raises(ProgramError, match="steps"):
        run_program((("sort", 0),), range(300))
    with pytest.raises(ProgramError, match="large"):
        run_program((("square", 0),), [MOST_VALUE])
    with pytest.raises(ProgramError, match="few"):
        draw_cases(random.Random(0), (("even", 0), ("odd", 0)), 5)
    with pytest.raises(ProgramError, match="no operation"):
        read_document("reverse")  # the name is no word for it


def test_swapped_tests_send_every_program_back_and_the_true_results_count() -> None:
    world, swapped = Programs({"swapped": 1}), 0
    for example in world.examples("train", 20, 0, "easy"):
        gold = world.gold(example)
        replay = replay_episode(world, example, gold)
        swapped += example.data["shown"] != example.data["cases"][:2]
        assert len(replay.turns) == (1 if example.data["shown"] == example.data["cases"][:2] else 3)
        assert world.outcome(example, replay.state)[POLICY]["correct"] == 1
    assert swapped > 10


def test_documentation_is_read_back_and_does_not_copy_the_code() -> None:
    world = Programs({"write": "documentation"})
    example = world.examples("train", 1, 0, "hard")[0]
    assert example.prompt[0].content == f"Words for {example.reference}."
    assert [reward.function(world.gold(example), example) for reward in world.rewards.values()] == [1, 1, 1, 1]
    assert world.rewards["correct"].function(f"<answer>{example.reference}</answer>", example) == 0
    assert world.rewards["format"].function("<code>reverse</code>", example) == 0


def test_prompts_from_words_have_no_tests_in_them() -> None:
    [example] = Programs({"documented": 1}).examples("train", 1, 0, "hard")
    assert example.prompt[0].content == f"Code for {write_document(parse_program(example.reference))}."


def test_a_seat_can_write_a_problem() -> None:
    world = Programs()
    example = world.read("reverse add 3")
    assert example is not None
    assert world.rewards["correct"].function("<code>reverse add 3</code>", example) == 1
    assert world.rewards["correct"].function("<code>add 3 reverse</code>", example) == 1
    assert world.rewards["correct"].function("<code>add 2 reverse</code>", example) == 0
    assert example == world.read("reverse add 3")
    assert world.read("even odd") is world.read("reverse reverse") is None


def test_python_is_refused_where_nothing_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = SandboxProbe("Linux", "x86_64", 0, True, True, True, True, ("Landlock is missing",))
    monkeypatch.setattr("trainers.sandbox.probe_sandbox", lambda: probe)
    with pytest.raises(ValidationError, match="Landlock is missing"):
        Programs({"language": "python"})
    Programs()


@pytest.mark.skipif(not probe_sandbox().holds, reason="this machine cannot hold programs")
def test_python_runs_in_the_sandbox() -> None:
    world = Programs({"language": "python"})
    for example in world.examples("train", 3, 0, "hard"):
        assert [reward.function(world.gold(example), example) for reward in world.rewards.values()] == [1, 1, 1, 1]
    step = world.step(EXAMPLE, world.begin(EXAMPLE), POLICY, "<code>\ndef f(x): return [1] if 1 < 2 else x</code>", random.Random(0))
    assert (step.text, step.done) == ("<information>0 of 2, got 1</information>", False)
    step = world.step(EXAMPLE, world.begin(EXAMPLE), POLICY, "<code>def f(x): return open('/etc/passwd').read()</code>", random.Random(0))
    assert step.facts["rate"] == 0
    assert "Error" in step.facts["error"]
    assert run_python_cases("def f(x): return {}", ((1,), (2,))) == ("no list of numbers",) * 2
    assert world.parse_code("<code>x</code><information>y</code>") is None
