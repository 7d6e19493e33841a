"""Datasets, their frozen versions with rows and differences, and how often people prefer what was trained on them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, HttpResponseBase
from ninja import Field, Schema, Status

from lab.data.datasets import exports
from lab.data.datasets.downstream import flags_of
from lab.data.datasets.freezing import freeze_next_version
from lab.data.datasets.models import Dataset, Form, Source, Version, VersionState
from lab.data.datasets.pages import labelled_queues, stored_rule, validate_dataset_form
from lab.data.datasets.row_diff import count_differences, diff_entries, entries_of
from lab.data.datasets.rules import DatasetRule
from lab.data.loop import matches, win_panel
from lab.data.loop.models import Match
from lab.data.loop.train_form import MATCH_PROMPTS, MOST_OVERLAP, MOST_PROMPTS
from lab.edges.api.base import Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.runs import find_team_run
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import ApiProblem, FieldProblem, make_invalid_problem, make_validation_problem
from lab.lib.costly import while_sent
from lab.lib.downloads import stream_attachment
from lab.lib.numbers import MAX_ID
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Run

router = make_router("Datasets and the loop")
JSONL = {"responses": {200: {"description": "One row per line.", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}}}


class DatasetOut(Schema):
    id: int
    name: str
    url: str
    form: str = Field(examples=["preference"], description="preference, kto, completion, stepwise or prompt.")
    source: str = Field(description="queues, import, turns (labels on turns of episodes) or tool (made of versions by dataset tools).")
    project: int | None
    queues: list[int] = Field(description="Ids of the queues whose labels are its rows.")
    created_at: datetime


class VersionOut(Schema):
    id: int
    dataset: int
    number: int
    url: str
    state: str = Field(description="queued, building, ready or failed.")
    error: str
    digest: str = Field(description="SHA-256 of the bytes of its rows.")
    file: str = Field(description="Name of its training rows in a spec: dataset: {file: …}.")
    counts: dict[str, Any]
    rule: dict[str, Any]
    notes: str
    flagged: bool = Field(description="It contains recalled labels.")
    created_at: datetime
    finished_at: datetime | None


class DatasetDetail(DatasetOut):
    rule: dict[str, Any] = Field(description="Default rule of the next version.")
    versions: list[VersionOut] = Field(description="Newest first, up to 200.")


class DatasetIn(RequestBody):
    name: str = Field(max_length=100, examples=["Sums, judged"])
    form: Literal["preference", "kto", "completion", "stepwise"] = "preference"
    source: Literal["queues", "turns"] = Field("queues", description="turns: labels on turns of episodes, which give step pairs (form preference).")
    queues: list[int] = Field([], max_length=200, description="Ids of the queues whose labels become rows.", examples=[[3]])
    runs: list[int] = Field([], max_length=1000, description="Of turns: numbers of the runs that are meant; empty: all.")


class FreezeIn(RequestBody):
    rule: dict[str, Any] = Field({}, description="Settings that differ from the dataset's rule.", examples=[{"min_labels": 2, "test_share": 0.1}])
    notes: str = Field("", max_length=10_000)


class DiffOut(Schema):
    against: int
    changes: dict[str, int] = Field(description="Rows per kind of change since the other version.")


class RateOut(Schema):
    value: float
    low: float = Field(description="Bounds of the 95 % interval.")
    high: float
    method: str


class MatchOut(Schema):
    id: int
    against: UUID | None = Field(description="The other run; null for the policy it started from.")
    queue: int | None = Field(description="The labelling queue of the match.")
    state: str = Field(description="waiting, stopped, problem, few or counted.")
    problem: str
    votes: int
    rate: RateOut | None = Field(description="How often people prefer this run.")


class MatchIn(RequestBody):
    against: UUID | None = Field(None, description="Another finished run; default: the policy the run started from.")
    prompts: int = Field(MATCH_PROMPTS, ge=1, le=MOST_PROMPTS)
    overlap: int = Field(1, ge=1, le=MOST_OVERLAP, description="Labels per prompt.")


def serialize_dataset(dataset: Dataset) -> dict[str, Any]:
    fields = {name: getattr(dataset, name) for name in ("name", "form", "source", "created_at")}
    queues = sorted(queue.pk for queue in dataset.queues.all())
    return {
        **fields,
        "id": dataset.pk,
        "project": dataset.project_id,
        "queues": queues,
        "url": build_absolute_url(team_path(dataset.team, "dataset", dataset.pk)),
    }


def versions_shown(rows: list[Version]) -> list[dict[str, Any]]:
    flags = flags_of(rows)
    names = ("number", "state", "error", "digest", "counts", "rule", "notes", "created_at", "finished_at")
    return [
        {
            **{name: getattr(version, name) for name in names},
            "id": version.pk,
            "dataset": version.dataset_id,
            "file": version.train_file,
            "flagged": version.pk in flags,
            "url": build_absolute_url(team_path(version.dataset.team, "version", version.pk)),
        }
        for version in rows
    ]


def dataset_of(request: HttpRequest, dataset_id: int) -> Dataset:
    dataset: Dataset = one_of(Dataset.objects.of(caller_of(request).team).select_related("team").prefetch_related("queues"), dataset_id)
    return dataset


def find_dataset_version(request: HttpRequest, version_id: int) -> Version:
    version: Version = one_of(Version.objects.of(caller_of(request).team).select_related("dataset__team"), version_id)
    return version


@router.get("/datasets", auth=require_permission("datasets.read"), response=Page[DatasetOut], summary="List datasets")
def list_datasets(request: HttpRequest, after: After, limit: Limit) -> object:
    """Newest first."""
    rows = Dataset.objects.of(caller_of(request).team).filter(pk__lt=parse_after_id(after)).select_related("team").prefetch_related("queues")
    return paginate_rows(list(rows.order_by("-pk")[: limit + 1]), limit, lambda row: row.pk, serialize_dataset)


@router.get("/datasets/{int:dataset_id}", auth=require_permission("datasets.read"), response=DatasetDetail, summary="One dataset")
def get_dataset(request: HttpRequest, dataset_id: int) -> object:
    """Includes its versions."""
    dataset = dataset_of(request, dataset_id)
    versions = list(dataset.versions.select_related("dataset__team")[:200])
    return {**serialize_dataset(dataset), "rule": stored_rule(dataset).as_json(), "versions": versions_shown(versions)}


@router.post("/datasets", auth=require_permission("datasets.write"), response={201: DatasetOut, 200: DatasetOut}, summary="Create a dataset")
def make_dataset(request: HttpRequest, given: DatasetIn, key: Key) -> object:
    """From labelling queues, or from labels on turns. Freeze it to get rows."""
    caller = caller_of(request)
    queues = list(labelled_queues(caller.team).filter(pk__in=[queue for queue in given.queues if 0 < queue < 2**63]))
    name = given.name.strip()
    is_turns = Source(given.source) == Source.TURNS
    problems = validate_dataset_form(name, given.form, queues, given.source)
    if len(queues) < len(set(given.queues)) and "queue" not in problems:
        problems["queue"] = "Your team has no such queue, or its labels cannot become rows."
    if problems:
        raise make_validation_problem(
            FieldProblem(field={"queue": "queues"}.get(field, field), message=message) for field, message in problems.items()
        )

    def act() -> list[Any]:
        with transaction.atomic():
            about = {"source": Source.TURNS, "rule": {"runs": given.runs}} if is_turns else {}
            dataset = Dataset.objects.create(team=caller.team, name=name, form=Form(given.form), created_by=caller.user, **about)
            dataset.queues.set([] if is_turns else queues)
            record_audit_entry("dataset.create", dataset, form=dataset.form, source=given.source, queues=[queue.pk for queue in queues])
        return [dataset.pk]

    [pk], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_dataset(dataset_of(request, int(pk))))


@router.post(
    "/datasets/{int:dataset_id}/freeze",
    auth=require_permission("datasets.write"),
    response={201: VersionOut, 200: VersionOut},
    summary="Freeze a version",
)
def freeze_dataset(request: HttpRequest, dataset_id: int, given: FreezeIn, key: Key) -> object:
    """Freezes the current labels into a version that never changes. A worker builds it; poll until its state is `ready`."""
    caller, dataset = caller_of(request), dataset_of(request, dataset_id)
    rule = DatasetRule.changed(stored_rule(dataset), given.rule)
    keys, fresh = run_idempotent_action(request, caller, key, lambda: [freeze_next_version(dataset, caller.user, rule, given.notes.strip()).pk])
    return Status(201 if fresh else 200, versions_shown([find_dataset_version(request, int(keys[0]))])[0])


@router.get("/versions/{int:version_id}", auth=require_permission("datasets.read"), response=VersionOut, summary="One version")
def get_version(request: HttpRequest, version_id: int) -> object:
    """Its state, hash, counts and rule."""
    return versions_shown([find_dataset_version(request, version_id)])[0]


@router.get(
    "/versions/{int:version_id}/rows",
    auth=require_permission("datasets.export"),
    openapi_extra=JSONL,
    response={200: None},
    summary="Rows of a version",
)
def get_rows(
    request: HttpRequest,
    version_id: int,
    split: Literal["train", "test"] = Query("train", description="Which split."),
    provenance: bool = Query(False, description="Include the source of each row: rollouts, item, queue, labellers."),
) -> HttpResponseBase:
    """As JSON lines in TRL's format, streamed. Recorded in the audit log."""
    version = find_dataset_version(request, version_id)
    if version.state != VersionState.READY:
        raise ApiProblem("missing", f"This version is {version.state}; it has rows once it is ready.")
    record_audit_entry(
        "dataset.export", version, team=caller_of(request).team, format="jsonl", shape=version.dataset.form, split=split, provenance=provenance
    )
    lines = exports.encode_json_lines(exports.batch_rows(exports.rows_of(version, split, version.dataset.form, provenance)))
    return while_sent(request, lambda: stream_attachment(request, lines, f"version-{version.pk}-{split}.jsonl", "application/x-ndjson"))


@router.get("/versions/{int:version_id}/diff", auth=require_permission("datasets.read"), response=DiffOut, summary="Compare two versions")
def diff_versions(
    request: HttpRequest, version_id: int, against: int = Query(..., ge=1, le=MAX_ID, description="Id of the earlier version.", examples=[1])
) -> object:
    """Rows that were added, removed or changed since `against`."""
    after, before = find_dataset_version(request, version_id), one_of(Version.objects.of(caller_of(request).team), against)
    if before.dataset_id != after.dataset_id:
        raise make_invalid_problem("against", "is a version of another dataset", "give a version of the same dataset")
    return {"against": before.pk, "changes": count_differences(diff_entries(entries_of(before), entries_of(after)))}


@router.get("/runs/{uuid:run_id}/wins", auth=require_permission("runs.read"), response=list[MatchOut], summary="Win rates of a run")
def list_wins(request: HttpRequest, run_id: UUID) -> object:
    """How often people prefer its answers, in blind comparisons with the policy it started from or with another run."""
    run = find_team_run(request, run_id)
    stored = Match.objects.filter(child=run).select_related("against", "queue").order_by("pk")
    return [match_shown(match, run) for match in stored]


def match_shown(match: Match, run: Run) -> dict[str, Any]:
    summary = win_panel.shown_of(match, run)
    votes = summary.tally.record.votes if summary.tally else 0
    about = {"id": match.pk, "against": match.against_id, "queue": match.queue_id, "problem": match.problem}
    return {**about, "state": summary.state, "votes": votes, "rate": summary.tally.rate if summary.tally else None}


@router.post(
    "/runs/{uuid:run_id}/match", auth=require_permission("label.lead"), response={201: MatchOut}, summary="Start a blind comparison of two runs"
)
def ask_match(request: HttpRequest, run_id: UUID, given: MatchIn) -> object:
    """Creates a blind queue of held-out prompts that both answered."""
    caller, run = caller_of(request), find_team_run(request, run_id)
    user = caller.person("a queue needs a responsible person")
    against = Run.objects.of(caller.team).filter(pk=given.against).first() if given.against else None
    if given.against and against is None:
        raise make_invalid_problem("against", "your team has no such run", "give the id of one of its runs")
    match = matches.request_match(caller.team, user, run, against, prompts=given.prompts, overlap=given.overlap)
    return Status(201, match_shown(match, run))
