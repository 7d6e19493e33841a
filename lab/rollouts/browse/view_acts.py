"""What a person does with their views of the browser, by whomever it is asked for."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.http import QueryDict

from lab.lib.refusals import Refusal
from lab.rollouts.browse.address import Address
from lab.rollouts.browse.models import SavedView
from lab.teams.accounts.models import Team, User

NAME_LENGTH = 80
MOST_VIEWS = 200  # of one person
LONGEST_QUERY = 20_000


def format_stored_query(address: Address) -> str:
    """The address as a view keeps it: without the view it came from and without the place in the list."""
    return Address(address.selection, address.columns).url().removeprefix("?")


def clean_view_query(query: str) -> str:
    """Of a query string as an address bar has it; what no browser page understands is left out."""
    return format_stored_query(Address.read(QueryDict(query[:LONGEST_QUERY].removeprefix("?"))))


def clean_view_name(name: str) -> str:
    """Raises Refusal."""
    name = " ".join(name.replace("\0", "").split())
    if not name:
        raise Refusal("Enter a name for the view.", field="name", status=422)
    if len(name) > NAME_LENGTH:
        raise Refusal(f"The name of a view has at most {NAME_LENGTH} characters, this one has {len(name)}.", "Shorten it.", field="name", status=422)
    return name


def create_view(team: Team, user: User, name: str, query: str, shared: bool) -> tuple[SavedView, bool]:
    """The view, and whether it is new: the same one again is not. A name the person has given before is refused, because what it opens would be
    lost. Raises Refusal.
    """
    name, query = clean_view_name(name), clean_view_query(query)
    if SavedView.objects.filter(team=team, owner=user).count() >= MOST_VIEWS:
        raise Refusal(f"You have {MOST_VIEWS} views.", "Delete one first.")
    view, fresh = SavedView.objects.get_or_create(team=team, owner=user, name=name, defaults={"query": query, "shared": shared})
    if not fresh and view.query != query:
        raise Refusal(f"You have a view called “{name}”.", "Open it and press Update to change it, or choose another name.", field="name")
    return view, fresh


def update_view(view: SavedView, *, name: str | None = None, query: str | None = None, shared: bool | None = None) -> SavedView:
    """What is None stays as it is. Raises Refusal."""
    if name is not None:
        view.name = clean_view_name(name)
    if query is not None:
        view.query = clean_view_query(query)
    if shared is not None:
        view.shared = shared
    try:
        with transaction.atomic():
            view.save(update_fields=["name", "query", "shared", "updated_at"])
    except IntegrityError:
        fix = "Choose another name, or delete that one first."
        raise Refusal(f"You have another view called “{view.name}”.", fix, field="name") from None
    return view
