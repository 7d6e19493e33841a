"""Registration is closed: accounts come from the first-start set-up link and from invitations. Mails name the lab by its own address."""

import logging
from ipaddress import ip_address
from smtplib import SMTPException
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from lab.accounts.addresses import absolute

log = logging.getLogger(__name__)
UNKNOWN_ADDRESS = "0.0.0.0"  # of a request over a unix socket


class ClosedRegistration(DefaultAccountAdapter):  # type: ignore[misc]
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
        return absolute(path.replace("UID-KEY", key))

    def get_email_confirmation_url(self, request: HttpRequest, emailconfirmation: Any) -> str:
        return absolute(reverse("account_confirm_email", args=[emailconfirmation.key]))

    def format_email_subject(self, subject: str) -> str:
        return f"Policy Lab: {subject}"

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """A mail server that is away must not turn a page into an error, nor tell by it which addresses have an account."""
        try:
            super().send_mail(template_prefix, email, context)
        except (OSError, SMTPException) as error:
            log.error("a mail (%s) could not be sent: %s", template_prefix, error)
