"""The audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import Query, caller_of, make_router, require_permission
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import make_invalid_problem
from lab.teams.audit.actions import ACTIONS
from lab.teams.audit.models import Entry

router = make_router("Audit log")


class EntryOut(Schema):
    id: int
    at: datetime
    who: str = Field(description="E-mail address, or the service token's name.")
    via: str = Field(description="browser, api, worker or command.")
    token: str = Field(description="First characters of the token that was used.")
    action: str = Field(examples=["run.launch"])
    kind: str = Field(description="Kind of object.", examples=["run"])
    object_id: str
    label: str = Field(description="Name of the object at that time.")
    address: str | None
    agent: str
    details: dict[str, Any]


@router.get("/audit", auth=require_permission("audit.read"), response=Page[EntryOut], summary="Entries of the audit log")
def list_entries(
    request: HttpRequest,
    after: After,
    limit: Limit,
    action: str = Query("", max_length=40, description="Only this action, or all with this prefix: `run.`", examples=["run.launch"]),
    kind: str = Query("", max_length=40, description="Only actions on this kind of object."),
    object_id: str = Query("", max_length=64, description="Only actions on this object."),
) -> object:
    """Newest first."""
    if action and action not in ACTIONS and not any(known.startswith(action) for known in ACTIONS):
        raise make_invalid_problem("action", "is not an action of the audit log", f"use one of {', '.join(sorted(ACTIONS)[:5])}, …")
    entries = Entry.objects.of(caller_of(request).team).filter(pk__lt=parse_after_id(after)).order_by("-pk")
    chosen = {"kind": kind, "object_id": object_id, "action" if action in ACTIONS else "action__startswith": action}
    rows = entries.filter(**{name: value for name, value in chosen.items() if value})[: limit + 1]
    return paginate_rows(list(rows), limit, lambda row: row.pk)
