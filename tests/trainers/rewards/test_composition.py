"""Sums, products and gates as their definitions say; one bad row never costs the others; wrong definitions are refused at their place."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.rewards.scoring import DEFINITION, library, make_example, score_batch, score_one
from trainers.contract.problems import SpecError
from trainers.rewards import composition
from trainers.rewards.composition import build_reward
from trainers.rewards.definition_checks import find_definition_problems
from trainers.rewards.registry import BUILT_IN
from trainers.rewards.scores import Score

ROOT = Path(__file__).resolve().parents[3]
NONE, ONE = library("exact-match"), library("length", least=1)  # without a reference the first has no opinion
TWO, ZERO = library("regex", pattern=".", found=2), library("regex", pattern="never")


def parts(*rewards: Any, weights: Any = ()) -> dict[str, Any]:
    listed = [{"reward": reward, "weight": weight} for reward, weight in zip(rewards, weights, strict=True)]
    return {"kind": "sum", "parts": listed}


@pytest.mark.feature(13)
def test_a_sum_adds_the_parts_with_an_opinion():
    assert score_one(parts(ONE, TWO, NONE, weights=[0.5, -1, 9]), "x") == -1.5
    assert score_one(parts(NONE, weights=[1]), "x") is None


def test_a_product_needs_every_opinion():
    assert score_one({"kind": "product", "parts": [TWO, TWO, ONE]}, "x") == 4.0
    assert score_one({"kind": "product", "parts": [TWO, NONE]}, "x") is None


def test_a_gate_opens_from_its_score_on():
    gate = {"kind": "gate", "gate": ONE, "reward": TWO, "otherwise": -3}
    assert score_one(gate, "x") == 2.0
    assert score_one({**gate, "at_least": 1.5}, "x") == -3.0
    assert score_one({**gate, "gate": NONE}, "x") is None
    assert score_one({**gate, "reward": NONE}, "x") is None


def test_what_a_closed_gate_keeps_out_is_not_scored(monkeypatch):
    asked: list[int] = []

    def count_rows(rows):
        asked.append(len(rows))
        return [Score(1.0) for _ in rows]

    scorer = build_reward(DEFINITION.validate_python({"kind": "gate", "gate": ONE, "reward": TWO}))
    monkeypatch.setattr(scorer.reward.function, "score_batch", count_rows)
    assert [score.value for score in scorer.score_batch([("", make_example()), ("x", make_example()), ("", make_example())])] == [0.0, 1.0, 0.0]
    assert asked == [1]


def test_compositions_nest_and_keep_the_first_error():
    inner = {"kind": "product", "parts": [ONE, TWO]}
    [score] = score_batch(parts(inner, NONE, weights=[1, 1]), ("x", make_example()))
    assert score.value == 2.0
    assert score.error == "the row has no reference answer"
    assert score.seconds > 0


def test_a_score_that_is_not_finite_is_an_error():
    huge = library("regex", pattern="x", found=1000)
    nested: Any = {"kind": "product", "parts": [{"kind": "product", "parts": [huge] * 20}] * 6}
    [score] = score_batch(nested, ("x", make_example()))
    assert score.value is None
    assert "finite" in score.error


@pytest.mark.parametrize(
    ("definition", "field", "fix"),
    [
        (library("exact-macht"), "definition.function", "did you mean exact-match?"),
        (library("regex", pattern="("), "definition.config.pattern", "correct it"),
        (library("regex"), "definition.config.pattern", "add it"),
        (library("length", most=-1), "definition.config.most", ""),
        (library("length", mots=1), "definition.config.mots", "did you mean most?"),
        (library("number", answer="pattern"), "definition.config.answer_pattern", "give a regular expression"),
        (parts(ONE, library("regex", pattern="("), weights=[1, 1]), "definition.parts.1.reward.config.pattern", "correct it"),
        ({"kind": "gate", "gate": ONE, "reward": library("nothing")}, "definition.reward.function", "use one of"),
        ({"kind": "code", "source": "def score(:"}, "definition.source", "correct it"),
    ],
)
def test_a_wrong_definition_is_refused_at_its_place(definition, field, fix):
    checked = DEFINITION.validate_python(definition)
    [problem] = find_definition_problems(checked, "definition")
    assert problem.field == field
    assert fix in problem.fix
    with pytest.raises(SpecError):
        build_reward(checked)


def test_every_parameter_is_explained():
    for kind in BUILT_IN:
        assert kind.title
        assert kind.summary.endswith("."), kind
        for name, field in kind.Parameters.model_fields.items():
            assert field.description, (kind.name, name)
            assert field.title, (kind.name, name)


def test_every_function_survives_hostile_text():
    texts = ["\0", "\ud800", "[" * 5000, "9" * 5000, "<answer>" * 1000, "\\boxed{" * 2000, "### " * 1000, "é\u0301" * 500, "1e99999", "A" * 100_000]
    config = {"regex": {"pattern": "x"}, "sections": {"headings": ["a"]}}
    for kind in BUILT_IN:
        if kind.name in WITHOUT_NEEDS:
            scores = score_batch(library(kind.name, **config.get(kind.name, {})), *[(text, make_example("7")) for text in texts])
            assert len(scores) == len(texts)


WITHOUT_NEEDS = {
    "exact-match",
    "normalised-match",
    "number",
    "multiple-choice",
    "regex",
    "json-schema",
    "tags",
    "sections",
    "length",
    "repetition",
    "language",
    "ngram-similarity",
}


def test_a_function_that_miscounts_stops_the_run(monkeypatch):
    scorer = build_reward(DEFINITION.validate_python(ONE))
    monkeypatch.setattr(scorer.function, "score_batch", lambda rows: [])
    with pytest.raises(composition.RewardFailed, match="0 scores for 1"):
        scorer.score_batch([("x", make_example())])


def test_the_documentation_lists_every_function_as_it_is():
    page = (ROOT / "docs/rewards.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{kind.name}` | {kind.summary} | {', '.join(f'`{name}`' for name in kind.Parameters.model_fields)} |" for kind in BUILT_IN]


def test_the_catalogue_has_every_function_with_its_parameters():
    listed = {entry["name"]: entry for entry in json.loads((ROOT / "trainers/catalog.json").read_text())["rewards"]}
    assert list(listed) == [kind.name for kind in BUILT_IN]
    for kind in BUILT_IN:
        assert set(listed[kind.name]["parameters"]["properties"]) == set(kind.Parameters.model_fields)
