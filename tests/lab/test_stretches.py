"""Steps of a completion as stretches of tokens, and the text a range covered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.lib.refusals import Refusal
from lab.rollouts.annotations.token_stretches import cut_into_steps, find_stretch

ENVIRONMENT, SPECIAL, TORN = 2, 1, 4


def units(*texts: str | tuple[str, int]) -> list[list[object]]:
    """A token each; (text, flags) for others than the policy's plain ones."""
    parts = [(text, 0) if isinstance(text, str) else text for text in texts]
    return [[text, index, 1, flags] for index, (text, flags) in enumerate(parts)]


def found(*texts: str | tuple[str, int]) -> list[tuple[int, int, str]]:
    return [(step.start, step.end, step.text) for step in cut_into_steps(units(*texts))]


def test_blank_lines_part_steps_and_single_newlines_then_do_not() -> None:
    assert found("a", "\n", "b", "\n\n", "c") == [(0, 4, "a\nb"), (4, 5, "c")]
    assert found("a", "\n", " \t", "\n", "c") == [(0, 4, "a"), (4, 5, "c")]


def test_without_a_blank_line_every_line_is_a_step() -> None:
    assert found("a.", " b", "\n", "c", "\n") == [(0, 3, "a. b"), (3, 5, "c")]


def test_one_line_is_parted_after_its_sentences() -> None:
    assert found("So", " 3.5", " left", ".", " Then", " stop", "?!", " 'Yes", ".'", " Ok") == [
        (0, 4, "So 3.5 left."),
        (4, 7, "Then stop?!"),
        (7, 9, "'Yes.'"),
        (9, 10, "Ok"),
    ]


def test_thinking_that_ends_ends_a_step() -> None:
    assert found("<think>", "7-2=5", "</think>", "<answer>", "5", "</answer>") == [(0, 3, "<think>7-2=5</think>"), (3, 6, "<answer>5</answer>")]
    assert found("a", "\n", "b", "</think>", "\n", "c") == [(0, 2, "a"), (2, 5, "b</think>"), (5, 6, "c")]


def test_the_tags_around_thinking_are_no_steps() -> None:
    assert found("<think>", "\n\n", "a", "\n\n", "</think>", "\n\n", "b") == [(0, 6, "<think>\n\na\n\n</think>"), (6, 7, "b")]
    assert found("<think>", "</think>") == [(0, 2, "<think></think>")]


def test_what_the_environment_wrote_is_no_step_and_ends_one() -> None:
    assert found("call", ("result.", ENVIRONMENT), "so", ".", " Done") == [(0, 1, "call"), (2, 4, "so."), (4, 5, "Done")]


def test_a_token_across_the_edge_belongs_to_the_earlier_step() -> None:
    assert found("a", ".\n\nB", "c", "\n\n", "d") == [(0, 2, "a.\n\nB"), (2, 4, "c"), (4, 5, "d")]


def test_special_tokens_belong_to_a_step_but_not_to_its_text() -> None:
    assert found(("<s>", SPECIAL), "a", "\n\n", ("<x>", SPECIAL), "b", ("<end>", SPECIAL)) == [(0, 3, "a"), (3, 6, "b")]


def test_white_space_alone_is_no_step() -> None:
    assert found("\n\n", "a", "\n\n", " ", "\n\n") == [(0, 5, "a")]
    assert found(" ", "\n") == []
    assert found() == []


def test_text_without_tokens_is_no_step() -> None:
    assert [step.end for step in cut_into_steps([["a", 0, 1, 0], ["rest", 1, 0, 0]])] == [1]


pieces = st.sampled_from(["a", "word", ".", "\n", "\n\n", " ", " \n", "! ", "b.\n\nc", "é🦊", "<think>", "</think>"])


@given(st.lists(st.tuples(pieces, st.sampled_from([0, 0, 0, SPECIAL, ENVIRONMENT]))))
def test_steps_are_in_order_apart_and_together_all_that_the_policy_said(parts: list[tuple[str, int]]) -> None:
    all_units = units(*parts)
    cut = cut_into_steps(all_units)
    covered = [position for step in cut for position in range(step.start, step.end)]
    assert covered == sorted(set(covered))
    said = {index for index, (text, flags) in enumerate(parts) if flags == 0 and text.strip()}
    assert said <= set(covered)
    assert not {index for index, (_, flags) in enumerate(parts) if flags == ENVIRONMENT} & set(covered)
    assert all(step.text for step in cut)


def test_a_range_is_widened_to_whole_characters_and_gives_its_text() -> None:
    mixed = [["a", 0, 1, 0], ["🦊", 1, 3, 0], ["<end>", 4, 1, SPECIAL]]
    assert (find_stretch(mixed, 2, 3).start, find_stretch(mixed, 2, 3).end, find_stretch(mixed, 2, 3).text) == (1, 4, "🦊")
    assert find_stretch(mixed, 0, 5).text == "a🦊"
    assert find_stretch(mixed, 4, 5).text == "<end>"


@pytest.mark.parametrize(("start", "end"), [(0, 3), (2, 2), (1, 0), (5, 9), (-1, 1)])
def test_a_range_that_is_not_there_is_refused(start: int, end: int) -> None:
    with pytest.raises(Refusal, match="which has 2"):
        find_stretch(units("a", "b"), start, end)
