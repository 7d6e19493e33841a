"""Codes of authenticator apps and recovery codes, each of which works once, and how often codes and security keys may be tried."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter as get_account_adapter
from allauth.core import context
from allauth.core.internal.cryptokit import compare_user_code
from allauth.core.internal.ratelimit import RateLimitUsage
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from allauth.mfa.webauthn.forms import AuthenticateWebAuthnForm, ReauthenticateWebAuthnForm
from allauth.mfa.webauthn.internal.auth import complete_authentication, parse_authentication_response
from django.db import transaction

from lab.teams.accounts.models import User
from lab.teams.accounts.second_factor import SealedFactorAdapter
from lab.teams.accounts.throttling import count_code

LAST = "last_counter"  # in an app's data: the newest half-minute whose code was accepted


def accept_code(authenticator: Authenticator, code: str) -> bool:
    """Whether the code is good now; it is not good again afterwards, nor is an older one, whoever else sends it at the same moment."""
    if authenticator.type == Authenticator.Type.RECOVERY_CODES:
        return bool(authenticator.wrap().validate_code(code))
    if authenticator.type != Authenticator.Type.TOTP:
        return False
    with transaction.atomic():
        app = Authenticator.objects.select_for_update().filter(pk=authenticator.pk).first()
        if app is None:
            return False
        secret, last = SealedFactorAdapter().decrypt(app.data["secret"]), int(app.data.get(LAST, 0))
        newer = (counter for counter in yield_hotp_counters_from_time() if counter > last)
        matched = next(
            (counter for counter in newer if compare_user_code(actual=code, expected=format_hotp_value(hotp_value(secret, counter)))), None
        )
        if matched is None:
            return False
        app.data[LAST] = matched
        app.save(update_fields=["data"])
    return True


def count_attempt(user: User) -> RateLimitUsage:
    """One attempt at a second factor. Raises ValidationError when there were too many."""
    usage = count_code(context.request, user)
    if usage is None:
        raise get_account_adapter().validation_error("too_many_codes")
    return usage


class SingleUseCodeMixin:
    """For allauth's forms that ask for a code: each works once, and attempts are counted so that nobody else can use them up."""

    user: Any
    cleaned_data: dict[str, Any]
    authenticator: Authenticator

    def clean_code(self) -> str:
        usage = count_attempt(self.user)
        code = str(self.cleaned_data["code"])
        authenticators = Authenticator.objects.filter(user=self.user, type__in=(Authenticator.Type.TOTP, Authenticator.Type.RECOVERY_CODES))
        factors = sorted(authenticators, key=lambda factor: factor.type != Authenticator.Type.TOTP)
        for factor in factors:
            if accept_code(factor, code):
                factor.user = self.user
                self.authenticator = factor
                usage.rollback()
                return code
        if factors:
            self._emit_authentication_failed(factors[0])  # type: ignore[attr-defined]
        raise get_adapter().validation_error("incorrect_code")


class AuthenticateCodeForm(SingleUseCodeMixin, AuthenticateForm):  # type: ignore[misc]
    """The second step of signing in."""


class ReauthenticateCodeForm(SingleUseCodeMixin, ReauthenticateForm):  # type: ignore[misc]
    """Confirming that it is still the same person."""


class CountedKeyMixin:
    """For allauth's forms that ask a known person for a security key: tried as often as codes, and nobody else can use the attempts up."""

    user: Any
    cleaned_data: dict[str, Any]

    def clean_credential(self) -> Authenticator:
        credential = self.cleaned_data["credential"]
        parse_authentication_response(credential)
        usage = count_attempt(self.user)
        authenticator: Authenticator = complete_authentication(self.user, credential)
        usage.rollback()
        return authenticator


class AuthenticateKeyForm(CountedKeyMixin, AuthenticateWebAuthnForm):  # type: ignore[misc]
    """The second step of signing in, with a key."""


class ReauthenticateKeyForm(CountedKeyMixin, ReauthenticateWebAuthnForm):  # type: ignore[misc]
    """Confirming with a key that it is still the same person."""
