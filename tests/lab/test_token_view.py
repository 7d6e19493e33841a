"""Tokens as units of text, model text as pieces, both against hostile and broken input."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import FOLD_FROM, INVISIBLE, iterate_text_pieces, split_completion_blocks
from lab.rollouts.trajectories.tokens import SHOWN_TOKENS, TokenArrays, arrays_of, build_token_units, build_tokens_json
from trainers.contract.arrays import PackError, pack_array, pack_ids


def arrays(lengths: list[int], ids: list[int] | None = None, mask: list[int] | None = None) -> TokenArrays:
    count = len(lengths)
    return TokenArrays(
        np.array(ids or range(count), dtype=np.int64),
        np.array(lengths, dtype=np.int64),
        np.full(count, -1.0),
        np.full(count, 0.5),
        np.array(mask if mask is not None else [1] * count) > 0,
    )


def packed(lengths: list[int], **changes: bytes) -> RolloutTokens:
    count = len(lengths)
    fields = {
        "ids": pack_ids(list(range(count))),
        "lengths": pack_array(lengths, "H"),
        "logprobs": pack_array([-1.0] * count, "e"),
        "entropies": pack_array([0.5] * count, "e"),
    }
    return RolloutTokens(rollout_id=1, **{**fields, "mask": b"", **changes})


def test_each_token_is_the_text_it_added() -> None:
    assert build_token_units("Hello world", arrays([5, 6]), {}, []) == [["Hello", 0, 1, 0], [" world", 1, 1, 0]]


def test_the_pieces_of_one_character_are_one_unit() -> None:
    assert build_token_units("a🦊b", arrays([1, 0, 0, 1, 1]), {}, []) == [["a", 0, 1, 0], ["🦊", 1, 3, 0], ["b", 4, 1, 0]]


def test_lengths_count_code_points_and_not_what_a_browser_counts() -> None:
    assert [unit[0] for unit in build_token_units("🦊🦊x", arrays([2, 1]), {}, [])] == ["🦊🦊", "x"]


def test_a_special_token_shows_its_name_without_taking_text() -> None:
    assert build_token_units("ab", arrays([1, 0, 1], ids=[7, 2, 8]), {"2": "<|end|>"}, []) == [["a", 0, 1, 0], ["<|end|>", 1, 1, 1], ["b", 2, 1, 0]]


def test_bytes_that_never_became_a_character_are_said() -> None:
    assert build_token_units("a", arrays([1, 0, 0]), {}, []) == [["a", 0, 1, 0], ["", 1, 2, 4]]
    assert build_token_units("", arrays([0, 0], ids=[9, 2]), {"2": "<end>"}, []) == [["", 0, 1, 4], ["<end>", 1, 1, 1]]


def test_the_environments_tokens_are_marked() -> None:
    found = build_token_units("abcd", arrays([1, 1, 1, 1]), {}, [["assistant", 0, 2], ["tool", 2, 3], ["assistant", 3, 4]])
    assert [unit[3] for unit in found] == [0, 0, 2, 0]


def test_text_that_no_token_accounts_for_is_shown() -> None:
    assert build_token_units("abc", arrays([1]), {}, []) == [["a", 0, 1, 0], ["bc", 1, 0, 0]]


@given(
    st.text(max_size=60),
    st.lists(st.integers(0, 4), max_size=40),
    st.lists(st.tuples(st.sampled_from(["assistant", "tool"]), st.integers(-5, 60), st.integers(-5, 60)), max_size=4),
)
def test_whatever_the_arrays_say_the_text_and_every_token_are_shown_once(text: str, lengths: list[int], turns: list[Any]) -> None:
    found = build_token_units(text, arrays(lengths), {"3": "<special>"}, [list(turn) for turn in turns])
    assert "".join(unit[0] for unit in found if not unit[3] & 1) == text
    covered = [index for unit in found for index in range(unit[1], unit[1] + unit[2])]
    assert covered == list(range(len(lengths)))


@given(st.text(max_size=200))
def test_pieces_keep_every_character(text: str) -> None:
    pieces = list(iterate_text_pieces(text))
    assert "".join(piece.text for piece in pieces) == text
    assert all(not INVISIBLE.search(piece.text) for piece in pieces if piece.kind == "plain")


@given(
    st.text(max_size=80),
    st.lists(st.integers(0, 5), max_size=30),
    st.lists(st.tuples(st.sampled_from(["assistant", "tool"]), st.integers(-3, 40), st.integers(-3, 40)), max_size=4),
)
def test_blocks_keep_every_character_whatever_the_turns_say(text: str, lengths: list[int], turns: list[Any]) -> None:
    assert "".join(block.text for block in split_completion_blocks(text, turns, np.array(lengths, dtype=np.int64))) == text


def test_thinking_is_told_apart_and_folded_when_long() -> None:
    short, long = (f"<think>{'x' * count}</think>7" for count in (5, FOLD_FROM))
    assert [(block.kind, block.folded) for block in split_completion_blocks(short, [])] == [("think", False), ("policy", False)]
    assert [(block.kind, block.folded) for block in split_completion_blocks(long, [])] == [("think", True), ("policy", False)]


def test_thinking_that_never_ends_is_thinking_to_the_end() -> None:
    assert [block.kind for block in split_completion_blocks("a<think>b<think>c", [])] == ["policy", "think"]


def test_calls_of_tools_stand_apart_with_the_tool_they_name() -> None:
    text = 'a<tool_call>{"name": "look_up", "arguments": {}}</tool_call>b<search>Eva friend</search><tool_call>no end'
    found = [(block.kind, block.title, block.text) for block in split_completion_blocks(text, [])]
    assert found == [
        ("policy", "assistant", "a"),
        ("call", "look_up", '<tool_call>{"name": "look_up", "arguments": {}}</tool_call>'),
        ("policy", "assistant", "b"),
        ("call", "search", "<search>Eva friend</search>"),
        ("policy", "assistant", "<tool_call>no end"),
    ]


def test_a_hundred_thousand_calls_that_never_end_are_read_in_no_time() -> None:
    text = "<tool_call><search><python>" * 100_000
    started = time.process_time()
    assert "".join(block.text for block in split_completion_blocks(text, [])) == text
    assert time.process_time() - started < 5  # quadratic would be minutes


def test_a_bidirectional_override_cannot_reorder_the_page() -> None:
    pieces = list(iterate_text_pieces("user\u202e txt.exe"))
    assert [(piece.kind, piece.label if piece.kind == "invisible" else piece.text) for piece in pieces] == [
        ("plain", "user"),
        ("invisible", "U+202E"),
        ("plain", " txt.exe"),
    ]


def test_a_hundred_thousand_zero_width_characters_are_one_short_label() -> None:
    [piece] = iterate_text_pieces("\u200b" * 100_000)
    assert piece.label == "U+200B U+200B U+200B U+200B U+200B U+200B U+200B U+200B … (100,000 characters)"


def test_damaged_arrays_are_an_error_on_the_card_and_not_on_the_page() -> None:
    rollout = Rollout(pk=1, completion="ab", turns=[])
    assert "cannot be read" in build_tokens_json(rollout, packed([1, 1], ids=b"nonsense"), {})["error"]
    with pytest.raises(PackError, match="2 token ids but 3 logprobs"):
        arrays_of(packed([1, 1], logprobs=pack_array([0.0, 0.0, 0.0], "e")))


def test_a_measurement_that_is_not_finite_is_absent_in_json() -> None:
    rollout = Rollout(pk=1, completion="ab", turns=[])
    found = build_tokens_json(rollout, packed([1, 1], logprobs=pack_array([float("nan"), -1.25], "e"), entropies=b""), {})
    assert found["logprobs"] == [None, -1.25]
    assert found["entropies"] == [None, None]


def test_a_very_long_rollout_is_cut_until_all_of_it_is_asked_for() -> None:
    count = SHOWN_TOKENS + 500
    rollout = Rollout(pk=1, completion="x" * count, turns=[])
    some, everything = build_tokens_json(rollout, packed([1] * count), {}), build_tokens_json(rollout, packed([1] * count), {}, everything=True)
    assert (some["shown"], some["total"], len(some["units"]), len(some["ids"])) == (SHOWN_TOKENS, count, SHOWN_TOKENS, SHOWN_TOKENS)
    assert (everything["shown"], len(everything["units"])) == (count, count)
