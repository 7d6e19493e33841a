"""What allauth asks the lab: who registers (nobody), how often passwords may be tried, when an address is confirmed, what links in mails name."""

import logging
from ipaddress import ip_address
from smtplib import SMTPException
from typing import Any, ClassVar

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from lab.teams.accounts.address_change import change_address
from lab.teams.accounts.addresses import build_absolute_url
from lab.teams.accounts.throttling import count_password, forget_attempts

log = logging.getLogger(__name__)
UNKNOWN_ADDRESS = "0.0.0.0"  # of a request over a unix socket


TOO_MANY = (
    "Too many failed attempts to sign in. Try again in five minutes, use a passkey, use a browser you have signed in with before, "
    "or reset your password by mail."
)
TOO_MANY_CODES = "Too many wrong codes. Try again in five minutes, use a security key, or sign in with a browser you have signed in with before."


class ClosedRegistrationAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    error_messages: ClassVar[dict[str, Any]] = {
        **DefaultAccountAdapter.error_messages,
        "too_many_login_attempts": TOO_MANY,
        "too_many_codes": TOO_MANY_CODES,
    }

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Counts the attempt; allauth takes it back when it succeeds. Raises ValidationError when there were too many."""
        self._login_failed_rl_usage = count_password(request, str(credentials.get("email") or credentials.get("username") or ""))
        if self._login_failed_rl_usage is None:
            raise self.validation_error("too_many_login_attempts")

    def _delete_login_attempts_cached_email(self, request: HttpRequest, **credentials: Any) -> None:
        forget_attempts(request, str(credentials.get("email", "")))

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        return change_address(request, email_address)

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def is_safe_url(self, url: str) -> bool:
        """Only paths of this lab: no page sends a person elsewhere because its address says so."""
        return url_has_allowed_host_and_scheme(url, allowed_hosts=None)

    def get_client_ip(self, request: HttpRequest) -> str:
        """What the web server says; it knows which proxies it trusts."""
        address = str(request.META.get("REMOTE_ADDR", ""))
        try:
            return str(ip_address(address))
        except ValueError:
            return UNKNOWN_ADDRESS

    def get_reset_password_from_key_url(self, key: str) -> str:
        """By LAB_URL, not by the Host header of whoever asks for somebody's reset."""
        path = reverse("account_reset_password_from_key", kwargs={"uidb36": "UID", "key": "KEY"})
        return build_absolute_url(path.replace("UID-KEY", key))

    def get_email_confirmation_url(self, request: HttpRequest, emailconfirmation: Any) -> str:
        return build_absolute_url(reverse("account_confirm_email", args=[emailconfirmation.key]))

    def format_email_subject(self, subject: str) -> str:
        return f"Policy Lab: {subject}"

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """A mail server that is away must not turn a page into an error, nor tell by it which addresses have an account."""
        try:
            super().send_mail(template_prefix, email, context)
        except (OSError, SMTPException) as error:
            log.error("a mail (%s) could not be sent: %s", template_prefix, error)
