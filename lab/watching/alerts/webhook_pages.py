"""Webhooks of the team: made, tested, given a new secret; and the log of what was sent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.lib.outgoing import parse_target
from lab.lib.refusals import Refusal
from lab.teams.accounts.requests import LabRequest
from lab.watching.alerts import deliveries, hooks
from lab.watching.alerts.models import Delivery, DeliveryState, Webhook

LOGGED = 20  # deliveries a webhook's page shows
PAGE = 100


class WebhookForm(forms.Form):
    name = forms.CharField(label="Name", max_length=80, error_messages={"required": "Give it a name, such as Slack."})
    url = forms.CharField(
        label="Address",
        max_length=1000,
        help_text="URL that receives the messages. It must be on the public internet, unless the lab's operator allows others.",
        widget=forms.TextInput(
            attrs={"inputmode": "url", "autocomplete": "off", "spellcheck": "false", "placeholder": "https://hooks.example.org/…"}
        ),
        error_messages={"required": "Enter a URL that begins with https://."},
    )
    enabled = forms.BooleanField(label="Enabled", required=False, initial=True)

    def __init__(self, *arguments: Any, hook: Webhook | None = None, **more: Any) -> None:
        """``hook``: the webhook that is changed; its address is not shown again, and stays when none is written."""
        super().__init__(*arguments, **more)
        self.shown = hook.shown if hook else ""
        if hook:
            field = self.fields["url"]
            field.required, field.widget.attrs["placeholder"] = False, hook.shown
            field.help_text = f"Stored encrypted and shown as {hook.shown}. Enter a new one to change it; leave empty to keep it."

    def clean_url(self) -> str:
        url = str(self.cleaned_data["url"])
        if url in ("", self.shown):
            return ""
        try:
            parse_target(url)
        except Refusal as error:
            raise forms.ValidationError(f"{str(error)[0].upper()}{str(error)[1:]}.") from None
        return url


def find_webhook(request: LabRequest, webhook_id: int) -> Webhook:
    return get_object_or_404(Webhook.objects.filter(team=request.team).select_related("team"), pk=webhook_id)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def create_webhook(request: LabRequest) -> HttpResponse:
    form = WebhookForm(request.POST if request.method == "POST" else None)
    if form.is_valid() and (why := hooks.explain_webhook_limit(request.team)):
        form.add_error(None, why)
    if not form.is_valid():
        return render(request, "alerts/webhook_new.html", {"room": "alerts", "tab": "team", "form": form})
    hook, secret = hooks.create_webhook(request.team, request.user, form.cleaned_data)
    return render_webhook_page(request, hook, secret=secret)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def edit_webhook(request: LabRequest, webhook_id: int) -> HttpResponse:
    hook = find_webhook(request, webhook_id)
    form = WebhookForm(request.POST, hook=hook) if request.method == "POST" else None
    if form is None or not form.is_valid():
        return render_webhook_page(request, hook, form=form)
    hooks.update_webhook(hook, form.cleaned_data)
    messages.success(request, "Webhook saved.")
    return redirect("webhook", hook.pk)


def render_webhook_page(request: LabRequest, hook: Webhook, form: WebhookForm | None = None, secret: str = "") -> HttpResponse:
    """``secret`` is in this answer and in no other."""
    form = form or WebhookForm(initial={"name": hook.name, "enabled": hook.enabled}, hook=hook)
    log = hook.deliveries.order_by("-created_at")
    context: dict[str, Any] = {"room": "alerts", "tab": "team", "hook": hook, "form": form, "secret": secret}
    return render(request, "alerts/webhook.html", {**context, "log": log[:LOGGED], "more": log.count() > LOGGED, "used": hook.rules.count()})


@require_POST
def send_test_delivery(request: LabRequest, webhook_id: int) -> HttpResponse:
    hook = find_webhook(request, webhook_id)
    delivery = deliveries.send_webhook_test(hook)
    if delivery.state == DeliveryState.DELIVERED:
        messages.success(request, f"Test delivered: response {delivery.status}.")
    else:
        messages.error(request, f"Test failed: {delivery.problem}.")
    return redirect("webhook", hook.pk)


@never_cache
@require_POST
def rotate_webhook_secret(request: LabRequest, webhook_id: int) -> HttpResponse:
    hook = find_webhook(request, webhook_id)
    return render_webhook_page(request, hook, secret=hooks.rotate_webhook_secret(hook))


@require_POST
def delete_webhook(request: LabRequest, webhook_id: int) -> HttpResponse:
    hook = find_webhook(request, webhook_id)
    hooks.delete_webhook(hook)
    messages.success(request, f"Webhook {hook.name} and its log were deleted.")
    return redirect("team-alerts")


@require_safe
def list_deliveries(request: LabRequest) -> HttpResponse:
    """Mails and webhook requests of the team, newest first."""
    state = request.GET.get("state", "")
    rows = Delivery.objects.of(request.team).select_related("webhook", "notice", "notice__user").order_by("-created_at", "pk")
    if state in DeliveryState.values:
        rows = rows.filter(state=state)
    log = Paginator(rows, PAGE).get_page(request.GET.get("page"))
    return render(
        request, "alerts/deliveries.html", {"room": "alerts", "tab": "deliveries", "log": log, "state": state, "states": DeliveryState.values}
    )


@require_POST
def resend_delivery(request: LabRequest, delivery_id: UUID) -> HttpResponse:
    delivery = Delivery.objects.of(request.team).filter(pk=delivery_id).first()
    if delivery is None:
        raise Http404("no such delivery")
    if deliveries.requeue_delivery(delivery.pk, request.team.pk):
        messages.success(request, "It will be sent again in a few seconds, with the same id.")
    else:
        messages.info(request, "It is already waiting to be sent." if delivery.webhook_id else "E-mails cannot be sent again manually.")
    return redirect("webhook", delivery.webhook_id) if delivery.webhook_id else redirect("deliveries")
