"""Second factors: an authenticator app or a security key. Recovery codes stand in for one, they are none by themselves."""

from __future__ import annotations

from base64 import b64decode, b64encode

from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from django.db.models import Exists, OuterRef, Q, QuerySet

from lab.lib.sealed import seal_secret, unseal_secret
from lab.teams.accounts.models import Membership, Team, User

FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
PURPOSE = "second factor"
NAME = "Policy Lab"


def has_second_factor(user: User) -> bool:
    """Whether signing in asks this person for more than a password. A query."""
    return bool(Authenticator.objects.filter(user=user, type__in=FACTORS).exists())


def is_operator(user: User) -> bool:
    """Whether the powers of staff are this person's now: not before they have a second factor. A query for staff."""
    return bool(user.is_active and user.is_staff) and has_second_factor(user)


def needs_second_factor(membership: Membership) -> bool:
    """Whether the team is closed to this member until they have set up a second factor. A query, only where the team asks for one."""
    return membership.team.requires_mfa and not has_second_factor(membership.user)


def open_to_their_members(memberships: QuerySet[Membership]) -> QuerySet[Membership]:
    """Those of ``memberships`` that lack no second factor their team asks for."""
    factors = Authenticator.objects.filter(user=OuterRef("user"), type__in=FACTORS)
    return memberships.filter(Q(team__requires_mfa=False) | Exists(factors))


def teams_that_wait(user: User) -> list[Team]:
    """The person's teams that stay closed until they have a second factor."""
    asking = user.memberships.filter(active=True, team__requires_mfa=True).select_related("team").order_by("team__name")
    waiting = [membership.team for membership in asking]
    return [] if not waiting or has_second_factor(user) else waiting


class SealedFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Secrets of authenticator apps and of recovery codes are stored encrypted; names in apps and on keys are the lab's."""

    def encrypt(self, text: str) -> str:
        return b64encode(seal_secret(PURPOSE, text)).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Raises lab.lib.sealed.UnsealError once the installation's signing key has changed."""
        return unseal_secret(PURPOSE, b64decode(encrypted_text))

    def get_totp_issuer(self) -> str:
        return NAME

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        return {**super().get_public_key_credential_rp_entity(), "name": NAME}


def closed_words(team: Team) -> str:
    """Why the team is closed, for a script or a fragment that cannot be sent elsewhere."""
    return f"Team {team.name} requires a second factor, and your account has none. Set one up on your account page, then continue."


STAFF_WORDS = "The operators' pages require a second factor, and your account has none. Set up an authenticator app or a security key first."
