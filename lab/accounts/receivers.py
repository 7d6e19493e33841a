"""What follows from a change of an account, whichever page, command or admin changed it."""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.signals import password_changed, password_reset, password_set
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_added
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http import HttpRequest

from lab.accounts.models import User
from lab.accounts.second_factor import FACTORS
from lab.accounts.sessions import end_sessions


@receiver(post_save, sender=User)
def keep_the_address_verified(instance: User, update_fields: Any = None, raw: bool = False, **_: Any) -> None:
    """An account's address counts as verified: the set-up link, an invitation, the person's click on a mail, or staff have vouched for it.

    Raises IntegrityError when it is another account's address, in whichever case it is written.
    """
    if raw or (update_fields is not None and "email" not in update_fields):
        return
    mine = EmailAddress.objects.filter(user=instance)
    if mine.filter(email__iexact=instance.email, verified=True, primary=True).exists():
        return
    mine.filter(primary=True).exclude(email__iexact=instance.email).delete()
    asked = EmailAddress.objects.filter(email__iexact=instance.email, verified=False)  # somebody else's change that was never confirmed
    asked.exclude(user=instance).delete()
    mine.update_or_create(email=instance.email.lower(), defaults={"user": instance, "verified": True, "primary": True})


@receiver([password_changed, password_set])
def end_other_sessions(request: HttpRequest, user: User, **_: Any) -> None:
    end_sessions(user, keep=request.session.session_key)


@receiver(password_reset)
def end_all_sessions(user: User, **_: Any) -> None:
    end_sessions(user)


@receiver(authenticator_added)
def end_sessions_without_it(request: HttpRequest, user: User, authenticator: Authenticator, **_: Any) -> None:
    """A session that was begun with a password alone does not outlive the first second factor."""
    if authenticator.type in FACTORS and Authenticator.objects.filter(user=user, type__in=FACTORS).count() == 1:
        end_sessions(user, keep=request.session.session_key)
