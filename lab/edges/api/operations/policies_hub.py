"""Copies of policies on a model hub: pushed by a worker under the team's token, followed and cancelled."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.policies import WHY, policy_of
from lab.models.policies import pushes
from lab.models.policies.models import Push

router = make_router("Policies")


class PushIn(RequestBody):
    repository: str = Field(max_length=200, examples=["our-team/math-grpo"], description="owner/name on the hub; created if it does not exist.")
    private: bool = Field(True, description="Of a repository that is created.")


class PushOut(Schema):
    id: int
    policy: int
    repository: str
    private: bool
    state: str = Field(examples=["finished"], description="queued, running, finished, failed or cancelled.")
    done: int = Field(description="Bytes sent.")
    total: int = Field(description="Bytes to send.")
    problem: str
    commit: str = Field(description="URL of the commit; empty until it is finished.")
    by: Person | None
    asked_at: datetime
    ended_at: datetime | None


def push_of(request: HttpRequest, push_id: int) -> Push:
    push: Push = one_of(Push.objects.of(caller_of(request).team).select_related("by"), push_id)
    return push


def serialize_push(push: Push) -> dict[str, Any]:
    fields = {name: getattr(push, name) for name in ("repository", "private", "state", "done", "total", "problem", "asked_at", "ended_at")}
    by = serialize_person(push.by) if push.by else None
    return {**fields, "id": push.pk, "policy": push.checkpoint_id, "commit": push.url, "by": by}


@router.post(
    "/policies/{int:checkpoint_id}/push",
    auth=require_permission("policies.promote"),
    response={201: PushOut, 200: PushOut},
    summary="Push a policy to the hub",
)
def push_policy(request: HttpRequest, checkpoint_id: int, given: PushIn, key: Key) -> object:
    """With the team's hub token, which is stored in the browser. Weights that are not plain data and configurations that name code are refused."""
    caller, checkpoint = caller_of(request), policy_of(request, checkpoint_id)
    user = caller.person(WHY)

    def act() -> list[Any]:
        return [pushes.request_push(caller.team, user, checkpoint, given.repository, given.private).pk]

    [made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_push(push_of(request, int(made))))


@router.get("/policies/{int:checkpoint_id}/pushes", auth=require_permission("policies.read"), response=list[PushOut], summary="Pushes of a policy")
def list_pushes(request: HttpRequest, checkpoint_id: int) -> object:
    """Newest first, up to 100."""
    return [serialize_push(push) for push in policy_of(request, checkpoint_id).pushes.select_related("by")[:100]]


@router.get("/pushes/{int:push_id}", auth=require_permission("policies.read"), response=PushOut, summary="One push")
def get_push(request: HttpRequest, push_id: int) -> object:
    """How far it is."""
    return serialize_push(push_of(request, push_id))


@router.post("/pushes/{int:push_id}/cancel", auth=require_permission("policies.promote"), response=PushOut, summary="Cancel a push")
def cancel_push(request: HttpRequest, push_id: int) -> object:
    """One that runs ends within seconds; one that has ended stays as it is."""
    caller = caller_of(request)
    pushes.cancel_push(caller.team, caller.person(WHY), push_of(request, push_id))
    return serialize_push(push_of(request, push_id))
