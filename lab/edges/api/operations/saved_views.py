"""Saved views of the rollout browser: a selection of rollouts under a name, one's own or shared with the team."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.rollouts.browse.models import SavedView
from lab.rollouts.browse.view_acts import LONGEST_QUERY, NAME_LENGTH, create_view, update_view
from lab.teams.accounts.addresses import build_absolute_url, team_path

router = make_router("Rollouts")
WHY = "a view belongs to a person"


class ViewOut(Schema):
    id: int
    name: str
    query: str = Field(examples=["run=2&f=reward:ge:0.5"], description="The selection: send it as `selection` to queues.")
    shared: bool = Field(description="Everyone in the team can open it.")
    owner: Person
    url: str
    updated_at: datetime


class ViewIn(RequestBody):
    name: str = Field(max_length=NAME_LENGTH, examples=["Wrong but confident"])
    query: str = Field("", max_length=LONGEST_QUERY, description="Query string of the browser's URL.", examples=["run=2&f=reward:ge:0.5"])
    shared: bool = False


class ViewChange(RequestBody):
    """Omitted fields stay unchanged."""

    name: str | None = Field(None, max_length=NAME_LENGTH, examples=["Wrong and sure"])
    query: str | None = Field(None, max_length=LONGEST_QUERY)
    shared: bool | None = None


def own_views(request: HttpRequest) -> QuerySet[SavedView]:
    caller = caller_of(request)
    return SavedView.objects.of(caller.team).filter(owner=caller.person(WHY)).select_related("team", "owner")


def serialize_view(view: SavedView) -> dict[str, Any]:
    fields = {name: getattr(view, name) for name in ("name", "query", "shared", "updated_at")}
    url = build_absolute_url(team_path(view.team, "view-open", view.pk))
    return {**fields, "id": view.pk, "owner": serialize_person(view.owner), "url": url}


@router.get("/views", auth=require_permission("runs.read"), response=Page[ViewOut], summary="List saved views")
def list_views(request: HttpRequest, after: After, limit: Limit) -> object:
    """Yours and those shared with the team, newest first. Service tokens see shared ones."""
    caller = caller_of(request)
    seen = Q(shared=True) | Q(owner=caller.user) if caller.user else Q(shared=True)
    rows = SavedView.objects.of(caller.team).filter(seen, pk__lt=parse_after_id(after)).select_related("team", "owner").order_by("-pk")
    return paginate_rows(list(rows[: limit + 1]), limit, lambda row: row.pk, serialize_view)


@router.post("/views", auth=require_permission("views.save"), response={201: ViewOut, 200: ViewOut}, summary="Save a view")
def save_view(request: HttpRequest, given: ViewIn, key: Key) -> object:
    """Names are unique among your views; saving the same view again changes nothing."""
    caller = caller_of(request)
    user = caller.person(WHY)
    created: list[bool] = []

    def act() -> list[Any]:
        view, fresh = create_view(caller.team, user, given.name, given.query, given.shared)
        created.append(fresh)
        return [view.pk]

    [made], _ = run_idempotent_action(request, caller, key, act)
    return Status(201 if any(created) else 200, serialize_view(one_of(own_views(request), int(made))))


@router.patch("/views/{int:view_id}", auth=require_permission("views.save"), response=ViewOut, summary="Change a saved view")
def change_view(request: HttpRequest, view_id: int, given: ViewChange) -> object:
    """Only your own."""
    view: SavedView = one_of(own_views(request), view_id)
    return serialize_view(update_view(view, **given.model_dump()))


@router.delete("/views/{int:view_id}", auth=require_permission("views.save"), response={204: None}, summary="Delete a saved view")
def delete_view(request: HttpRequest, view_id: int) -> object:
    """Only your own; its rollouts stay."""
    one_of(own_views(request), view_id).delete()
    return Status(204, None)
