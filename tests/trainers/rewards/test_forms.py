"""Functions that need no reference: form, length, repetition, language."""

import time

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.trainers.rewards.scoring import library, make_example, score_batch, score_one
from trainers.contract.problems import SpecError
from trainers.contract.reward_definitions import LibraryReward
from trainers.rewards.definition_checks import find_definition_problems


def test_a_regular_expression():
    assert score_one(library("regex", pattern=r"^\d+$", found=2, missing=-1), "one\n12") == 2.0
    assert score_one(library("regex", pattern=r"^\d+$", found=2, missing=-1), "one") == -1.0
    assert score_one(library("regex", pattern=r"\d+", whole=True), "12 a") == 0.0


def test_a_pattern_that_explodes_ends_and_has_no_opinion():
    began = time.monotonic()
    [score] = score_batch(library("regex", pattern=r"(x|x\w|\wx)+$"), ("x" * 60 + "!", make_example()))
    assert score.value is None
    assert "longer than 1 s" in score.error
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("completion", "value"),
    [('{"a": 1}', 1.0), ('```json\n{"a": 2}\n```', 1.0), ('{"a": "x"}', 0.25), ('{"a": NaN}', 0.0), ("", 0.0), ("[" * 100_000, 0.0)],
)
def test_json_against_a_schema(completion, value):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert score_one(library("json-schema", json_schema=schema, invalid=0.25), completion) == value
    assert score_one(library("json-schema", from_data="shape", invalid=0.25), completion, shape=schema) == value


def test_a_schema_that_would_be_fetched_is_refused():
    with pytest.raises(SpecError, match="would have to be fetched"):
        score_one(library("json-schema", json_schema={"$ref": "https://example.org/x.json"}), "1")
    assert score_one(library("json-schema", from_data="shape"), "1") is None


def test_tags_once_each_in_order():
    assert score_one(library("tags"), "<think>a</think>\n<answer>b</answer>") == 1.0
    for wrong in (
        "<answer>b</answer><think>a</think>",
        "<think>a</think><answer>b</answer> so",
        "<think>a</think><answer></answer>",
        "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think>a<answer>b</answer></think>",
    ):
        assert score_one(library("tags"), wrong) == 0.0, wrong
    assert score_one(library("tags", partial=True), "<think>a</think>") == 0.5
    assert score_one(library("tags", only=False), "so <think>a</think> and <answer>b</answer>.") == 1.0


def test_sections_in_order():
    given = library("sections", headings=["Steps", "Result"])
    for right in ("## Steps\na\n## Result\nb", "**Steps:**\na\n\n**Result**\nb", "steps:\na\nRESULT:\nb"):
        assert score_one(given, right) == 1.0, right
    for wrong in ("Result:\nb\nSteps:\na", "Steps:\nResult:\nb", "The steps are a, the result is b"):
        assert score_one(given, wrong) == 0.0, wrong
    assert score_one(library("sections", headings=["Steps", "Result"], partial=True), "Steps:\na") == 0.5


def test_lengths_and_their_falloff(tmp_path):
    assert score_one(library("length", least=2, most=3), "one two three") == 1.0
    assert score_one(library("length", least=2, most=3), "one") == 0.0
    assert score_one(library("length", most=2, falloff=3), "1 2 3") == 0.75
    assert score_one(library("length", unit="characters", most=5), "äöüß€") == 1.0
    assert score_one(library("length", unit="lines", most=1), "a\nb") == 0.0
    Tokenizer(WordLevel({"one": 0, "?": 1}, unk_token="?")).save(str(tmp_path / "tokenizer.json"))
    assert score_one(library("length", unit="tokens", most=1, tokenizer=str(tmp_path)), "one") == 1.0
    missing = LibraryReward(function="length", config={"unit": "tokens", "tokenizer": str(tmp_path / "none")})
    assert [problem.field for problem in find_definition_problems(missing, "here")] == ["here.config.tokenizer"]


def test_repetition_is_a_penalty():
    assert score_one(library("repetition", size=2), "a b c d") == 0.0
    assert score_one(library("repetition", size=2), "a b a b a") == pytest.approx(2 / 4 - 1)
    assert score_one(library("repetition"), "no") == 0.0


def test_language_is_guessed_by_lines():
    english, german = "The weather has been very pleasant this week.", "Das Wetter war diese Woche sehr angenehm und warm."
    assert score_one(library("language", language="de"), german) == 1.0
    assert score_one(library("language", language="en"), german) == 0.0
    assert score_one(library("language", language="en"), f"{english}\n{german}") == pytest.approx(0.46, abs=0.1)
    assert score_one(library("language"), "ok 7") is None
    unknown = LibraryReward(function="language", config={"language": "xx"})
    assert [problem.field for problem in find_definition_problems(unknown, "here")] == ["here.config.language"]
