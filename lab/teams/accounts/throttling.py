"""How often passwords and codes may be tried, so that guessing ends and nobody can lock somebody else out.

Attempts are counted by address and source together, and over all sources by address; a browser the person has signed in with before has a count
of its own that nobody else can use up. Counts lie in the database: they hold over all processes. Attempts that succeed are not counted.
"""

from __future__ import annotations

from allauth.core.internal import ratelimit
from allauth.core.internal.ratelimit import RateLimitUsage
from django.http import HttpRequest

from lab.teams.accounts.devices import known_device
from lab.teams.accounts.models import User
from lab.teams.accounts.second_factor import has_second_factor

APP = "lab.teams.accounts"
# "<number>/<time>/<ip or key>"; several are all asked.
RATES = {
    "device": "10/5m/key,50/d/key",  # one person's attempts in a browser they have signed in with
    "source": "5/5m/key",  # attempts on one account from one network address
    "network": "10/m/ip",  # attempts on any account from one network address
    "account": "30/h/key,100/d/key",  # attempts on one account from everywhere but its known browsers
    "guarded": "300/h/key,1000/d/key",  # the same where a second factor stands behind the password
    "saml": "30/m/ip",  # responses of an identity provider from one network address
    "code": "5/5m/key,50/d/key",  # second-factor codes of one person from one network address
    "codes": "30/h/key,100/d/key",  # second-factor codes of one person from everywhere but their known browsers
}


def count_password(request: HttpRequest, email: str) -> RateLimitUsage | None:
    """One attempt at the password of ``email``, whether or not it has an account; None when there were too many."""
    email = email.strip().lower()
    user = User.objects.filter(email__iexact=email).first() if email else None
    device = known_device(request, user)
    if device:
        return count_limited_attempt(request, ("device", f"password {email} {device}"))
    everywhere = "guarded" if user is not None and has_second_factor(user) else "account"
    return count_limited_attempt(request, ("network", ""), ("source", source_key(request, email)), (everywhere, email))


def count_code(request: HttpRequest, user: User) -> RateLimitUsage | None:
    """One attempt at a second-factor code by somebody who knows the password; None when there were too many."""
    device = known_device(request, user)
    if device:
        return count_limited_attempt(request, ("device", f"code {user.pk} {device}"))
    return count_limited_attempt(request, ("code", source_key(request, str(user.pk))), ("codes", str(user.pk)))


def forget_attempts(request: HttpRequest, email: str) -> None:
    """After a new password was chosen by a mailed link: what was tried before was about the old one."""
    email = email.strip().lower()
    for action, key in (("source", source_key(request, email)), ("account", email), ("guarded", email)):
        ratelimit.clear(request, app=APP, action=action, config=RATES, key=key)


def source_key(request: HttpRequest, account: str) -> str:
    return f"{account} {ratelimit.get_ip(request)}"


def count_limited_attempt(request: HttpRequest, *limits: tuple[str, str]) -> RateLimitUsage | None:
    """Counts one attempt under every (action, key), or under none when one of them is used up."""
    counted: list[RateLimitUsage] = []
    for action, key in limits:
        usage = ratelimit.consume(request, app=APP, action=action, config=RATES, key=key)
        if usage is None:
            for counted_usage in counted:
                counted_usage.rollback()
            return None
        counted.append(usage)
    return RateLimitUsage([single for usage in counted for single in usage.usage])
