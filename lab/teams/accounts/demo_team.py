"""The demo's team and account: ``manage.py demo`` launches its runs there, and whoever runs the installation owns the team, too.

Nobody can sign in as the account, which has no password: it does not count as one of the lab's people.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import QuerySet

from lab.teams.accounts.models import Membership, Role, Team, User

EMAIL = "demo@example.org"
NAME, SLUG = "Demo", "demo"


def list_people() -> QuerySet[User]:
    """Accounts of people: all but the demo's."""
    return User.objects.exclude(email=EMAIL)


def find_demo_team() -> Team | None:
    membership = Membership.objects.filter(user__email=EMAIL).select_related("team").order_by("pk").first()
    return membership.team if membership else None


@transaction.atomic
def ensure_demo_account() -> User:
    """The account, with a team of its own, which the installation's operators own as well."""
    user = User.objects.filter(email=EMAIL).first() or User.objects.create_user(EMAIL, None, first_name=NAME)
    team = find_demo_team()
    if team is None:
        team = Team.objects.create(name=NAME, slug=choose_free_slug(SLUG))
        Membership.objects.create(team=team, user=user, role=Role.OWNER)
    for operator in list_people().filter(is_superuser=True, is_active=True):
        Membership.objects.get_or_create(team=team, user=operator, defaults={"role": Role.OWNER})
    return user


def choose_free_slug(wanted: str) -> str:
    """``wanted``, or with a number behind it where another team has it."""
    taken = set(Team.objects.filter(slug__startswith=wanted[:46]).values_list("slug", flat=True))
    return next(slug for slug in (wanted, *(f"{wanted[:46]}-{number}" for number in range(2, 1000))) if slug not in taken)
