"""Deleting a team with all it owns. Nothing of it can be had back but the audit log, which keeps what was done in it.

Rooms say what stands in the way (``HINDRANCES``), and what lies outside the database (``CLEARERS``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.apps import apps
from django.db import models, transaction
from django.db.models.deletion import CASCADE, PROTECT

from lab.accounts.models import Membership, Role, Team, User
from lab.accounts.sessions import look_again
from lab.audit.recording import record
from lab.people.rules import Refused, lock, membership_in

HINDRANCES: list[Callable[[Team], str]] = []  # why the team cannot be deleted now; empty when it can
CLEARERS: list[Callable[[Team], Callable[[], None]]] = []  # asked before the rows go; what comes back is called once they are gone


COUNTED = ("runs", "queues", "datasets", "projects")  # related names of Team, where the rooms have them


def counts(team: Team) -> list[str]:
    """How much would go, in words."""
    found = [(name.removesuffix("s"), getattr(team, name).count()) for name in COUNTED if hasattr(team, name)]
    found.append(("member", team.memberships.count()))
    return [f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in found]


def hindrances(team: Team) -> list[str]:
    return [words for hindrance in HINDRANCES if (words := hindrance(team))]


def delete_team(team: Team, by: User, typed: str) -> None:
    """Raises Refused, with the field at fault, for who is no owner, a name that is not the team's, and while something stands in the way."""
    with transaction.atomic():
        team = lock(team)
        mine = membership_in(team, by)
        if mine is None or mine.role != Role.OWNER:
            raise Refused("You do not own this team any more.", "Reload the page.")
        if " ".join(typed.split()) != " ".join(team.name.split()):
            raise Refused(f"This is not the team's name, {team.name}.", "Type it exactly.", "name")
        if found := hindrances(team):
            raise Refused(*found[:1])
        people = [member.user for member in Membership.objects.filter(team=team).select_related("user")]
        clear = [clearer(team) for clearer in CLEARERS]
        record("team.delete", team, actor=by, slug=team.slug, members=len(people))
        purge(team)
        for act in [*clear, *(lambda user=user: look_again(user) for user in people)]:
            transaction.on_commit(act)


def purge(team: Team) -> None:
    """Deletes every row that belongs to the team, below before above: constraints are checked when the transaction ends."""
    for model, path in sorted(owned(Team), key=lambda found: -found[1].count("__")):
        rows = model._base_manager.filter(**{path: team.pk})
        rows._raw_delete(rows.db)  # type: ignore[attr-defined]
    Team.objects.filter(pk=team.pk)._raw_delete("default")  # type: ignore[attr-defined]


def owned(root: type[models.Model]) -> Iterator[tuple[type[models.Model], str]]:
    """(model, lookup that leads from it to ``root``) of all that is deleted with a row of ``root``, along every chain of keys."""
    queue: list[tuple[type[models.Model], str, frozenset[type[models.Model]]]] = [(root, "", frozenset({root}))]
    while queue:
        above, path, passed = queue.pop()
        for model in apps.get_models(include_auto_created=True):
            for field in model._meta.concrete_fields:
                if not isinstance(field, models.ForeignKey) or field.related_model is not above or model in passed:
                    continue
                follows = field.remote_field.on_delete
                if follows is CASCADE or (follows is PROTECT and not field.null):
                    found = f"{field.name}__{path}" if path else field.name
                    yield model, found
                    queue.append((model, found, passed | {model}))
