"""Everybody who may stand before an address, and every address there is: Django's, the packages' and the websockets'."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.test import Client
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse

from lab.teams.accounts.middleware import LAST_TEAM
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.urls import websocket_urlpatterns
from tests.conftest import make_member
from tests.lab.cast import Cast

MEMBERS = ("viewer", "annotator", "researcher", "admin", "owner")  # as the roles are called
PEOPLE = ("anonymous", *MEMBERS, "stranger", "deactivated")


@dataclass(frozen=True)
class Route:
    """An address by its name, with its namespaces: what the permission table is asked for."""

    name: str
    parameters: tuple[str, ...]
    view: Any

    def path(self, cast: Cast) -> str:
        """Below the team's address. Empty for one that the cast cannot fill: what only a signed link of a mail or the API names."""
        try:
            return reverse(self.name, kwargs={one: cast.value(self.name, one) for one in self.parameters})
        except (KeyError, NoReverseMatch):
            return ""


def routes(inside: URLResolver | None = None, space: str = "") -> Iterator[Route]:
    for entry in (inside or get_resolver()).url_patterns:
        if isinstance(entry, URLResolver):
            yield from routes(entry, f"{space}{entry.namespace}:" if entry.namespace else space)
        elif isinstance(entry, URLPattern):
            yield Route(f"{space}{entry.name or entry.pattern}", tuple(entry.pattern.converters or entry.pattern.regex.groupindex), entry.callback)


def sockets() -> list[URLPattern]:
    return [entry for entry in websocket_urlpatterns if isinstance(entry, URLPattern)]


def make_people(team: Team, owner: User) -> dict[str, User | None]:
    """One of each in ``team`` (by PEOPLE); the stranger owns another team, the deactivated member was an admin."""
    people: dict[str, User | None] = {"anonymous": None, "owner": owner}
    for role in MEMBERS[:-1]:
        people[role] = make_member(f"the-{role}@example.org", team, Role(role))
    people["stranger"] = make_member("the-stranger@example.org", Team.objects.create(name="Another", slug="another"), Role.OWNER)
    gone = make_member("the-deactivated@example.org", team, Role.ADMIN)
    Membership.objects.filter(user=gone).update(active=False)
    return people | {"deactivated": gone}


def client_of(user: User | None, team: Team | None = None) -> Client:
    """Signed in; of somebody who has been in ``team`` before: where each request is taken back, each would write into the session that they are."""
    client = Client(raise_request_exception=False)
    if user is not None:
        client.force_login(user)
        if team is not None:
            session = client.session
            session[LAST_TEAM] = team.slug
            session.save()
    return client
