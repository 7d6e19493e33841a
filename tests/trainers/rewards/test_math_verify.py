"""Our function says what math-verify says, and nothing that sympy does hangs a run."""

import os
import time
from pathlib import Path

import math_verify
import pytest

from tests.trainers.rewards.scoring import DEFINITION, library, make_example
from trainers.rewards.composition import build_reward

# Answers as GSM8K and MATH have them: (completion, reference, right)
CASES = [
    ("She sells 16 - 3 - 4 = 9 eggs, 9 * 2 = 18 dollars.\n#### 18", "18", True),
    (r"so $\boxed{\frac{3}{4}}$", "0.75", True),
    (r"$\boxed{\frac{2}{3}}$", r"\frac{4}{6}", True),
    (r"$\boxed{5\text{ cm}}$", "5", True),
    (r"$\boxed{2\sqrt{2}}$", r"\sqrt{8}", True),
    (r"$\boxed{\{3, 1, 2\}}$", r"\{1, 2, 3\}", True),
    (r"$\boxed{[1, 2)}$", "[1,2)", True),
    (r"$\boxed{(1, 2)}$", "[1,2)", False),
    (r"$\boxed{(-\infty, 3)}$", "x<3", True),
    (r"$\boxed{x^2 + 2x + 1}$", "(x+1)^2", True),
    (r"$\boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}}$", r"\begin{pmatrix} 1 \\ 3 \end{pmatrix}", False),
    (r"first $\boxed{3}$, but no: $\boxed{4}$", "3", False),
    (r"$\boxed{50\%}$", "0.5", True),
]


@pytest.fixture(scope="module")
def scorer():
    made = build_reward(DEFINITION.validate_python(library("math-verify", seconds=2)))
    yield made
    made.close()


def test_it_agrees_with_math_verify_itself(scorer):
    scores = scorer.score_batch([(completion, make_example(reference)) for completion, reference, _ in CASES])
    assert [score.error for score in scores] == [""] * len(CASES)
    for score, (completion, reference, right) in zip(scores, CASES, strict=True):
        own = math_verify.verify(math_verify.parse(f"${reference}$"), math_verify.parse(completion))
        assert (score.value == 1.0) == own == right, (completion, reference)


def test_bare_formulas_empty_answers_and_rows_without_mathematics(scorer):
    rows = [(r"\sqrt{8}", r"2\sqrt{2}"), ("(1,2]", "(1,2]"), ("", ""), ("", "7"), ("7", ""), ("7", "no idea")]
    scores = scorer.score_batch([(completion, make_example(reference)) for completion, reference in rows])
    assert [score.value for score in scores] == [1.0, 1.0, None, 0.0, None, None]
    assert "no mathematics" in scores[5].error


def test_a_tagged_answer_is_read_and_what_stands_outside_it_is_not(scorer):
    completions = [
        "<answer>195</answer>",
        "<think>5*39</think><answer>195</answer>",
        "<think>195</think><answer>7</answer>",
        "<answer> </answer> it is 195",
    ]
    scores = scorer.score_batch([(completion, make_example("195")) for completion in completions])
    assert [score.value for score in scores] == [1.0, 1.0, 0.0, 1.0]


def test_what_hangs_is_ended_counted_and_costs_the_others_nothing(scorer):
    hanging = r"$\boxed{9^{9^{9^{9}}}}$"  # a power that no signal interrupts
    scorer.collect()
    began = time.monotonic()
    scores = scorer.score_batch([(hanging, make_example("10^{10^{10^{10}}}")), (r"$\boxed{7}$", make_example("7"))])
    assert scores[1].value == 1.0
    assert scores[0].value in (0.0, None)
    assert time.monotonic() - began < 30


def test_a_child_that_is_killed_is_replaced(scorer):
    child = scorer.function.child
    rows = [("7", make_example("7"))]
    assert scorer.score_batch(rows)[0].value == 1.0
    os.kill(child.process.pid, 9)
    child.process.wait()
    [lost] = scorer.score_batch(rows)
    assert (lost.value, lost.error != "") == (None, True)
    assert scorer.score_batch(rows)[0].value == 1.0
    assert scorer.collect()["failures"] == 1.0


def test_a_comparison_past_the_limit_is_wrong_or_no_opinion_as_asked(monkeypatch):
    for late, value in (("wrong", 0.0), ("no opinion", None)):
        made = build_reward(DEFINITION.validate_python(library("math-verify", seconds=0.5, late=late)))
        try:
            monkeypatch.setattr(made.function.child, "module", "tests.trainers.rewards.hanging_child")
            [score] = made.score_batch([("7", make_example("7"))])
            assert score.value == value
            assert made.collect() == {"timeouts": 1.0}
            assert made.function.child.process is None
        finally:
            made.close()


def test_the_child_knows_no_secret(scorer, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    scorer.close()
    assert scorer.score_batch([("7", make_example("7"))])[0].value == 1.0
    environment = Path(f"/proc/{scorer.function.child.process.pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"hf_secret" not in environment
