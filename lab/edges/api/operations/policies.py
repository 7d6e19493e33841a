"""Policies: every checkpoint with what was measured at its step, what people said of it and its files; download, deleting and keeping one."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Schema

from lab.edges.api.base import Caller, Query, caller_of, make_router, one_of, require_permission
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.datasets import RateOut
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import make_invalid_problem
from lab.models.policies import download, listing, measures, removal
from lab.models.policies.blind_votes import MatchEvidence
from lab.models.policies.checkpoint_paths import files_of, format_checkpoint_label, has_checkpoint_files
from lab.models.policies.models import Removal
from lab.models.policies.offered_policies import list_offered_policies
from lab.models.policies.views.policy_page import config_of, load_cached_digest
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.teams.accounts.models import Team
from lab.training.runs.models import Checkpoint

router = make_router("Policies")
WHY = "changing aliases or deleting policies needs a responsible person"
TAR = {"responses": {200: {"description": "A tar archive.", "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}}}}


class RunOf(Schema):
    id: UUID
    number: int
    name: str
    recipe: str
    task: str


class Measured(Schema):
    value: float
    step: int = Field(description="Step of the measurement: the checkpoint's, or the last one before it.")


class VotesOut(Schema):
    match: int
    queue: int | None
    other: str = Field(description="Name of the other side.")
    votes: int
    rate: RateOut | None = Field(description="How often people prefer this policy, blindly. Pages show it from 10 votes on.")
    floor: float = Field(description="Lower bound of the win rate, as used by gates.")


class RemovalOut(Schema):
    by: Person | None = Field(description="null: the team's rules.")
    due_at: datetime = Field(description="Until then the deletion can be cancelled.")
    deleted_at: datetime | None
    kept_at: datetime | None = Field(description="When the deletion was cancelled; since then the team's rules do not apply to the policy.")
    problem: str = Field(description="Why it is not deleted although it is due.")


class PolicyHead(Schema):
    id: int
    label: str = Field(examples=["#17 sums · step 150"])
    url: str
    run: RunOf
    step: int
    final: bool = Field(description="The policy at the end of its run; runs cannot resume from it.")
    bytes: int
    created_at: datetime
    there: bool = Field(description="Its files are on disk.")
    aliases: list[str] = Field(examples=[["production"]])
    measured: dict[str, Measured] = Field(description="Reward, held-out reward and entropy, if measured.")
    votes: VotesOut | None = Field(description="Its match with the most votes.")
    removal: RemovalOut | None


class PolicyDetail(PolicyHead):
    metrics: dict[str, Measured] = Field(description="Every metric of its run, as of its step.")
    matches: list[VotesOut] = Field(description="Most votes first.")
    config: dict[str, Any] | None = Field(description="Its config.json; for adapters, their configuration.")
    relied_on: list[str] = Field(description="Why it cannot be deleted; empty if it can.")


class FileOut(Schema):
    name: str
    bytes: int
    sha256: str = Field(description="Empty for files that stay in the lab, and for files over 512 MB, which are hashed in the download (SHA256SUMS).")
    of_policy: bool = Field(description="Included when the policy leaves the lab.")


class OfferedOut(Schema):
    kind: Literal["folder", "hub"]
    name: str
    bytes: int | None
    problems: list[str] = Field(description="Why training cannot start from it.")
    runs: int = Field(description="Runs of the team that started from it.")


def policy_of(request: HttpRequest, checkpoint_id: int) -> Checkpoint:
    rows = Checkpoint.objects.of(caller_of(request).team).select_related("run__team", "run__created_by", "run__project")
    checkpoint: Checkpoint = one_of(rows, checkpoint_id)
    return checkpoint


def serialize_policy(team: Team, row: listing.PolicyRow) -> dict[str, Any]:
    checkpoint, run = row.checkpoint, row.run
    plain = {name: getattr(checkpoint, name) for name in ("step", "final", "bytes", "created_at")}
    return {
        **plain,
        "id": checkpoint.pk,
        "label": format_checkpoint_label(checkpoint),
        "url": build_absolute_url(team_path(team, "policy", checkpoint.pk)),
        "run": {"id": run.pk, **{name: getattr(run, name) for name in ("number", "name", "recipe", "task")}},
        "there": row.on_disk,
        "aliases": [alias.name for alias in row.aliases],
        "measured": {name: row.measured[metric] for name, metric in measures.SHOWN.items() if metric in row.measured},
        "votes": serialize_match_votes(row.best) if row.best else None,
        "removal": removal_of(row.removal) if row.removal else None,
    }


def serialize_match_votes(evidence: MatchEvidence) -> dict[str, Any]:
    about = {"match": evidence.match.pk, "queue": evidence.match.queue_id, "other": evidence.other}
    return {**about, "votes": evidence.votes, "rate": evidence.rate, "floor": evidence.floor}


def removal_of(removal: Removal) -> dict[str, Any]:
    by = serialize_person(removal.by) if removal.by else None
    return {**{name: getattr(removal, name) for name in ("due_at", "deleted_at", "kept_at", "problem")}, "by": by}


def chosen_of(**given: Any) -> dict[str, str]:
    """Filters as the address of the browser has them."""
    return {name: str(value) if not isinstance(value, bool) else "1" for name, value in given.items() if value}


@router.get("/policies", auth=require_permission("policies.read"), response=Page[PolicyHead], summary="List policies")
def list_policies(
    request: HttpRequest,
    after: After,
    limit: Limit,
    q: str = Query("", max_length=listing.LONGEST_SEARCH, description="Words in the run's name, recipe or policy, or its number."),
    run: int | None = Query(None, ge=1, le=10**9 - 1, description="Only policies of the run with this number."),
    project: int | None = Query(None, ge=1, le=10**9 - 1, description="Only policies of this project."),
    alias: str = Query("", max_length=100, description="Only the policy with this alias.", examples=["production"]),
    kind: Literal["", "final", "checkpoint"] = Query("", description="Only final policies, or checkpoints."),
    votes: bool = Query(False, description="Only policies of runs in a blind comparison."),
    gone: bool = Query(False, description="Include policies whose files are deleted."),
    twins: bool = Query(False, description="Include checkpoints that hold the same policy as a final one."),
) -> object:
    """Newest first, up to the newest 2,000 that match the filters."""
    team = caller_of(request).team
    rows = listing.found_of(team, chosen_of(q=q, run=run, project=project, alias=alias, kind=kind, votes=votes, gone=gone, twins=twins)).rows
    if after:
        last = listing.of_team(team).filter(pk=parse_after_id(after)).first()
        if last is None:
            raise make_invalid_problem("after", "refers to a deleted policy", "start again with the first page")
        rows = [row for row in rows if (row.checkpoint.created_at, row.checkpoint.pk) < (last.created_at, last.pk)]
    rows = rows[: limit + 1]
    listing.fill_policy_rows(rows[:limit])
    return paginate_rows(rows, limit, lambda row: row.checkpoint.pk, lambda row: serialize_policy(team, row))


@router.get("/policies/offered", auth=require_permission("policies.read"), response=list[OfferedOut], summary="Policies from folders and the hub")
def list_offered(request: HttpRequest) -> object:
    """Folders provided by the lab's operator, and hub repositories that the team's runs started from."""
    return list_offered_policies(caller_of(request).team)


@router.get("/policies/{int:checkpoint_id}", auth=require_permission("policies.read"), response=PolicyDetail, summary="One policy")
def get_policy(request: HttpRequest, checkpoint_id: int) -> object:
    """Includes every metric of its step, its votes, and what depends on it."""
    return serialize_policy_detail(caller_of(request), policy_of(request, checkpoint_id))


def serialize_policy_detail(caller: Caller, checkpoint: Checkpoint) -> dict[str, Any]:
    row = listing.PolicyRow(checkpoint, has_checkpoint_files(checkpoint))
    listing.fill_policy_rows([row])
    config = config_of(checkpoint)
    return {
        **serialize_policy(caller.team, row),
        "metrics": measures.at_steps([checkpoint], measures.names_of(checkpoint))[checkpoint.pk],
        "matches": [serialize_match_votes(match) for match in row.evidence],
        "config": json.loads(config) if config.startswith("{") else None,
        "relied_on": removal.relied_on(caller.team, [checkpoint])[checkpoint.pk] if row.on_disk else [],
    }


@router.get("/policies/{int:checkpoint_id}/files", auth=require_permission("policies.read"), response=list[FileOut], summary="Files of a policy")
def list_files(request: HttpRequest, checkpoint_id: int) -> object:
    """With their SHA-256; hashing weights for the first time takes a moment."""
    checkpoint = policy_of(request, checkpoint_id)
    return [
        {"name": file.name, "bytes": file.size, "sha256": load_cached_digest(checkpoint, file), "of_policy": file.of_policy}
        for file in files_of(checkpoint)
    ]


@router.get(
    "/policies/{int:checkpoint_id}/download",
    auth=require_permission("policies.use"),
    openapi_extra=TAR,
    response={200: None},
    summary="Download a policy",
)
def download_policy(request: HttpRequest, checkpoint_id: int) -> StreamingHttpResponse:
    """A tar archive, streamed: weights, configuration, tokenizer, SHA256SUMS. No optimiser state, no pickles. Recorded in the audit log."""
    return download.build_archive_response(request, policy_of(request, checkpoint_id))


@router.delete("/policies/{int:checkpoint_id}", auth=require_permission("policies.promote"), response=PolicyDetail, summary="Delete a policy's files")
def delete_policy(request: HttpRequest, checkpoint_id: int) -> object:
    """They are deleted after 15 minutes; until then this can be cancelled. Refused, with the reason, if something depends on the policy."""
    caller, checkpoint = caller_of(request), policy_of(request, checkpoint_id)
    removal.request_removal(caller.team, caller.person(WHY), checkpoint)
    return serialize_policy_detail(caller, checkpoint)


@router.post(
    "/policies/{int:checkpoint_id}/keep",
    auth=require_permission("policies.promote"),
    response=PolicyDetail,
    summary="Cancel the deletion of a policy",
)
def keep_policy(request: HttpRequest, checkpoint_id: int) -> object:
    """Afterwards the team's retention rules no longer apply to it."""
    caller, checkpoint = caller_of(request), policy_of(request, checkpoint_id)
    removal.cancel_removal(caller.team, caller.person(WHY), checkpoint)
    return serialize_policy_detail(caller, checkpoint)
