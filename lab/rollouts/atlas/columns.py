"""The columns of a map: stretches of steps that have rollouts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lab.rollouts.trajectories.steps import list_rollout_steps, locate_step
from lab.training.runs.models import Run

MOST = 60

Ranges = list[tuple[int, int]]  # first and last step of each column, ascending, not overlapping


def build_step_columns(run: Run, phase: str) -> Ranges:
    """A column for each step while they fit, else stretches of about equally many of them; empty without rollouts."""
    steps = list_rollout_steps(run, phase, False)
    if steps:
        return [(int(part[0]), int(part[-1])) for part in np.array_split(np.array(steps), min(MOST, len(steps)))]
    ends = locate_step(run, phase, None)
    if ends.first is None or ends.last is None:
        return []
    edges = np.unique(np.linspace(ends.first, ends.last + 1, MOST + 1).astype(int)).tolist()  # too many steps to list them
    return [(first, after - 1) for first, after in pairwise(edges)]


def assign_step_columns(ranges: Ranges, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The column of each step (N,); a step between two columns counts to the one before it, a step before the first to the first."""
    firsts = np.array([first for first, _ in ranges])
    return np.maximum(np.searchsorted(firsts, steps, side="right") - 1, 0)
