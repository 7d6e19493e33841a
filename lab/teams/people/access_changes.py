"""Whoever's access changes, by whichever page, command or /admin/: their open sockets ask at once whether they may stay.

The channel layer only wakes them up; with Redis away they ask by themselves within seconds.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.utils import timezone

from lab.teams.accounts.models import Membership, Team, User
from lab.teams.accounts.sessions import look_again


def connect_access_signals() -> None:
    post_save.connect(member_changed, sender=Membership, dispatch_uid="access: membership")
    post_delete.connect(member_changed, sender=Membership, dispatch_uid="access: membership gone")
    post_save.connect(person_changed, sender=User, dispatch_uid="access: person")
    post_save.connect(team_changed, sender=Team, dispatch_uid="access: team")
    post_delete.connect(session_ended, sender=Session, dispatch_uid="access: session")


def member_changed(instance: Membership, created: bool = False, **_: Any) -> None:
    if not created:
        schedule_access_check(User(pk=instance.user_id))


def person_changed(instance: User, created: bool = False, update_fields: frozenset[str] | None = None, **_: Any) -> None:
    if not created and (update_fields is None or "is_active" in update_fields):
        schedule_access_check(instance)


def team_changed(instance: Team, created: bool = False, update_fields: frozenset[str] | None = None, **_: Any) -> None:
    """Asking for a second factor shuts those out who have none."""
    if not created and instance.requires_mfa and (update_fields is None or "requires_mfa" in update_fields):
        for member in Membership.objects.filter(team=instance, active=True).select_related("user"):
            schedule_access_check(member.user)


def session_ended(instance: Session, **_: Any) -> None:
    """Signing out deletes the session, and so does revoking it from elsewhere."""
    if instance.expire_date < timezone.now():
        return
    person = instance.get_decoded().get(SESSION_KEY)
    if person:
        schedule_access_check(User(pk=int(person)))


def schedule_access_check(user: User) -> None:
    transaction.on_commit(lambda: look_again(user))
