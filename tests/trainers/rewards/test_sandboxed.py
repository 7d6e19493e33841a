"""Functions that run what a policy wrote, and rewards that people wrote: in the sandbox, with what they cannot do to it."""

import json
import time

import pytest

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.rewards.scoring import code, library, make_example, score_batch, score_one
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.events import AttemptFinished, Metrics, Rollout, Warned
from trainers.sandbox import probe_sandbox

pytestmark = [pytest.mark.skipif(not probe_sandbox().holds, reason=probe_sandbox().explain())]

TESTS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add('a', 'b') == 'ab'"]
RIGHT = "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```\nDone."
SETUP = "CREATE TABLE pets (name, legs); INSERT INTO pets VALUES ('cat', 4), ('bird', 2), ('ant', 6);"


def test_code_is_graded_by_the_tests_it_passes():
    share = library("unit-tests", grade="share")
    wrong = "```python\ndef add(a, b):\n    return 3\n```"
    assert score_one(share, RIGHT, tests=TESTS) == 1.0
    assert score_one(share, wrong, tests=TESTS) == pytest.approx(1 / 3)
    assert score_one(library("unit-tests"), wrong, tests=TESTS) == 0.0
    assert score_one(library("unit-tests"), "no code", tests=TESTS) == 0.0
    assert score_one(library("unit-tests"), "", tests=TESTS) == 0.0
    assert score_one(library("unit-tests"), RIGHT, tests=["assert double(2) == 4"], setup="def double(x): return add(x, x)") == 1.0


def test_code_that_cheats_or_hangs_gets_nothing_and_rows_without_tests_no_opinion():
    cheat = "import sys\nclass Yes:\n    def __eq__(self, other): return True\ndef add(a, b): return Yes()"
    hang = "def add(a, b):\n    while True: pass"
    began = time.monotonic()
    scores = score_batch(
        library("unit-tests", seconds=0.5, total_seconds=1),
        *[(text, make_example(tests=TESTS)) for text in (cheat, hang, "import os; os._exit(0)", RIGHT)],
        (RIGHT, make_example()),
        (RIGHT, make_example(tests=[["1", "2"]])),
    )
    assert [score.value for score in scores] == [0.0, 0.0, 0.0, 1.0, None, None]
    assert "no tests under tests" in scores[4].error
    assert time.monotonic() - began < 15


def test_programs_are_graded_by_what_they_print():
    programs = library("unit-tests", kind="programs", grade="share")
    assert score_one(programs, "```\nprint(int(input()) * 2)\n```", tests=[["2", "4"], ["3", "6\n"], ["x", "0"]]) == pytest.approx(2 / 3)


def test_a_query_is_right_when_it_finds_the_reference_s_rows():
    sql = library("sql-result")
    reference = "SELECT name FROM pets WHERE legs >= 4 ORDER BY name"
    for query, value in (
        ("SELECT name FROM pets WHERE legs > 2 ORDER BY legs", 1.0),
        ("```sql\nSELECT name FROM pets WHERE legs > 2\n```", 1.0),
        ("SELECT name FROM pets", 0.0),
        ("SELEKT", 0.0),
        ("DROP TABLE pets", 0.0),
        ("", 0.0),
    ):
        assert score_one(sql, query, reference, setup=SETUP) == value, query
    ordered = library("sql-result", ordered=True, statements=SETUP)
    assert score_one(ordered, "SELECT name FROM pets WHERE legs > 2 ORDER BY name DESC", reference) == 0.0
    assert score_one(sql, "SELECT 1 WHERE 0", "SELECT name FROM pets WHERE legs > 9", setup=SETUP) is None
    assert score_one(sql, "SELECT 1", "SELECT nothing", setup=SETUP) is None


def test_people_s_python_scores_and_fails_row_by_row():
    source = "def score(completion, reference, data):\n    return None if not completion else len(completion) / data['most']"
    scores = score_batch(code(source), ("abcd", make_example(most=8)), ("", make_example()), ("abc", make_example()))
    assert [score.value for score in scores] == [0.5, None, None]
    assert [score.broken for score in scores] == [False, False, True]
    assert "KeyError" in scores[2].error
    for wrong in ("return 'x'", "return float('nan')", "return 10 ** 400", "while True: pass", "open('/etc/passwd')"):
        [score] = score_batch(code(f"def score(completion, reference, data):\n    {wrong}"), ("a", make_example()))
        assert (score.value, score.broken) == (None, True), wrong


def test_python_without_score_is_a_problem_of_the_preflight(tmp_path):
    report = run_preflight_checks(make_spec(tmp_path, rewards=[{"name": "own", "definition": code("x = 1")}]))
    [problem] = report.problems
    assert problem.field == "rewards.0.definition"
    assert "score" in problem.message


@pytest.mark.training
def test_grpo_trains_on_people_s_python_and_stops_when_it_always_fails(tmp_path, written_answers):
    from trainers.attempt import train

    fine = {"name": "own", "definition": code("def score(completion, reference, data):\n    return float(completion.count('7'))"), "weight": 0.1}
    spec = make_spec(tmp_path / "fine", rewards=[fine], training__max_steps=2)
    assert train.run_training(spec, tmp_path / "fine") == train.FINISHED
    events = events_in(tmp_path / "fine")
    assert all(event.rewards["own"] == event.completion.count("7") for event in events if isinstance(event, Rollout))
    assert all(event.values["rewards/own/errors"] == 0 for event in events if isinstance(event, Metrics) and "loss" in event.values)
    source = "def score(completion, reference, data):\n    return 1 / ('7 7 7' in completion)"  # of a group of four one, the third, is no error
    spec = make_spec(tmp_path / "some", rewards=[{**fine, "definition": code(source)}], training__max_steps=1)
    assert train.run_training(spec, tmp_path / "some") == train.FINISHED
    events = events_in(tmp_path / "some")
    assert next(event for event in events if isinstance(event, Metrics) and "loss" in event.values).values["rewards/own/errors"] == 6
    assert "ZeroDivisionError" in next(event.message for event in events if isinstance(event, Warned))
    broken = json.loads(json.dumps(fine)) | {"definition": code("def score(completion, reference, data):\n    return data['nothing']")}
    spec = make_spec(tmp_path / "all", rewards=[broken], training__max_steps=2)
    assert train.run_training(spec, tmp_path / "all") == train.FAILED
    ended = next(event for event in events_in(tmp_path / "all") if isinstance(event, AttemptFinished))
    assert "'own' failed on all of 8 completions" in ended.error
    assert "KeyError" in ended.error
