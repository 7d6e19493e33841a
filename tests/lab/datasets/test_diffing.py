"""Differences between two sets of rows; every row of either is in exactly one of them or the same in both."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lab.data.datasets.row_diff import DiffEntry, count_differences, diff_entries, make_diff_entry
from lab.data.datasets.rows import BuiltRow, hash_row_content, make_opposite_row


def made(prompt: str = "p", chosen: str = "a", rejected: str = "b", item: int | None = 1, split: str = "train", **more: Any) -> DiffEntry:
    row = {"prompt": prompt, "chosen": chosen, "rejected": rejected, **more}
    rollouts = [ord(chosen[0]), ord(rejected[0])]
    return make_diff_entry(BuiltRow(row, hash_row_content(row), None, rollouts, item, None, [], {}, split))


def kinds(before: list[DiffEntry], after: list[DiffEntry]) -> list[str]:
    return [one.kind for one in diff_entries(before, after)]


def test_each_kind_is_told() -> None:
    assert kinds([made()], [made()]) == []
    assert kinds([], [made()]) == ["added"]
    assert kinds([made()], []) == ["removed"]
    assert kinds([made()], [made(chosen="b", rejected="a")]) == ["flipped"]
    assert kinds([made()], [made(chosen="ax")]) == ["changed"]  # a correction took the place of the text
    assert kinds([made()], [made(weight=0.5)]) == ["changed"]
    assert kinds([made()], [made(weight=1.0)]) == []  # what it weighs anyway
    assert kinds([made()], [made(split="test")]) == ["moved"]
    assert kinds([made(item=None)], [made(item=None, chosen="b", rejected="a")]) == ["flipped"]


def test_a_correction_in_place_of_the_better_answer_is_a_change() -> None:
    row = {"prompt": "p", "chosen": "better still", "rejected": "b"}
    corrected = make_diff_entry(BuiltRow(row, hash_row_content(row), None, [ord("b")], 1, None, [], {}, "train"))
    assert kinds([made()], [corrected]) == ["changed"]
    assert kinds([corrected], [made()]) == ["changed"]
    assert kinds([made(item=2)], [corrected]) == ["added", "removed"]


def test_what_is_the_same_is_matched_before_what_is_flipped() -> None:
    same, contrary = made(item=1), made(item=2, chosen="b", rejected="a")
    assert kinds([same, contrary], [made(item=3, chosen="b", rejected="a"), same]) == []
    assert kinds([same], [contrary, same]) == ["added"]


def contrary(one: DiffEntry) -> DiffEntry:
    row = make_opposite_row(one.row)
    return make_diff_entry(BuiltRow(row, hash_row_content(row), None, list(one.rollouts[::-1]), one.item, None, [], {}, one.split))


PAIRS = st.builds(
    made,
    prompt=st.sampled_from("pq"),
    chosen=st.sampled_from("ab"),
    rejected=st.sampled_from("cd"),
    item=st.sampled_from([1, 2, None]),
    split=st.sampled_from(["train", "test"]),
)
ROWS = st.lists(PAIRS.flatmap(lambda one: st.sampled_from([one, contrary(one)])), max_size=8)


@given(ROWS, ROWS)
def test_nothing_is_lost_or_counted_twice(before: list[DiffEntry], after: list[DiffEntry]) -> None:
    found = diff_entries(before, after)
    counts = count_differences(found)
    one_sided = counts["removed"] - counts["added"]
    assert len(before) - len(after) == one_sided
    assert sum(one.before is not None for one in found) <= len(before)
    assert diff_entries(before, before) == []
    back = count_differences(diff_entries(after, before))
    assert (back["added"] - back["removed"]) == one_sided
