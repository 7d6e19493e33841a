"""A new team: who may make one, and under which address it stands."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils.crypto import get_random_string
from django.utils.text import slugify

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.accounts.permissions import ADMINS
from lab.teams.accounts.second_factor import is_operator
from lab.teams.audit.recording import record_audit_entry

MOST_OWNED = 50
TRIES = 5
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


def may_make(user: User) -> bool:
    """Operators, and who already runs a team: an annotator is here for a queue, not to found teams."""
    return is_operator(user) or Membership.objects.filter(user=user, active=True, role__in=ADMINS).exists()


def make_team(name: str, user: User) -> Team:
    """A team of the person's own. Its address comes from its name and stays when the name changes. Raises Refusal."""
    if not may_make(user):
        raise Refusal("Only owners and admins of a team can create teams.", "Ask one of yours.")
    if Membership.objects.filter(user=user, role=Role.OWNER).count() >= MOST_OWNED:
        raise Refusal(f"You own {MOST_OWNED} teams, the maximum.", "Delete one you no longer need.", field="name")
    base = slugify(name)[:40].strip("-_") or "team"
    for number in range(TRIES):
        slug = f"{base}-{get_random_string(4, LETTERS)}" if number or Team.objects.filter(slug=base).exists() else base
        try:
            with transaction.atomic():
                team = Team.objects.create(name=name, slug=slug)
                Membership.objects.create(team=team, user=user, role=Role.OWNER)
                record_audit_entry("team.create", team, actor=user, slug=slug)
                return team
        except IntegrityError:  # somebody made one of that name at the same moment
            continue
    raise Refusal("No free address for this name.", "Choose another name.", field="name")
