"""A new team: who may make one, and under which address it stands."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils.crypto import get_random_string
from django.utils.text import slugify

from lab.accounts.models import Membership, Role, Team, User
from lab.accounts.permissions import ADMINS
from lab.audit.recording import record
from lab.people.rules import Refused

MOST_OWNED = 50
TRIES = 5
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


def may_make(user: User) -> bool:
    """Staff, and who already runs a team: an annotator is here for a queue, not to found teams."""
    return user.is_staff or Membership.objects.filter(user=user, active=True, role__in=ADMINS).exists()


def make_team(name: str, user: User) -> Team:
    """A team of the person's own. Its address comes from its name and stays when the name changes. Raises Refused."""
    if not may_make(user):
        raise Refused("Making teams is for owners and admins of a team.", "Ask one of yours.")
    if Membership.objects.filter(user=user, role=Role.OWNER).count() >= MOST_OWNED:
        raise Refused(f"You own {MOST_OWNED} teams, which is the most.", "Delete one you no longer need.", "name")
    wanted = slugify(name)[:40].strip("-_") or "team"
    for number in range(TRIES):
        slug = f"{wanted}-{get_random_string(4, LETTERS)}" if number or Team.objects.filter(slug=wanted).exists() else wanted
        try:
            with transaction.atomic():
                team = Team.objects.create(name=name, slug=slug)
                Membership.objects.create(team=team, user=user, role=Role.OWNER)
                record("team.create", team, actor=user, slug=slug)
                return team
        except IntegrityError:  # somebody made one of that name at the same moment
            continue
    raise Refused("No free address was found for this name.", "Choose another name.", "name")
