"""Parts of a run, in steps counted from 1."""

from collections.abc import Sequence


def stage_starts(steps: int, stages: int) -> list[int]:
    """First step of every stage; at most as many stages as steps."""
    stages = min(stages, steps)
    return [place * steps // stages + 1 for place in range(stages)]


def stage_of(step: int, starts: Sequence[int]) -> int:
    """From 0."""
    return sum(step >= start for start in starts) - 1
