"""Deleting a team with all it owns. Nothing of it can be had back but the audit log, which keeps what was done in it.

Rooms say what stands in the way (``HINDRANCES``), and what lies outside the database (``CLEARERS``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.apps import apps
from django.db import models, transaction
from django.db.models.deletion import CASCADE, PROTECT

from lab.lib.refusals import Refusal
from lab.lib.registry import Registry
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.accounts.sessions import look_again
from lab.teams.audit.recording import record_audit_entry
from lab.teams.people.member_rules import lock_team, membership_in

# By the room that says so: why the team cannot be deleted now, empty when it can.
HINDRANCES: Registry[Callable[[Team], str]] = Registry("hindrance of a team's deletion")
# By what is cleared: asked before the rows go; what comes back is called once they are gone.
CLEARERS: Registry[Callable[[Team], Callable[[], None]]] = Registry("clearer")


COUNTED = ("runs", "queues", "datasets", "projects", "reports")  # related names of Team, where the rooms have them


def count_team_objects(team: Team) -> list[str]:
    """How much would go, in words."""
    counts = [(name.removesuffix("s"), getattr(team, name).count()) for name in COUNTED if hasattr(team, name)]
    counts.append(("member", team.memberships.count()))
    return [f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts]


def list_deletion_hindrances(team: Team) -> list[str]:
    return [words for hindrance in HINDRANCES.values() if (words := hindrance(team))]


def delete_team(team: Team, by: User, typed: str) -> None:
    """Raises Refusal, with the field at fault, for who is no owner, a name that is not the team's, and while something stands in the way."""
    with transaction.atomic():
        team = lock_team(team)
        mine = membership_in(team, by)
        if mine is None or mine.role != Role.OWNER:
            raise Refusal("You no longer own this team.", "Reload the page.")
        if " ".join(typed.split()) != " ".join(team.name.split()):
            raise Refusal(f"This is not the team's name, {team.name}.", "Type it exactly.", field="name")
        if hindrances := list_deletion_hindrances(team):
            raise Refusal(*hindrances[:1])
        people = [member.user for member in Membership.objects.filter(team=team).select_related("user")]
        clear = [clearer(team) for clearer in CLEARERS.values()]
        record_audit_entry("team.delete", team, actor=by, slug=team.slug, members=len(people))
        purge_team_rows(team)
        for act in [*clear, *(lambda user=user: look_again(user) for user in people)]:
            transaction.on_commit(act)


def purge_team_rows(team: Team) -> None:
    """Deletes every row that belongs to the team, below before above: constraints are checked when the transaction ends."""
    for model, path in sorted(iterate_owned_models(Team), key=lambda pair: -pair[1].count("__")):
        rows = model._base_manager.filter(**{path: team.pk})
        rows._raw_delete(rows.db)  # type: ignore[attr-defined]
    Team.objects.filter(pk=team.pk)._raw_delete("default")  # type: ignore[attr-defined]


def iterate_owned_models(root: type[models.Model]) -> Iterator[tuple[type[models.Model], str]]:
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
                    lookup = f"{field.name}__{path}" if path else field.name
                    yield model, lookup
                    queue.append((model, lookup, passed | {model}))
