"""Pages of a person's address: asking for another, confirming it by the mailed link, having the proof mailed again."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.models import get_emailconfirmation_model
from allauth.account.views import ConfirmEmailView, EmailView, PasswordResetFromKeyView
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from lab.teams.accounts.address_change import belongs_to_another, pending_address
from lab.teams.accounts.address_proof import is_verified, reset_path_key, send_proof_mail
from lab.teams.accounts.mail import has_mail_server
from lab.teams.accounts.models import User


class AddressView(EmailView):  # type: ignore[misc]
    """Only the address that is asked for can be acted on; the account's own is changed by the link and by nothing else."""

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        user = self.request.user
        return {**super().get_context_data(**more), "new_emailaddress": pending_address(user), "verified": is_verified(user)}

    def _get_email_address(self, request: HttpRequest) -> Any:
        address = super()._get_email_address(request)
        return None if address is None or address.primary else address

    def _action_primary(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        return None


@method_decorator([never_cache, login_not_required], name="dispatch")
class ConfirmView(ConfirmEmailView):  # type: ignore[misc]
    """The link of a change. It works for who is signed in to the account that asked for it."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        confirmation = get_emailconfirmation_model().from_key(kwargs["key"])
        if confirmation is not None and confirmation.email_address.user_id != request.user.pk:
            return TemplateResponse(request, "account/email_confirm.html", {"elsewhere": True, "email": confirmation.email_address.email}, status=403)
        answer: HttpResponse = super().dispatch(request, *args, **kwargs)
        return answer

    def get_object(self, queryset: Any = None) -> Any:
        confirmation = super().get_object(queryset)
        if confirmation.email_address.primary:
            raise Http404
        return confirmation

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**more)
        return {**context, "can_confirm": context["can_confirm"] and not belongs_to_another(self.object.email_address)}

    def respond(self, success: bool) -> HttpResponse:
        """An account that was never proved is proved next: the person has just shown that they read the address's mail."""
        user: Any = self.request.user
        user.refresh_from_db()
        if success and has_mail_server() and not is_verified(user):
            return redirect(get_adapter(self.request).get_reset_password_from_key_url(reset_path_key(user)))
        return redirect("account_email")


@require_POST
def send_proof(request: HttpRequest) -> HttpResponse:
    """Mails the link by which the person proves their address."""
    user: Any = request.user
    assert isinstance(user, User)
    if send_proof_mail(request, user):
        messages.success(request, f"A link was sent to {user.email}. Open it and set your password to verify the address.")
    elif is_verified(user):
        messages.info(request, "Your address is already verified.")
    elif not has_mail_server():
        messages.error(request, "This lab has no mail server, so addresses cannot be verified.")
    else:
        messages.error(request, "A link was sent less than three minutes ago. Check your e-mail and spam folder before you request another.")
    return redirect("account")


class ChoosePasswordView(PasswordResetFromKeyView):  # type: ignore[misc]
    """Says before the password changes what falls with it."""

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        return {**super().get_context_data(**more), "unproved": self.reset_user is not None and not is_verified(self.reset_user)}
