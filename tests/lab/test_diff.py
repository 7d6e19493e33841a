"""The word diff: nothing is lost, it reads well, and no text makes it slow."""

import itertools
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.lib.diff import DiffSpan, diff_words
from tests.hostile import PAYLOADS

TEXTS = st.text(st.sampled_from("ab c\n.,=\u00e9\u4e2d\U0001f468\u200d"), max_size=60) | st.text(max_size=30)


def side(spans: list[DiffSpan], kind: str) -> str:
    return "".join(span.text for span in spans if span.kind in ("same", kind))


def shown(before: str, after: str, **options: bool) -> str:
    marks = {"same": "{}", "removed": "[-{}]", "added": "[+{}]"}
    return "".join(marks[span.kind].format(span.text) for span in diff_words(before, after, **options))


@given(TEXTS, TEXTS)
def test_both_texts_can_be_read_off_the_spans(before: str, after: str) -> None:
    spans = diff_words(before, after)
    assert side(spans, "removed") == before
    assert side(spans, "added") == after
    assert all(span.text for span in spans)
    assert all(one.kind != other.kind for one, other in itertools.pairwise(spans))


@given(TEXTS, TEXTS)
def test_without_white_space_the_second_text_is_whole_and_the_first_up_to_its_spaces(before: str, after: str) -> None:
    spans = diff_words(before, after, ignore_space=True)
    assert side(spans, "added") == after
    assert "".join(side(spans, "removed").split()) == "".join(before.split())


@given(TEXTS)
def test_a_text_does_not_differ_from_itself(text: str) -> None:
    assert diff_words(text, text) == ([DiffSpan("same", text)] if text else [])


@pytest.mark.feature(37)
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("the cat sat", "the dog sat", "the [-cat][+dog] sat"),
        ("2 + 3 = 5", "2 + 3 = 6", "2 + 3 = [-5][+6]"),
        ("a c", "a b c", "a[+ b] c"),
        ("", "new", "[+new]"),
        ("gone", "", "[-gone]"),
        ("one two", "one\ntwo", "one[- ][+\n]two"),
        ("\u4e2d\u6587\u5b57", "\u4e2d\u570b\u5b57", "\u4e2d[-\u6587][+\u570b]\u5b57"),
        # The shared "the" is no news between two sentences that have nothing else in common.
        ("rivers cross the plain", "nobody saw the letters", "[-rivers cross the plain][+nobody saw the letters]"),
    ],
)
def test_it_reads_as_a_person_would_mark_it(before: str, after: str, expected: str) -> None:
    assert shown(before, after) == expected


def test_white_space_can_be_ignored() -> None:
    assert shown("so  x =\n5", "so x = 6", ignore_space=True) == "so x = [-5][+6]"


def test_a_letter_is_not_parted_from_its_marks() -> None:
    before, after = "x e\u0301 y", "x e\u0300 y"
    assert shown(before, after) == "x [-e\u0301][+e\u0300] y"


def test_hostile_texts_come_through_whole() -> None:
    for before, after in itertools.pairwise(PAYLOADS):
        spans = diff_words(before, after)
        assert (side(spans, "removed"), side(spans, "added")) == (before, after)


def numbers(seed: int, count: int) -> str:
    draw = random.Random(seed)
    return ", ".join(str(draw.randrange(10**6)) for _ in range(count))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (numbers(1, 4_000), numbers(2, 4_000)),  # share nothing but commas: difflib needs minutes
        ("x y " * 20_000, "y " * 20_000),
        ("a\n" * 50_000, "b\na\n" * 50_000),
        ("!?" * 30_000, "?!!" * 30_000),
        ("x" * 400_000, "x" * 400_000 + "y"),
        (" " * 400_000, "\n" * 400_000),
    ],
    ids=["numbers", "two words", "lines", "signs", "one long word", "space"],
)
def test_no_text_takes_long(before: str, after: str) -> None:
    started = time.process_time()
    spans = diff_words(before, after)
    assert time.process_time() - started < 2.5
    assert (side(spans, "removed"), side(spans, "added")) == (before, after)
