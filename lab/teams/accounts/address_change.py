"""Changing the address of an account: asked for on the account page, done by the link that is mailed to the new address, opened while signed in.

The link alone changes nothing: who gets a mail about a change that somebody else asked for cannot be made the owner of that somebody's account.
"""

from __future__ import annotations

from allauth.account.adapter import get_adapter
from allauth.account.forms import AddEmailForm
from allauth.account.internal.flows.email_verification import send_verification_email_to_address, verify_email
from allauth.account.internal.flows.manage_email import emit_email_changed
from allauth.account.models import EmailAddress
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest

from lab.teams.accounts.address_proof import is_verified, own_address
from lab.teams.accounts.mail import has_mail_server
from lab.teams.accounts.models import User


def pending_address(user: User) -> EmailAddress | None:
    """The address the person has asked to change to."""
    return EmailAddress.objects.filter(user=user, primary=False).order_by("pk").last()


def belongs_to_another(address: EmailAddress) -> bool:
    return User.objects.filter(email__iexact=address.email).exclude(pk=address.user_id).exists()


class ChangeForm(AddEmailForm):  # type: ignore[misc]
    """Notes the wanted address and mails the link to it; the account's own row stays as it is."""

    def save(self, request: HttpRequest) -> EmailAddress:
        with transaction.atomic():
            EmailAddress.objects.filter(user=self.user, primary=False).delete()
            address = EmailAddress.objects.create(user=self.user, email=self.cleaned_data["email"].lower())
        send_verification_email_to_address(request, address)
        return address


def change_address(request: HttpRequest, address: EmailAddress) -> bool:
    """Makes ``address`` the account's address. It counts as verified if a mail server took the link there and the old one was verified too: an
    account that was never proved stays so, for whoever set it up may still hold ways into it (lab.teams.accounts.address_proof).
    """
    if address.primary:  # proved by choosing the password, not by this link
        return False
    if belongs_to_another(address):
        words = {"email": address.email}
        get_adapter(request).add_message(request, messages.ERROR, "account/messages/email_confirmation_failed.txt", words)
        return False
    if has_mail_server() and is_verified(address.user):
        return bool(verify_email(request, address))
    with transaction.atomic():
        before = own_address(address.user).first()
        EmailAddress.objects.filter(user=address.user).exclude(pk=address.pk).delete()
        address.primary = True
        address.save(update_fields=["primary"])
        address.user.email = address.email
        address.user.save(update_fields=["email"])
    emit_email_changed(request, before, address)
    return True
