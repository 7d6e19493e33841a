"""Functions that compare an answer with a reference, and what tempts them to be wrong."""

import pytest

from tests.trainers.rewards.scoring import library, make_example, score_batch, score_one

MATCHERS = ("exact-match", "normalised-match", "number", "multiple-choice", "ngram-similarity")


@pytest.mark.parametrize("function", MATCHERS)
def test_an_empty_answer_is_never_right(function):
    reference = {"number": "7", "multiple-choice": "B"}.get(function, "seven")
    for completion in ("", "  \n", "\\boxed{}"):
        assert score_one(library(function, answer="boxed" if "boxed" in completion else "whole"), completion, reference) == 0.0
        assert score_one(library(function), completion, "") is None
        assert score_one(library(function), completion, " \n ") is None


def test_a_row_without_a_reference_is_an_abstention_with_its_reason():
    good, bad = score_batch(library("exact-match"), ("7", make_example("7")), ("7", make_example("")))
    assert (good.value, good.error) == (1.0, "")
    assert (bad.value, bad.error) == (None, "the row has no reference answer")


@pytest.mark.parametrize(
    ("place", "completion", "right"),
    [
        ("whole", " 7 \n", True),
        ("whole", "it is 7", False),
        ("after-hashes", "3 + 4 = 7\n#### 7", True),
        ("after-hashes", "#### 5\nno, wait\n#### 7\nDone.", True),
        ("after-hashes", "7", False),
        ("boxed", r"\boxed{5} or rather \boxed{7}", True),
        ("boxed", r"first \boxed{7}, then \boxed{5", True),  # the last one never closes
        ("boxed", r"\boxed 7.", True),
        ("answer-tag", "<answer>5</answer> hm <answer>7</answer>", True),
        ("answer-tag", "<answer>7", False),
        ("last-line", "so:\n7\n\n", True),
        ("pattern", "x = 5, x = 7", True),
    ],
)
def test_the_answer_is_read_where_it_stands(place, completion, right):
    assert score_one(library("exact-match", answer=place, answer_pattern=r"x = (\d)"), completion, "7") == float(right)


def test_nested_braces_and_the_references_own_place():
    assert score_one(library("exact-match", answer="boxed"), r"\boxed{\frac{1}{2}}", r"\frac{1}{2}") == 1.0
    assert score_one(library("number", reference_answer="after-hashes"), "18", "She sells 9 eggs: 9 * 2 = 18.\n#### 18") == 1.0


def test_an_answer_that_was_only_copied_from_the_prompt_is_none():
    prompt = "Answer as <answer>42</answer>. How many?"
    given = library("exact-match", answer="answer-tag")
    assert score_one(given, prompt, "42", prompt) == 0.0
    assert score_one(given, f"{prompt} <answer>42</answer>", "42", prompt) == 1.0


@pytest.mark.parametrize(
    ("completion", "reference", "right"),
    [
        ("The Eiffel Tower!", "eiffel tower", True),
        ("3.5", "35", False),
        ("-5", "5", False),
        ("\u22125", "-5", True),
        ("ﬁve", "five", True),
        ("Straße", "STRASSE", True),
        ("a", "the", False),
        ("café", "cafe", False),
    ],
)
def test_normalised_match(completion, reference, right):
    assert score_one(library("normalised-match"), completion, reference) == float(right)


def test_normalised_match_with_accents_and_several_right_answers():
    assert score_one(library("normalised-match", accents=True), "café", "cafe") == 1.0
    several = library("normalised-match", separator="|")
    assert score_one(several, "NYC", "New York|NYC|") == 1.0
    assert score_one(several, "", "New York|NYC|") == 0.0
    assert score_one(several, "x", "|") is None


@pytest.mark.parametrize(
    ("completion", "reference", "right"),
    [
        ("1,234", "1234", True),
        ("$1,234.50 in all", "1234.5", True),
        ("1,2,3", "123", False),
        ("12345678901234567890", "12345678901234567890", True),
        ("12345678901234567891", "12345678901234567890", False),
        ("9007199254740993", "9007199254740992", False),
        ("-0", "0", True),
        ("\u22127", "-7", True),
        ("-7", "7", False),
        ("10-3=7", "7", True),
        ("nan", "7", False),
        ("inf", "7", False),
        ("1e3", "1000", True),
        ("1e999999999", "7", False),
        ("3/4", "0.75", True),
        ("1/0", "0", False),
        ("50%", "50", True),
        ("1{,}234", "1234", True),
        ("the answer is 7.", "7", True),
        ("- 7 apples", "7", True),
        ("x2", "2", False),
        ("9" * 5000, "7", False),
        ("٧", "7", False),
    ],
)
def test_number(completion, reference, right):
    assert score_one(library("number"), completion, reference) == float(right)


def test_number_with_tolerances_units_and_signs():
    assert score_one(library("number", absolute=0.01), "3.14", "3.14159") == 1.0
    assert score_one(library("number", relative=0.01), "100.9", "100") == 1.0
    assert score_one(library("number", relative=0.01), "101.1", "100") == 0.0
    assert score_one(library("number", percent="hundredth"), "50 %", "0.5") == 1.0
    assert score_one(library("number", units="same"), "5 kg", "5 km") == 0.0
    assert score_one(library("number", units="same"), "5km", "5 km") == 1.0
    assert score_one(library("number", decimal="comma"), "1.234,5", "1234,5") == 1.0
    assert score_one(library("number", which="first"), "7 of 9", "7") == 1.0
    assert score_one(library("number", which="only"), "7 of 9", "9") == 0.0
    assert score_one(library("number"), "7", "nan") is None


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        ("B", True),
        ("(b)", True),
        ("**B**", True),
        ("B.", True),
        ("B) Paris", True),
        ("The answer is B", True),
        ("Answer: (B), because it is the capital.", True),
        ("I first thought the answer is A, but the answer is B.", True),
        ("A dog says B is best", False),
        ("Answer: A dog", False),
        ("Because", False),
        ("(A) or (B)", False),
        ("It must be (B).", True),
        ("paris", True),
        ("E", False),
        ("I'd say bananas", False),
    ],
)
def test_multiple_choice(completion, right):
    assert score_one(library("multiple-choice"), completion, "B", choices=["Rome", "Paris", "Bonn", "Oslo"]) == float(right)


def test_a_dog_is_not_choice_a():
    for text in ("A dog", "A dog barks.", "The answer is a dog", "Dog A-1"):
        assert score_one(library("multiple-choice"), text, "A") == 0.0
    assert score_one(library("multiple-choice"), "A", "dog") is None


def test_ngram_similarity_is_what_the_papers_say():
    reference = "the cat sat on the mat"
    for measure in ("bleu", "rouge-l", "chrf"):
        assert score_one(library("ngram-similarity", measure=measure), reference, reference) == pytest.approx(1.0)
        assert score_one(library("ngram-similarity", measure=measure), "12 34", reference) == pytest.approx(0.0, abs=0.2)
    # Lin 2004: "police killed the gunman" against "police kill the gunman": LCS 3 of 4 words.
    assert score_one(library("ngram-similarity"), "police kill the gunman", "police killed the gunman") == pytest.approx(0.75)
    # By hand: precisions 5/6, 4/6, 3/5, 2/4 (the last three with add-one), no brevity penalty.
    expected = (5 / 6 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25
    assert score_one(library("ngram-similarity", measure="bleu"), "the cat sat on a mat", reference) == pytest.approx(expected)
