"""Registration is closed: accounts come from the first-start set-up link and from invitations."""

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class ClosedRegistration(DefaultAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False
