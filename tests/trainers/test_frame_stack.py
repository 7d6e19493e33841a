"""Calls do not map memory one by one, however deep their caller is."""

import resource

import pytest

from trainers.contract.frame_stack import call_with_frame_room

DEEP, CALLS = 400, 500  # frames that fill several of the interpreter's chunks; calls from each depth


def do_nothing() -> None:
    return None


def count_most_faults(depth: int) -> int:
    """Pages that the kernel had to hand out for calls from one depth, the most of all depths down to ``depth``."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        do_nothing()
    here = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return here if depth == 0 else max(here, count_most_faults(depth - 1))


def test_no_depth_is_dear() -> None:
    assert call_with_frame_room(count_most_faults, DEEP) < CALLS / 5


def test_what_is_called_gets_its_arguments_and_its_errors_pass() -> None:
    assert call_with_frame_room(sorted, [1, 3, 2], reverse=True) == [3, 2, 1]
    with pytest.raises(ValueError, match="none"):
        call_with_frame_room(int, "none")
