"""Which policy sampled the rows of a dataset version, and which of the policies that are still there is nearest to it.

A training rollout of step s was sampled by the policy after s - 1 updates, a held-out one by the policy after s. A checkpoint of step k holds the
policy after k updates. The distance between the two is how far off-policy a row is, in optimiser steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from lab.data.datasets.models import Version
from lab.training.runs.models import Run, Status
from lab.training.runs.references import restore_reference_names
from lab.training.runs.stored_checkpoints import list_steps_there
from trainers.contract.spec import FINAL

START = "start"  # instead of a checkpoint: the policy the run began with
FAR = 20  # optimiser steps between policy and sampler from which a row counts as far off-policy
MOST_RUNS = 50

SOURCES = """
SELECT r.run_id, r.phase, r.step, count(*)
FROM datasets_row AS d CROSS JOIN LATERAL unnest(d.rollouts) AS answer(id) JOIN trajectories_rollout AS r ON r.id = answer.id
WHERE d.version_id = %s AND d.split = 'train'
GROUP BY 1, 2, 3
"""


@dataclass(frozen=True)
class PolicyCandidate:
    """A policy of a run that can be trained from. ``checkpoint``: FINAL, START or the step of a checkpoint; ``updates``: steps it has had."""

    run: Run
    checkpoint: str | int
    updates: int

    @property
    def value(self) -> str:
        return f"{self.run.pk}:{self.checkpoint}"

    @property
    def label(self) -> str:
        if self.checkpoint == START:
            return f"starting policy ({self.run.policy})"
        return "final policy" if self.checkpoint == FINAL else f"checkpoint at step {self.checkpoint}"

    @property
    def policy(self) -> dict[str, Any]:
        """As a spec names it (lab.training.runs.references)."""
        if self.checkpoint == START:
            return dict(restore_reference_names(self.run.team, self.run.spec)["policy"])
        return {"kind": "run", "run": str(self.run.pk), "checkpoint": self.checkpoint}


@dataclass
class RunAnswers:
    """Answers of a version that one run sampled: (updates of the policy then, step they are listed under) → how many."""

    run: Run
    counts: Counter[tuple[int, int]] = field(default_factory=Counter)

    @property
    def answers(self) -> int:
        return self.counts.total()

    @property
    def median(self) -> int:
        """Of the updates."""
        return compute_weighted_median(sum_counts_by_value((updates, count) for (updates, _), count in self.counts.items()))


@dataclass(frozen=True)
class PolicyChoice:
    """A candidate beside the answers: how many it is the nearest to, their steps, and how far it is from all answers of its run."""

    candidate: PolicyCandidate
    answers: int
    first: int | None
    last: int | None
    distance: int  # median over all answers of the run
    far: int  # answers of the version that are far from it, those of other runs included

    @property
    def steps(self) -> str:
        if self.first is None:
            return ""
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def list_sampling_runs(version: Version) -> list[RunAnswers]:
    """The runs whose answers are in the training split, most answers first. Empty for imports."""
    with connection.cursor() as cursor:
        cursor.execute(SOURCES, [version.pk])
        rows = cursor.fetchall()
    runs = Run.objects.of(version.dataset.team).select_related("team").in_bulk({row[0] for row in rows})
    sampled: dict[Any, RunAnswers] = {pk: RunAnswers(run) for pk, run in runs.items()}
    for run, phase, step, count in rows:
        if run in sampled:
            sampled[run].counts[updates_before(phase, step), step] += count
    return sorted(sampled.values(), key=lambda source: (-source.answers, -source.run.number))[:MOST_RUNS]


def updates_before(phase: str, step: int) -> int:
    """Optimiser steps that the policy had when it sampled; answers that a run on preferences pairs itself are sampled before its first."""
    return {"heldout": step, "play": step, "sampled": 0}.get(phase, max(step - 1, 0))


def list_policy_candidates(run: Run) -> list[PolicyCandidate]:
    """What is there to start from, in order of updates: where the run began, the checkpoints that are kept, the final policy.
    Nothing of a run that was trained elsewhere.
    """
    if run.outside:
        return []
    candidates = [PolicyCandidate(run, step, step) for step in list_steps_there(run, run.checkpoints.filter(final=False))]
    if isinstance(run.spec.get("policy"), dict):
        candidates.insert(0, PolicyCandidate(run, START, 0))
    if run.status == Status.FINISHED:
        candidates = [candidate for candidate in candidates if candidate.checkpoint != run.step]  # the final policy is the same, and whole
        candidates.append(PolicyCandidate(run, FINAL, run.step))
    return candidates


def list_policy_choices(sources: list[RunAnswers]) -> list[PolicyChoice]:
    """Every candidate of every run, in the runs' order."""
    total = sum(source.answers for source in sources)
    choices = []
    for source in sources:
        offered = list_policy_candidates(source.run)
        near: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for (updates, step), count in source.counts.items() if offered else ():
            near[find_nearest_candidate(offered, updates).value][step] += count
        choices += [build_policy_choice(source, candidate, near[candidate.value], total) for candidate in offered]
    return choices


def build_policy_choice(source: RunAnswers, candidate: PolicyCandidate, near: Counter[int], total: int) -> PolicyChoice:
    distances = sum_counts_by_value((abs(updates - candidate.updates), count) for (updates, _), count in source.counts.items())
    close = sum(count for distance, count in distances.items() if distance <= FAR)
    return PolicyChoice(candidate, near.total(), min(near, default=None), max(near, default=None), compute_weighted_median(distances), total - close)


def find_nearest_candidate(offered: list[PolicyCandidate], updates: int) -> PolicyCandidate:
    """Of two that are as near, the earlier one: it has not been trained on what came after."""
    return min(offered, key=lambda candidate: (abs(candidate.updates - updates), candidate.updates))


def suggest_start_policy(sources: list[RunAnswers]) -> PolicyCandidate | None:
    """The policy to start from unless somebody chooses another: of the run with most answers, the one nearest to the median answer."""
    for source in sources:
        if offered := list_policy_candidates(source.run):
            return find_nearest_candidate(offered, source.median)
    return None


def sum_counts_by_value(pairs: Iterable[tuple[int, int]]) -> Counter[int]:
    """(value, how many) of one value added up."""
    sums: Counter[int] = Counter()
    for value, count in pairs:
        sums[value] += count
    return sums


def compute_weighted_median(counted: Counter[int]) -> int:
    """The lower median of values that are there several times; 0 without any."""
    half, seen = counted.total() / 2, 0
    for value in sorted(counted):
        seen += counted[value]
        if seen >= half:
            return value
    return 0
