"""Signing in as a person does: forms, codes of an authenticator app, the mails that were sent."""

from __future__ import annotations

import re
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value, yield_hotp_counters_from_time
from django.core import mail
from django.test import Client

from lab.teams.accounts.models import User

PASSWORD = "correct horse battery"
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


def sign_in(client: Client, email: str, password: str = PASSWORD, **more: str) -> Any:
    return client.post("/accounts/login/", {"login": email, "password": password, **more})


def code_of(secret: str = SECRET) -> str:
    """What the person's authenticator app shows now."""
    accepted = list(yield_hotp_counters_from_time())  # the oldest first: that one is refused as soon as the half-minute ends
    return format_hotp_value(hotp_value(secret, accepted[len(accepted) // 2]))


def give_app(user: User) -> Authenticator:
    """An authenticator app for the person, with recovery codes, without going through the pages."""
    app = TOTP.activate(user, SECRET).instance
    RecoveryCodes.activate(user)
    return app


def confirm(client: Client, password: str = PASSWORD) -> None:
    """Enters the password once more, as changes of the account's protection ask for."""
    assert client.post("/accounts/reauthenticate/", {"password": password}).status_code == 302


def link_in_the_mail(to: str) -> str:
    """The path of the only link in the newest mail to ``to``; it stands under the lab's own address."""
    [text] = [str(one.body) for one in mail.outbox if one.to == [to]][-1:]
    [found] = re.findall(r"http://127\.0\.0\.1:8000(/\S+)", text)
    return str(found)


def choose_password(client: Client, link: str, password: str) -> Any:
    """Opens the mailed link and chooses a password behind it."""
    form = client.get(link)
    assert form.status_code == 302, form.content.decode()
    answer = client.post(form.headers["Location"], {"password1": password, "password2": password})
    assert answer.status_code == 302, answer.content.decode()
    return answer
