"""Views of the browser that people keep under a name: their own, and those their team shares. Only its owner changes a view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.contrib import messages
from django.core import signing
from django.db import IntegrityError, connection, transaction
from django.db.models import Q, QuerySet, prefetch_related_objects
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.lib.refusals import Refusal
from lab.rollouts.browse.address import Address
from lab.rollouts.browse.models import SavedView
from lab.rollouts.browse.view_acts import LONGEST_QUERY, create_view, format_stored_query, update_view
from lab.teams.accounts.models import Team, User
from lab.teams.accounts.requests import LabRequest

SALT = "browse.deleted-view"
DELETED_KEY = "deleted_view"  # in the session, until the next page has shown the way back
UNDO_SECONDS = 3600


@dataclass(frozen=True)
class Views:
    """What a person can open, and the one this page was opened from, if any. ``changed``: the page has moved on from it."""

    mine: list[SavedView]
    shared: list[SavedView]
    opened: SavedView | None
    own: bool
    changed: bool


def seen_by(team: Team, user: User) -> QuerySet[SavedView]:
    return SavedView.objects.filter(team=team).filter(Q(owner=user) | Q(shared=True))


# As ``seen_by``. Written out, because every page of the browser pays for composing it and most people have no view.
SEEN = """
SELECT id, team_id, owner_id, name, query, shared FROM browse_savedview WHERE team_id = %s AND (owner_id = %s OR shared) ORDER BY name
"""
LOADED = ("id", "team_id", "owner_id", "name", "query", "shared")  # what SEEN asks for


def load_seen_views(team: Team, user: User) -> list[SavedView]:
    with connection.cursor() as cursor:
        cursor.execute(SEEN, [team.pk, user.pk])
        return [SavedView.from_db(connection.alias, LOADED, row) for row in cursor.fetchall()]


def views_of(team: Team, user: User, address: Address) -> Views:
    views = load_seen_views(team, user)
    mine, shared = [view for view in views if view.owner_id == user.pk], [view for view in views if view.owner_id != user.pk]
    prefetch_related_objects(shared, "owner")  # a query of its own, because most pages have no view of another person
    opened = next((view for view in views if view.pk == address.view), None)
    changed = opened is not None and opened.query != format_stored_query(address)
    return Views(mine, shared, opened, opened in mine, changed)


def view_of(request: LabRequest, key: int, own: bool = False) -> SavedView:
    """404 for another team's, another person's private one, and for a change of somebody else's."""
    views = SavedView.objects.filter(team=request.team, owner=request.user) if own else seen_by(request.team, request.user)
    return get_object_or_404(views, pk=key)


def build_view_address(query: str, key: int) -> str:
    """The browser with a view's query; parameters that are no longer possible become problems there."""
    return f"{reverse('rollouts')}?{query}{'&' if query else ''}view={key}"


@require_safe
def open_view(request: LabRequest, key: int) -> HttpResponse:
    view = view_of(request, key)
    return redirect(build_view_address(view.query, view.pk))


def redirect_with_view_error(request: LabRequest, error: str) -> HttpResponse:
    messages.error(request, error)
    query = urlsplit("?" + request.POST.get("query", "")[:LONGEST_QUERY].removeprefix("?")).query
    return redirect(reverse("rollouts") + (f"?{query}" if query else ""))


@require_POST
def create_saved_view(request: LabRequest) -> HttpResponse:
    data = request.POST
    try:
        view, _ = create_view(request.team, request.user, data.get("name", ""), data.get("query", ""), data.get("shared") == "1")
    except Refusal as refused:
        return redirect_with_view_error(request, str(refused))
    messages.success(request, f"Saved as “{view.name}”.")
    return redirect(build_view_address(view.query, view.pk))


def make_change_view(act: Callable[[LabRequest, SavedView], str]) -> Callable[[LabRequest, int], HttpResponse]:
    """A change of one's own view; ``act`` returns what was done, or raises Refusal."""

    @require_POST
    def change(request: LabRequest, key: int) -> HttpResponse:
        view = view_of(request, key, own=True)
        try:
            messages.success(request, act(request, view))
        except Refusal as refused:
            return redirect_with_view_error(request, str(refused))
        return redirect(build_view_address(view.query, view.pk))

    return change


@make_change_view
def update_saved_view(request: LabRequest, view: SavedView) -> str:
    update_view(view, query=request.POST.get("query", ""))
    return f"“{view.name}” was updated."


@make_change_view
def rename_saved_view(request: LabRequest, view: SavedView) -> str:
    update_view(view, name=request.POST.get("name", ""), shared=request.POST.get("shared") == "1")
    return f"“{view.name}” is {'shared with the team' if view.shared else 'yours alone'}."


@require_POST
def delete_saved_view(request: LabRequest, key: int) -> HttpResponse:
    """Gone, with a way back: the page holds what was deleted, signed, for an hour."""
    view = view_of(request, key, own=True)
    kept = {"key": view.pk, "team": request.team.pk, "owner": request.user.pk, "name": view.name, "query": view.query, "shared": view.shared}
    query = view.query
    view.delete()
    request.session[DELETED_KEY] = {"name": view.name, "token": signing.dumps(kept, salt=SALT)}
    return redirect(reverse("rollouts") + (f"?{query}" if query else ""))


@require_POST
def restore_saved_view(request: LabRequest) -> HttpResponse:
    """Brings the view back that the person deleted last, under its old address. Its name may have been taken meanwhile."""
    try:
        kept = signing.loads(request.POST.get("token", ""), salt=SALT, max_age=UNDO_SECONDS)
    except signing.BadSignature:
        return redirect_with_view_error(request, "It was deleted more than an hour ago and can no longer be restored.")
    if (kept["team"], kept["owner"]) != (request.team.pk, request.user.pk):
        raise Http404
    values = {"team": request.team, "owner": request.user, "name": kept["name"], "query": kept["query"], "shared": kept["shared"]}
    try:
        with transaction.atomic():
            view, _ = SavedView.objects.of(request.team).get_or_create(pk=kept["key"], defaults=values)
    except IntegrityError:
        return redirect_with_view_error(request, f"You have another view called “{kept['name']}” now. Rename that one first.")
    messages.success(request, f"“{view.name}” was restored.")
    return redirect(build_view_address(view.query, view.pk))
