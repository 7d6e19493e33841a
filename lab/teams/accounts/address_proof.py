"""Whether an account's address is proved, and how that comes about: by mail only.

An account may have been made by somebody else than the owner of its address: whoever sees an invitation's link can use it. So an address counts
as verified once its owner has chosen the password by a link that was mailed to it: an invitation's mailed link, or the link that resets a password.
Until then nothing about the account is its owner's for certain, and with the proof everything that was set up before falls.
"""

from __future__ import annotations

from allauth.account.adapter import get_adapter
from allauth.account.forms import default_token_generator
from allauth.account.internal.flows.password_reset import request_password_reset
from allauth.account.models import EmailAddress
from allauth.account.utils import user_pk_to_url_str
from allauth.core import ratelimit
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.db import transaction
from django.db.models import QuerySet
from django.dispatch import Signal
from django.http import HttpRequest
from django.utils import timezone

from lab.teams.accounts.mail import has_mail_server
from lab.teams.accounts.models import ApiToken, User
from lab.teams.accounts.sessions import end_sessions

address_verified = Signal()  # user
ways_in_removed = Signal()  # user, removed: how many of what


def own_address(user: User) -> QuerySet[EmailAddress]:
    """The row of the address the person signs in with."""
    addresses: QuerySet[EmailAddress] = EmailAddress.objects.filter(user=user, primary=True, email__iexact=user.email)
    return addresses


def is_verified(user: User) -> bool:
    """A query."""
    return own_address(user).filter(verified=True).exists()


def mark_verified(user: User) -> None:
    """Call only where the owner of the address has shown that they read its mail, or a provider of single sign-on vouches for it."""
    if own_address(user).filter(verified=False).update(verified=True):
        address_verified.send(User, user=user)


def remove_ways_in(user: User) -> None:
    """Ends all that lets somebody act as this person but the password: second factors, passkeys, recovery codes, connections to single sign-on,
    access tokens, changes of address under way, and all sessions.
    """
    with transaction.atomic():
        removed = {
            "second_factors": Authenticator.objects.filter(user=user).delete()[0],
            "single_sign_on": SocialAccount.objects.filter(user=user).delete()[0],
            "tokens": ApiToken.across_teams.filter(user=user, revoked_at=None).update(revoked_at=timezone.now()),
            "sessions": end_sessions(user),
        }
        EmailAddress.objects.filter(user=user, primary=False).delete()
        ways_in_removed.send(User, user=user, removed=removed)


def claim_account(user: User) -> None:
    """A password was chosen by a mailed link. An address that was not proved is now, and whatever was set up before the proof falls.

    A verified account keeps its second factors: who merely reads its mail gets no further than the question for one. Without a mail server the
    operator has seen the link, so it proves nothing, and still everything set up before falls.
    """
    with transaction.atomic():
        row = own_address(user).select_for_update().first()
        if row is not None and row.verified:
            return
        remove_ways_in(user)
        if has_mail_server():
            mark_verified(user)


def reset_path_key(user: User) -> str:
    """What the address of the page to choose a password names: the person and a token that the next password ends."""
    return f"{user_pk_to_url_str(user)}-{default_token_generator.make_token(user)}"


def send_proof_mail(request: HttpRequest, user: User) -> bool:
    """Mails the link that proves the address; at most one in three minutes. False when it was not sent."""
    if not has_mail_server() or is_verified(user) or not ratelimit.consume(request, action="confirm_email", key=user.email.lower()):
        return False
    link = get_adapter(request).get_reset_password_from_key_url(reset_path_key(user))
    get_adapter(request).send_mail("account/email/prove_address", user.email, {"user": user, "link": link, "request": request})
    return True


def mail_reset_link(request: HttpRequest, user: User) -> None:
    """The mail of "reset your password", which somebody else has asked for."""
    request_password_reset(request, user.email, [user], default_token_generator)
