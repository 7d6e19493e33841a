"""Signing in and out, passwords and second factors: what Django and allauth report, as entries.

A sign-in that fails is kept with the address that was tried and never with what was typed as the password.
"""

from __future__ import annotations

from typing import Any

from allauth.account import signals as account
from django.apps import apps
from django.contrib.auth import signals as auth

from lab.teams.accounts.address_proof import address_verified, ways_in_removed
from lab.teams.accounts.models import User
from lab.teams.accounts.sessions import session_revoked
from lab.teams.audit.recording import escape_unstorable_text, get_circumstances, record_of_person

TRIED = 254  # characters of an address that was tried


def connect_audit_signals() -> None:
    auth.user_logged_in.connect(signed_in, dispatch_uid="audit")
    auth.user_logged_out.connect(signed_out, dispatch_uid="audit")
    auth.user_login_failed.connect(not_signed_in, dispatch_uid="audit")
    for signal, how in ((account.password_changed, "changed"), (account.password_set, "set"), (account.password_reset, "reset by e-mail")):
        signal.connect(make_password_receiver(how), weak=False, dispatch_uid="audit")
    session_revoked.connect(record_session_revoked, dispatch_uid="audit")
    account.email_changed.connect(address_changed, dispatch_uid="audit")
    address_verified.connect(address_proved, dispatch_uid="audit")
    ways_in_removed.connect(ways_in_gone, dispatch_uid="audit")
    if apps.is_installed("allauth.mfa"):
        from allauth.mfa import signals as mfa

        mfa.authenticator_added.connect(make_factor_receiver("mfa.add"), weak=False, dispatch_uid="audit")
        mfa.authenticator_removed.connect(make_factor_receiver("mfa.remove"), weak=False, dispatch_uid="audit")
        mfa.authenticator_reset.connect(make_factor_receiver("mfa.reset"), weak=False, dispatch_uid="audit")
        mfa.authentication_failed.connect(second_factor_failed, dispatch_uid="audit")


def signed_in(sender: Any, user: User, **more: Any) -> None:
    if get_circumstances().request is not None:  # a program that signs somebody in is none of the person's acts
        record_of_person("session.start", user, actor=user)


def signed_out(sender: Any, user: User | None, **more: Any) -> None:
    if user is not None and get_circumstances().request is not None:
        record_of_person("session.end", user, actor=user)


def record_session_revoked(sender: Any, user: User, label: str, **more: Any) -> None:
    record_of_person("session.revoke", user, actor=user, browser=escape_unstorable_text(label))


def not_signed_in(sender: Any, credentials: dict[str, Any], **more: Any) -> None:
    """Django has taken the password out of ``credentials``."""
    tried = escape_unstorable_text(str(credentials.get("email") or credentials.get("username") or ""))[:TRIED]
    known = User.objects.filter(email__iexact=tried).first() if tried else None
    record_of_person("session.fail", known, label=tried, reason="wrong password" if known else "no such account")


def second_factor_failed(sender: Any, user: User, authenticator: Any, **more: Any) -> None:
    record_of_person("session.fail", user, reason="wrong code", factor=str(getattr(authenticator, "type", "")))


def make_password_receiver(how: str) -> Any:
    def receive(sender: Any, user: User, **more: Any) -> None:
        record_of_person("password.change", user, actor=user, how=how)

    return receive


def address_changed(sender: Any, user: User, from_email_address: Any, to_email_address: Any, **more: Any) -> None:
    before, after = (str(getattr(address, "email", "")) for address in (from_email_address, to_email_address))
    record_of_person("email.change", user, actor=user, before=before, after=after)


def address_proved(sender: Any, user: User, **more: Any) -> None:
    record_of_person("email.verify", user, label=user.email)


def ways_in_gone(sender: Any, user: User, removed: dict[str, int], **more: Any) -> None:
    record_of_person("account.reset", user, removed=removed)


def make_factor_receiver(action: str) -> Any:
    def receive(sender: Any, user: User, authenticator: Any, **more: Any) -> None:
        record_of_person(action, user, factor=str(authenticator.type))

    return receive
