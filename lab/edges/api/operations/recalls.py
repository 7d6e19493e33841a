"""Recall: labels of a person, on a prompt, of a queue, or versions made under a setting of a rule; what rests on them, and undoing it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.data.datasets.models import Recall
from lab.data.loop import recall_acts, recall_work
from lab.data.loop.policy_descent import RunLineage
from lab.data.loop.recall_effects import RecallImpact, find_recall_downstream
from lab.data.loop.recall_form import REASON_LENGTH, RecallForm, describe_recall
from lab.data.loop.recall_pages import AffectedVersion, describe_touched_version, shown_of
from lab.edges.api.base import RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.datasets import VersionOut, find_dataset_version, versions_shown
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import FieldProblem, make_validation_problem
from lab.teams.accounts.addresses import build_absolute_url, team_path

router = make_router("Datasets and the loop")
WHY = "a recall needs a responsible person"
Id = int | None


class RecallOut(Schema):
    id: int
    kind: str = Field(description="labeller, prompt, queue or rule.")
    reason: str
    labeller: Person | None
    queue: int | None
    prompt: int | None
    rule: dict[str, Any] | None = Field(description="The setting, as part of a rule.")
    by: Person | None
    at: datetime
    undone_at: datetime | None


class FlaggedOut(Schema):
    version: int
    label: str = Field(examples=["Sums, judged v2"])
    url: str
    since: int | None = Field(description="Newest version of its dataset that was frozen after the recall.")
    rebuilds: bool = Field(description="It can be frozen again without the recalled labels.")


class RunFlagged(Schema):
    id: UUID
    number: int
    name: str
    status: str


class Reach(Schema):
    words: str = Field(examples=["Labels by ada@example.org"])
    labels: int = Field(description="Recalled labels; in a preview, labels that would be recalled.")
    versions: list[FlaggedOut] = Field(description="Versions with rows from these labels, newest first.")
    trained: list[RunFlagged] = Field(description="Runs trained on these versions.")
    descended: list[RunFlagged] = Field(description="Runs that started from policies of those runs, directly or indirectly.")
    matches: list[int] = Field(description="Ids of the matches of all these runs.")


class RecallDetail(RecallOut):
    reach: Reach
    going_on: bool = Field(description="Workers are still recalling or restoring labels.")


class TargetIn(RequestBody):
    kind: Literal["labeller", "prompt", "queue", "rule"]
    labeller: Id = Field(None, ge=1, description="Id of the person.", examples=[3])
    prompt: Id = Field(None, ge=1, description="Id of the prompt.")
    queue: Id = Field(None, ge=1, description="Id of the queue.")
    rule: dict[str, Any] | None = Field(
        None,
        description="One setting of the rule that versions were created with.",
        examples=[{"aggregation": "majority"}, {"cleaning": {"action": "drop"}}],
    )


class RecallIn(TargetIn):
    reason: str = Field(max_length=REASON_LENGTH, description="Shown to everyone who sees the flag later.", examples=["Read them upside down."])


def recall_of(request: HttpRequest, recall_id: int) -> Recall:
    rows = Recall.objects.of(caller_of(request).team).select_related("team", "labeller", "queue", "by", "undone_by")
    recall: Recall = one_of(rows, recall_id)
    return recall


def target_of(request: HttpRequest, given: TargetIn, reason: str) -> Recall:
    """What is named, by the rules of the form in the browser; not saved. Raises ApiProblem naming the fields."""
    named = getattr(given, given.kind)
    text = "" if named is None else json.dumps(named)
    form = RecallForm(caller_of(request).team, {"kind": given.kind, given.kind: text, "reason": reason})
    target, _ = form.target, form.reason
    if target is None and given.kind not in form.errors:
        form.errors[given.kind] = "Give what to recall."
    for name in {"labeller", "prompt", "queue", "rule"} - {given.kind}:
        if getattr(given, name) is not None:
            form.errors[name] = f"Remove it: the kind is {given.kind}."
    if target is None or form.errors:
        raise make_validation_problem(FieldProblem(field=name, message=message) for name, message in form.errors.items())
    return target


def serialize_recall(recall: Recall) -> dict[str, Any]:
    people = {name: serialize_person(who) if (who := getattr(recall, name)) else None for name in ("labeller", "by")}
    fields = {name: getattr(recall, name) for name in ("kind", "reason", "prompt", "rule", "at", "undone_at")}
    return {**fields, **people, "id": recall.pk, "queue": recall.queue_id}


def reach_of(recall: Recall, downstream: RecallImpact, versions: list[AffectedVersion], labels: int) -> dict[str, Any]:
    runs = {name: [run.__dict__ | {"id": run.pk} for run in getattr(downstream, name)] for name in ("trained", "descended")}
    return {
        "words": describe_recall(recall),
        "labels": labels,
        "versions": [serialize_flagged_version(recall, touched) for touched in versions],
        **runs,
        "matches": [match.pk for match in downstream.matches],
    }


def serialize_flagged_version(recall: Recall, touched: AffectedVersion) -> dict[str, Any]:
    url = build_absolute_url(team_path(recall.team, "version", touched.version.pk))
    return {
        "version": touched.version.pk,
        "label": str(touched.version),
        "url": url,
        "since": touched.since.pk if touched.since else None,
        "rebuilds": touched.rebuilds,
    }


def serialize_recall_detail(recall: Recall) -> dict[str, Any]:
    summary = shown_of(recall, RunLineage(recall.team))
    return {**serialize_recall(recall), "reach": reach_of(recall, summary.reach, summary.versions, summary.labels), "going_on": summary.going_on}


@router.get("/recalls", auth=require_permission("datasets.read"), response=Page[RecallOut], summary="List recalls")
def list_recalls(request: HttpRequest, after: After, limit: Limit) -> object:
    """Newest first."""
    rows = Recall.objects.of(caller_of(request).team).filter(pk__lt=parse_after_id(after)).select_related("labeller", "by").order_by("-pk")
    return paginate_rows(list(rows[: limit + 1]), limit, lambda row: row.pk, serialize_recall)


@router.get("/recalls/{int:recall_id}", auth=require_permission("datasets.read"), response=RecallDetail, summary="One recall")
def get_recall(request: HttpRequest, recall_id: int) -> object:
    """Includes everything that uses the recalled labels."""
    return serialize_recall_detail(recall_of(request, recall_id))


@router.post("/recalls/preview", auth=require_permission("datasets.recall"), response=Reach, summary="Preview a recall")
def preview_recall(request: HttpRequest, given: TargetIn) -> object:
    """Nothing is changed."""
    target = target_of(request, given, "looked at")
    downstream = find_recall_downstream(target)
    labels = recall_work.select_recalled_judgements(target).filter(state__in=recall_work.TAKEN).count()
    return reach_of(target, downstream, [describe_touched_version(target, version) for version in downstream.versions], labels)


@router.post("/recalls", auth=require_permission("datasets.recall"), response={201: RecallDetail, 200: RecallDetail}, summary="Recall labels")
def make_recall(request: HttpRequest, given: RecallIn, key: Key) -> object:
    """The labels no longer count, and what was created from them is flagged. Nothing is deleted, and a recall can be undone."""
    caller = caller_of(request)
    user = caller.person(WHY)

    def act() -> list[Any]:
        return [recall_acts.begin_recall(target_of(request, given, given.reason), user, given.reason.strip()).pk]

    [pk], fresh = run_idempotent_action(request, caller, key, act)
    recall = recall_of(request, int(pk))
    if fresh:
        recall_work.carry_out(recall)
    return Status(201 if fresh else 200, serialize_recall_detail(recall))


@router.post("/recalls/{int:recall_id}/undo", auth=require_permission("datasets.recall"), response=RecallDetail, summary="Undo a recall")
def undo_recall(request: HttpRequest, recall_id: int) -> object:
    """The labels count again, and what was created from them is no longer flagged. Does nothing if it is already undone."""
    user, recall = caller_of(request).person(WHY), recall_of(request, recall_id)
    if recall_acts.mark_recall_undone(recall, user):
        recall_work.carry_out(recall)
    return serialize_recall_detail(recall_of(request, recall_id))


@router.post(
    "/recalls/{int:recall_id}/rebuild/{int:version_id}",
    auth=require_permission("datasets.write"),
    response={201: VersionOut, 200: VersionOut},
    summary="Freeze a version again without recalled labels",
)
def rebuild_version(request: HttpRequest, recall_id: int, version_id: int, key: Key) -> object:
    """Uses the version's own rule."""
    caller = caller_of(request)
    user, recall, version = caller.person(WHY), recall_of(request, recall_id), find_dataset_version(request, version_id)
    keys, fresh = run_idempotent_action(request, caller, key, lambda: [recall_acts.refreeze_version(recall, version, user).pk])
    return Status(201 if fresh else 200, versions_shown([find_dataset_version(request, int(keys[0]))])[0])
