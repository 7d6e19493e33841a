"""Who may come in by single sign-on: people with an account whose address is proved here, and people with an open invitation; both by an address
the provider has verified. An account that somebody else may have made, because nobody has proved its address by mail, is never connected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allauth.account.models import EmailAddress
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp, SocialLogin
from allauth.socialaccount.providers.base import AuthProcess
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest
from django.shortcuts import render
from django.utils import timezone

from lab.lib.registry import Registry
from lab.teams.accounts.address_proof import mark_verified
from lab.teams.accounts.models import Invitation, User

Welcome = Callable[[User], None]
WELCOMES: Registry[Welcome] = Registry("welcome")  # by room; each is called with a person whose account single sign-on has just made


def verified_address(login: SocialLogin) -> str:
    """The address the provider vouches for, in lower case; empty unless it says so itself. Some say "true", others true.

    Few SAML providers say it: for theirs the operator may name the domains whose addresses count (LAB_SAML_DOMAINS).
    """
    if login.provider.id == "saml":
        return verified_saml_address(login)
    extra = login.account.extra_data
    claims = extra.get("userinfo") or extra.get("id_token") or extra
    return str(claims.get("email", "")).lower() if claims.get("email_verified") in (True, "true") else ""


def verified_saml_address(login: SocialLogin) -> str:
    address = str(login.user.email or "").lower()
    said = any(one.verified and one.email.lower() == address for one in login.email_addresses)
    known = address.count("@") == 1 and address.partition("@")[2] in login.provider.app.settings["verified_domains"]
    return address if said or known else ""


def is_invited(address: str) -> bool:
    open_ones = Invitation.across_teams.filter(accepted_at=None, revoked_at=None, expires_at__gt=timezone.now())
    return bool(address) and open_ones.filter(email__iexact=address).exists()


class KnownPeopleAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    def list_apps(self, request: HttpRequest | None, provider: str | None = None, client_id: str | None = None) -> list[SocialApp]:
        """Only what the environment names; rows of the database add none."""
        apps = [SocialApp(provider=kind, **app) for kind, configured in settings.SOCIALACCOUNT_PROVIDERS.items() for app in configured["APPS"]]
        return [app for app in apps if provider in (None, app.provider, app.provider_id) and client_id in (None, app.client_id)]

    def authenticate_by_email(self, sociallogin: SocialLogin) -> tuple[User, str] | None:
        """The account whose own address, confirmed here too, is the one the provider has verified."""
        address = verified_address(sociallogin)
        mine = EmailAddress.objects.filter(email__iexact=address, verified=True, primary=True).select_related("user").first() if address else None
        return (mine.user, address) if mine else None

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Whoever comes for an account whose address is not verified here is told so, and how to get in."""
        if sociallogin.is_existing or sociallogin.state.get("process") == AuthProcess.CONNECT:
            return
        address = verified_address(sociallogin)
        if address and User.objects.filter(email__iexact=address).exists():
            words = {"email": address, "provider": sociallogin.provider.name}
            raise ImmediateHttpResponse(render(request, "socialaccount/unverified.html", words, status=403))

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return is_invited(verified_address(sociallogin))

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """Makes the account of the invited address, without a password. Whatever else the provider says of the person decides nothing."""
        user: User = sociallogin.user
        user.email = verified_address(sociallogin)
        user.set_unusable_password()
        with transaction.atomic():
            user.save()
            mark_verified(user)
            sociallogin.save(request, connect=True)
            for welcome in WELCOMES.values():
                welcome(user)
        return user
