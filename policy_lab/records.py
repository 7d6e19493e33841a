"""What the lab answers, as types: the fields of the API's responses under the same names (tests hold them to its OpenAPI document).

Fields that a newer lab adds are ignored.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

Row = TypeVar("Row")
ENDED = frozenset({"stopped", "finished", "failed", "lost"})


class Page(msgspec.Struct, Generic[Row], frozen=True):
    """``next``: where the following page begins; None on the last one."""

    items: list[Row]
    next: str | None = None


class Person(msgspec.Struct, frozen=True):
    id: int
    email: str
    name: str


class Checkpoint(msgspec.Struct, frozen=True):
    step: int
    final: bool
    bytes: int
    created_at: datetime


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """``latest``: values of the last step. ``waits``: why a queued run has not started. ``can``: what its status allows."""

    id: str
    number: int
    name: str
    url: str
    status: str
    reason: str
    waits: str | None
    recipe: str
    trainer: str
    task: str
    policy: str
    project: int | None
    tags: list[str]
    archived_at: datetime | None
    parent: str | None
    cloned_from: str | None
    created_by: Person | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    step: int
    total_steps: int
    phase: str
    attempt: int
    tokens: int
    rollouts: int
    eta_seconds: int | None
    stalled_seconds: int | None
    latest: dict[str, float | None]
    can: dict[str, bool]

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class RunDetail(Run, frozen=True, kw_only=True):
    """``spec`` can be launched again."""

    notes: str
    spec: dict[str, Any]
    checkpoints: list[Checkpoint]


class FieldProblem(msgspec.Struct, frozen=True):
    field: str
    message: str
    fix: str = ""


class Launched(msgspec.Struct, frozen=True):
    """One run for each stage of the recipe, in order; ``warnings`` of the check before the launch."""

    runs: list[Run]
    warnings: list[FieldProblem]
    fresh: bool


class Point(msgspec.Struct, frozen=True):
    """``value`` is None for NaN and infinity."""

    name: str
    step: int
    value: float | None


class Series(msgspec.Struct, frozen=True):
    name: str
    steps: list[int]
    values: list[float | None]

    def list_points(self) -> list[Point]:
        return [Point(self.name, step, value) for step, value in zip(self.steps, self.values, strict=True)]


class SeriesAnswer(msgspec.Struct, frozen=True):
    series: list[Series]
    cursor: int


class Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class Turn(msgspec.Struct, frozen=True):
    role: str
    start: int
    end: int


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """``run`` is the run's number, ``length`` counts tokens (None: not recorded), ``filtered`` says why training left it out."""

    id: int
    run: int
    run_name: str
    phase: str
    step: int
    group: int
    sample: int
    attempt: int
    prompt: list[Message]
    reference: str
    completion: str
    turns: list[Turn]
    nodes: list[dict[str, Any]]
    turn_labels: list[dict[str, Any]]
    reward: float | None
    rewards: dict[str, Any]
    advantage: float | None
    contributions: dict[str, Any]
    shaped: dict[str, Any]
    length: int | None
    mean_entropy: float | None
    max_entropy: float | None
    finish_reason: str
    filtered: str
    superseded: bool
    tags: list[str]
    rating: float | None
    ratings: int
    comments: int
    created_at: datetime


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Of one rollout, a value per token; None where the run stored none."""

    id: int
    total: int
    units: list[dict[str, Any]]
    ids: list[int]
    logprobs: list[float | None]
    entropies: list[float | None]
    mask: list[int]
    advantages: list[float | None] | None
    weights: list[float | None] | None
    reference: list[float | None] | None
    ratios: list[float | None] | None
    clipped: list[float | None] | None
    sampler: list[float | None] | None
    alternatives: dict[str, Any] | None


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Of items to label."""

    id: int
    name: str
    url: str
    kind: str
    status: str
    purpose: str
    project: int | None
    overlap: int
    blind: bool
    reviewed: bool
    assigned_only: bool
    due: datetime | None
    created_at: datetime


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """``preferences``: [chosen, rejected] pairs of rollout ids that it implies; only submitted and accepted labels count (``state``)."""

    id: int
    item: int
    rollouts: list[int]
    by: Person
    verdict: str
    strength: int | None
    tiers: list[list[int]] | None
    rubric: dict[str, Any]
    rationale: str
    correction: str
    steps: list[dict[str, Any]]
    spans: list[dict[str, Any]]
    seconds: float
    state: str
    preferences: list[list[int]]
    created_at: datetime


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    url: str
    form: str
    source: str
    project: int | None
    queues: list[int]
    created_at: datetime


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen version. ``digest``: SHA-256 of its rows; ``flagged``: it contains recalled labels."""

    id: int
    dataset: int
    number: int
    url: str
    state: str
    error: str
    digest: str
    file: str
    counts: dict[str, Any]
    rule: dict[str, Any]
    notes: str
    flagged: bool
    created_at: datetime
    finished_at: datetime | None


class DatasetDetail(Dataset, frozen=True, kw_only=True):
    """``versions``: newest first."""

    rule: dict[str, Any]
    versions: list[Version]


class Update(msgspec.Struct, frozen=True):
    """What a followed run has that the update before did not; following goes on from ``position``, also in another process."""

    run: Run
    points: list[Point]
    rollouts: list[Rollout]
    position: str
