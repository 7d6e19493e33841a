"""What follows from a change of an account, whichever page, command or admin changed it."""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.signals import password_changed, password_reset, password_set
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_added
from django.contrib.auth.signals import user_logged_in
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http import HttpRequest

from lab.teams.accounts.codes import accept_code
from lab.teams.accounts.devices import remember_device
from lab.teams.accounts.models import User
from lab.teams.accounts.second_factor import FACTORS
from lab.teams.accounts.sessions import end_sessions


@receiver(post_save, sender=User)
def list_the_address(instance: User, created: bool = False, update_fields: Any = None, raw: bool = False, **_: Any) -> None:
    """An account's address is in allauth's list, not verified until its owner has proved it (lab.teams.accounts.address_proof)."""
    if raw or (update_fields is not None and "email" not in update_fields):
        return
    unverified = EmailAddress.objects.filter(email__iexact=instance.email, verified=False)  # somebody else's change that was never confirmed
    if created:  # and so without an address in the list
        unverified.delete()
        EmailAddress.objects.create(user=instance, email=instance.email.lower(), verified=False, primary=True)
        return
    mine = EmailAddress.objects.filter(user=instance)
    if mine.filter(email__iexact=instance.email, primary=True).exists():
        return
    mine.filter(primary=True).exclude(email__iexact=instance.email).delete()
    unverified.exclude(user=instance).delete()
    mine.update_or_create(email=instance.email.lower(), defaults={"user": instance, "verified": False, "primary": True})


@receiver([password_changed, password_set])
def end_other_sessions(request: HttpRequest, user: User, **_: Any) -> None:
    end_sessions(user, keep=request.session.session_key)
    remember_device(request, user)


@receiver(password_reset)
def end_all_sessions(request: HttpRequest, user: User, **_: Any) -> None:
    end_sessions(user)
    remember_device(request, user)  # who reads the account's mail is not kept out by what others tried


@receiver(user_logged_in)
def remember_the_browser(request: HttpRequest | None, user: User, **_: Any) -> None:
    if request is not None:
        remember_device(request, user)


@receiver(authenticator_added)
def end_sessions_without_it(request: HttpRequest, user: User, authenticator: Authenticator, **_: Any) -> None:
    """A session that was begun with a password alone does not outlive the first second factor."""
    if authenticator.type in FACTORS and Authenticator.objects.filter(user=user, type__in=FACTORS).count() == 1:
        end_sessions(user, keep=request.session.session_key)


@receiver(authenticator_added)
def use_up_the_first_code(request: HttpRequest, authenticator: Authenticator, **_: Any) -> None:
    """The code that showed that an app is set up signs nobody in afterwards."""
    if authenticator.type == Authenticator.Type.TOTP:
        accept_code(authenticator, request.POST.get("code", ""))
