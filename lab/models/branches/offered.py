"""Which checkpoints a rollout can be branched from, and how far each is from the policy that sampled it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.data.loop.checkpoints import updates_before
from lab.models.policies.checkpoint_paths import format_checkpoint_label, format_checkpoint_step, has_checkpoint_files
from lab.rollouts.trajectories.models import Rollout
from lab.training.runs.models import Checkpoint, Run
from trainers.contract.spec import FINAL


@dataclass(frozen=True)
class OfferedCheckpoint:
    """``behind``: optimiser steps from the checkpoint to the policy that sampled; 0 = that policy itself, below 0 = trained further since."""

    checkpoint: Checkpoint
    behind: int
    start: bool = False  # the policy the run began with, of another run

    @property
    def label(self) -> str:
        return format_checkpoint_label(self.checkpoint)

    @property
    def words(self) -> str:
        """Within the page of a rollout: what it is, and how far away."""
        name = f"starting policy ({self.label})" if self.start else format_checkpoint_step(self.checkpoint)
        return f"{name}: {describe_distance(self.behind)}"


def describe_distance(behind: int) -> str:
    """In words, with its unit."""
    if behind == 0:
        return "the policy that sampled this rollout"
    return f"{abs(behind)} update{'s' * (abs(behind) != 1)} {'before' if behind > 0 else 'after'} the policy that sampled this rollout"


def list_offered_checkpoints(rollout: Rollout) -> list[OfferedCheckpoint]:
    """Those of the run whose files are there, and the one of another run that it started from; fewest updates first."""
    run, sampled = rollout.run, updates_before(rollout.phase, rollout.step)
    found: dict[int, OfferedCheckpoint] = {}
    for checkpoint in Checkpoint.objects.filter(run=run).select_related("run").order_by("step", "-final", "-pk"):
        if checkpoint.step not in found and has_checkpoint_files(checkpoint):
            found[checkpoint.step] = OfferedCheckpoint(checkpoint, sampled - checkpoint.step)
    if 0 not in found and (start := find_start_checkpoint(run)) is not None:
        found[0] = OfferedCheckpoint(start, sampled, start=True)
    return [found[updates] for updates in sorted(found)]


def find_start_checkpoint(run: Run) -> Checkpoint | None:
    """The team's checkpoint that the run's spec starts from; None for other policies and where the files are gone."""
    policy = run.spec.get("policy") or {}
    if policy.get("kind") != "run":
        return None
    try:
        parent = uuid.UUID(Path(str(policy.get("folder", ""))).name)
    except ValueError:
        return None
    wanted = policy.get("checkpoint", FINAL)
    rows = Checkpoint.objects.of(run.team_id).filter(run_id=parent).select_related("run")
    rows = rows.filter(final=True) if wanted == FINAL else rows.filter(step=wanted, final=False)
    return next((checkpoint for checkpoint in rows.order_by("-pk") if has_checkpoint_files(checkpoint)), None)


def choose_nearest_before(offered: Sequence[OfferedCheckpoint]) -> OfferedCheckpoint | None:
    """The nearest at or before the policy that sampled; where there is none, the first after it."""
    before = [one for one in offered if one.behind >= 0]
    return before[-1] if before else offered[0] if offered else None
