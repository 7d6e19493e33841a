"""What is told of the clusters of a clustering, by the rollouts that still exist: counts, rewards, lengths, steps, words and examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection
from django.db.models.functions import Left
from django.urls import reverse
from django.utils.http import urlencode

from lab.lib.shares import compute_wilson_interval
from lab.models.embeddings.browser_fields import format_cluster_filter
from lab.models.embeddings.models import EmbeddingJob
from lab.rollouts.reading.history import PASSED, encode_accuracy_names
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import Piece, iterate_text_pieces
from lab.training.ablations.intervals import MeanEstimate, estimate_mean_interval
from lab.training.runs.models import Run

EXAMPLES = 3  # rollouts nearest to a cluster's centre
EXCERPT = 240  # characters of a text
BINS = 16  # of the histogram over steps
HEIGHT = 24.0  # units of its view box, which is BINS * 6 wide
# Only of the team's runs, and without those in the bin.
MEMBERS = f"""
SELECT member.cluster, member.rollout_id, member.distance, member.x, member.y, rollout.reward, rollout.length, rollout.step, rollout.run_id, {PASSED}
FROM embeddings_clustermember member JOIN trajectories_rollout rollout ON rollout.id = member.rollout_id JOIN runs_run run ON run.id = rollout.run_id
WHERE member.job_id = %(job)s AND run.team_id = %(team)s AND run.binned_at IS NULL ORDER BY member.cluster, member.distance, member.rollout_id
"""  # noqa: S608 constants


@dataclass(slots=True, frozen=True)
class MemberRow:
    cluster: int
    rollout: int
    distance: float
    x: float
    y: float
    reward: float | None
    length: int | None
    step: int
    run: UUID
    passed: bool


@dataclass(frozen=True)
class StepBar:
    """A bar of the histogram in its view box, and what it says."""

    x: float
    top: float
    height: float
    label: str


@dataclass(frozen=True)
class ClusterFigures:
    """``reward`` and ``length`` are means with 95 % t intervals over rollouts, ``passed`` a share with Wilson's 95 % interval."""

    number: int
    count: int
    share: float
    reward: MeanEstimate | None
    passed: tuple[float, float, float]  # share, low, high
    length: MeanEstimate | None
    steps: tuple[int, int]
    bars: list[StepBar]
    words: list[dict[str, Any]]
    nearest: list[int]  # ids of rollouts
    query: str  # of the browser: the rollouts of this cluster
    examples: list[ClusterExample] = field(default_factory=list)

    @property
    def colour(self) -> int:
        """Of the eight series of the style sheet."""
        return (self.number - 1) % 8 + 1

    @property
    def first(self) -> int:
        return self.steps[0]

    @property
    def last(self) -> int:
        return self.steps[1]

    @property
    def histogram(self) -> str:
        """The bars in words."""
        return f"steps {self.first} to {self.last}: " + ", ".join(bar.label for bar in self.bars if bar.height)


@dataclass(frozen=True)
class ClusterExample:
    rollout: Rollout
    head: str
    is_cut: bool
    prompt_head: str

    @property
    def pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.head))

    @property
    def prompt(self) -> list[Piece]:
        return list(iterate_text_pieces(self.prompt_head))


def read_members(job: EmbeddingJob) -> list[MemberRow]:
    """By cluster, those nearest to its centre first."""
    runs = Run.objects.of(job.team).filter(pk__in=job.members.filter(rollout__run__binned_at=None).values("rollout__run")).only("pk", "task")
    with connection.cursor() as cursor:
        cursor.execute(MEMBERS, {"job": job.pk, "team": job.team_id, "accuracy": encode_accuracy_names(runs)})
        return [MemberRow(*row) for row in cursor.fetchall()]


def describe_clusters(job: EmbeddingJob, members: Sequence[MemberRow]) -> list[ClusterFigures]:
    """``members`` as ``read_members`` gives them. A cluster of which nothing is left is not there."""
    by_number: dict[int, list[MemberRow]] = {}
    for member in members:
        by_number.setdefault(member.cluster, []).append(member)
    edges = np.linspace(min((one.step for one in members), default=0), max((one.step for one in members), default=0) + 1, BINS + 1)
    words = (job.result or {}).get("words", [])
    clusters = []
    for number, rows in sorted(by_number.items()):
        passed = sum(row.passed for row in rows) / len(rows)
        clusters.append(
            ClusterFigures(
                number=number,
                count=len(rows),
                share=len(rows) / len(members),
                reward=estimate_mean_interval([row.reward for row in rows if row.reward is not None]),
                passed=(passed, *compute_wilson_interval(passed, len(rows))),
                length=estimate_mean_interval([row.length for row in rows if row.length is not None]),
                steps=(min(row.step for row in rows), max(row.step for row in rows)),
                bars=build_step_bars([row.step for row in rows], edges),
                words=words[number - 1] if number <= len(words) else [],
                nearest=[row.rollout for row in rows[:EXAMPLES]],
                query=urlencode({"f": format_cluster_filter(job.pk, number)}),
            )
        )
    add_examples(job, clusters)
    return clusters


def build_step_bars(steps: Sequence[int], edges: Any) -> list[StepBar]:
    """The histogram of a cluster's steps over ``edges`` (BINS + 1), the same for all clusters, its own tallest bar at full height."""
    counts, _ = np.histogram(steps, edges)
    most = max(int(counts.max()), 1)
    bars = []
    for at, count in enumerate(counts.tolist()):
        height = HEIGHT * count / most
        low, high = int(np.ceil(edges[at])), max(int(np.ceil(edges[at])), int(np.ceil(edges[at + 1])) - 1)
        bars.append(StepBar(at * 6.0, HEIGHT - height, height, f"{count} at step{f' {low}' if low == high else f's {low}–{high}'}"))
    return bars


def add_examples(job: EmbeddingJob, clusters: Sequence[ClusterFigures]) -> None:
    ids = [pk for cluster in clusters for pk in cluster.nearest]
    rows = Rollout.objects.of(job.team).filter(pk__in=ids).select_related("run", "prompt").defer("completion", "run__spec", "prompt__messages")
    found: dict[int, Any] = {row.pk: row for row in rows.annotate(head=Left("completion", EXCERPT + 1))}
    for cluster in clusters:
        for pk in cluster.nearest:
            if row := found.get(pk):
                cluster.examples.append(ClusterExample(row, row.head[:EXCERPT], len(row.head) > EXCERPT, row.prompt.text[:EXCERPT]))


def build_map(members: Sequence[MemberRow]) -> dict[str, Any]:
    """The points of the map in columns, for a script."""
    return {
        "ids": [one.rollout for one in members],
        "x": [round(one.x, 5) for one in members],
        "y": [round(one.y, 5) for one in members],
        "clusters": [one.cluster for one in members],
        "rewards": [one.reward if one.reward is None or np.isfinite(one.reward) else None for one in members],
        "steps": [one.step for one in members],
        "url": reverse("rollout", args=[0]),
    }
