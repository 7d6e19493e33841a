"""What the account page shows of a person: how they sign in, where they are signed in, in which teams they are."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.conf import settings

from lab.teams.accounts.address_change import pending_address
from lab.teams.accounts.address_proof import is_verified
from lab.teams.accounts.models import User


def build_account_overview(user: User) -> dict[str, Any]:
    kinds = list(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    return {
        "pending_address": pending_address(user),
        "verified": is_verified(user),
        "apps": kinds.count(Authenticator.Type.TOTP),
        "security_keys": kinds.count(Authenticator.Type.WEBAUTHN),
        "sessions": len(UserSession.objects.purge_and_list(user)),
        "single_sign_on": bool(settings.SOCIALACCOUNT_PROVIDERS),
        "linked": SocialAccount.objects.filter(user=user).exists(),
        "memberships": user.memberships.filter(active=True).select_related("team").order_by("team__name"),
    }
