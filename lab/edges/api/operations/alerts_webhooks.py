"""Webhooks of the team, and the log of what was sent."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.inbox import select_older_rows
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows
from lab.edges.api.problems import ApiProblem, make_validation_problem
from lab.edges.api.queue_bodies import of_form
from lab.lib.numbers import MAX_ID
from lab.watching.alerts import deliveries, hooks
from lab.watching.alerts.models import Delivery, Webhook
from lab.watching.alerts.webhook_pages import WebhookForm

router = make_router("Inbox and alerts")


class WebhookOut(Schema):
    id: int
    name: str
    url: str = Field(
        description="Its host and the end of a long path; the rest is stored encrypted and never shown.", examples=["https://example.org/…dK3f"]
    )
    enabled: bool
    disabled_why: str = Field(description="Why the lab disabled it.")
    failing_since: datetime | None
    delivered_at: datetime | None = Field(description="Time of the last successful delivery.")
    created_by: Person | None
    created_at: datetime
    rules: int = Field(description="Number of team rules that use it.")


class WebhookMade(WebhookOut):
    secret: str = Field(description="Signs the requests. It is in this response only: store it.")


class WebhookIn(RequestBody):
    name: str = Field(max_length=80, examples=["Slack"])
    url: str = Field(
        max_length=1000, description="On the public internet, unless the lab's operator allows more.", examples=["https://example.org/hook"]
    )
    enabled: bool = True


class WebhookChange(WebhookIn):
    url: str = Field("", max_length=1000, description="Omitted, or as the API returned it: unchanged.", examples=["https://example.org/hook"])


class DeliveryOut(Schema):
    id: UUID = Field(description="Also in the request's body; the same in every attempt.")
    webhook: int | None = Field(description="null for an e-mail.")
    to: str = Field(description="The webhook's name, or the person's e-mail address.")
    subject: str
    state: str = Field(description="waiting, delivered, failed or dropped.")
    tries: int
    status: int | None = Field(description="HTTP status of the last response.")
    problem: str
    created_at: datetime
    tried_at: datetime | None


def webhook_of(request: HttpRequest, webhook_id: int) -> Webhook:
    rows = Webhook.objects.filter(team=caller_of(request).team).select_related("team", "created_by")
    webhook: Webhook = one_of(rows, webhook_id)
    return webhook


def serialize_webhook(webhook: Webhook) -> dict[str, Any]:
    names = ("name", "enabled", "disabled_why", "failing_since", "delivered_at", "created_at")
    by = serialize_person(webhook.created_by) if webhook.created_by else None
    return {
        **{name: getattr(webhook, name) for name in names},
        "id": webhook.pk,
        "url": webhook.shown,
        "created_by": by,
        "rules": webhook.rules.count(),
    }


def validate_webhook_fields(given: WebhookIn, hook: Webhook | None = None) -> dict[str, Any]:
    """By the form of the browser. Raises ApiProblem naming the fields."""
    form = WebhookForm({name: value if isinstance(value, bool) else str(value) for name, value in given.dict().items()}, hook=hook)
    if not form.is_valid():
        raise make_validation_problem(of_form(form))
    return form.cleaned_data


def serialize_delivery(delivery: Delivery) -> dict[str, Any]:
    names = ("id", "state", "tries", "status", "problem", "created_at", "tried_at")
    to = delivery.webhook.name if delivery.webhook else delivery.notice.user.email if delivery.notice else ""
    subject = delivery.notice.subject if delivery.notice else str(delivery.event.get("subject") or "")
    return {**{name: getattr(delivery, name) for name in names}, "webhook": delivery.webhook_id, "to": to, "subject": subject}


@router.get("/webhooks", auth=require_permission("alerts.manage"), response=list[WebhookOut], summary="Webhooks of the team")
def list_webhooks(request: HttpRequest) -> object:
    """Without their secrets."""
    return [serialize_webhook(webhook) for webhook in Webhook.objects.filter(team=caller_of(request).team).select_related("created_by")]


@router.post("/webhooks", auth=require_permission("alerts.manage"), response={201: WebhookMade}, summary="Create a webhook")
def make_webhook(request: HttpRequest, given: WebhookIn) -> object:
    """Its secret is only in this response. Team rules refer to the webhook by its id."""
    caller, fields = caller_of(request), validate_webhook_fields(given)
    if why := hooks.explain_webhook_limit(caller.team):
        raise ApiProblem("conflict", why)
    webhook, secret = hooks.create_webhook(caller.team, caller.user, fields)
    return Status(201, {**serialize_webhook(webhook), "secret": secret})


@router.put("/webhooks/{int:webhook_id}", auth=require_permission("alerts.manage"), response=WebhookOut, summary="Change a webhook")
def change_webhook(request: HttpRequest, webhook_id: int, given: WebhookChange) -> object:
    """Enabling it again clears the reason why it was disabled."""
    webhook = webhook_of(request, webhook_id)
    hooks.update_webhook(webhook, validate_webhook_fields(given, webhook))
    return serialize_webhook(webhook)


@router.post("/webhooks/{int:webhook_id}/test", auth=require_permission("alerts.manage"), response=DeliveryOut, summary="Send a test request")
def test_webhook(request: HttpRequest, webhook_id: int) -> object:
    """Sent immediately, without retries; the response contains the result."""
    return serialize_delivery(deliveries.send_webhook_test(webhook_of(request, webhook_id)))


@router.post("/webhooks/{int:webhook_id}/secret", auth=require_permission("alerts.manage"), response=WebhookMade, summary="Rotate a webhook's secret")
def rotate_secret(request: HttpRequest, webhook_id: int) -> object:
    """For a day, requests are signed with the old secret, too."""
    webhook = webhook_of(request, webhook_id)
    secret = hooks.rotate_webhook_secret(webhook)
    return {**serialize_webhook(webhook), "secret": secret}


@router.delete("/webhooks/{int:webhook_id}", auth=require_permission("alerts.manage"), response={204: None}, summary="Delete a webhook")
def delete_webhook(request: HttpRequest, webhook_id: int) -> object:
    """Also deletes its log. Rules that use it are kept and notify through their other channels."""
    hooks.delete_webhook(webhook_of(request, webhook_id))
    return Status(204, None)


@router.get("/deliveries", auth=require_permission("alerts.manage"), response=Page[DeliveryOut], summary="E-mails and webhook requests")
def list_deliveries(
    request: HttpRequest,
    after: After,
    limit: Limit,
    state: Literal["", "waiting", "delivered", "failed", "dropped"] = Query("", description="Filter by state."),
    webhook: int | None = Query(None, ge=1, le=MAX_ID, description="Only requests of this webhook."),
) -> object:
    """Newest first. Response bodies are never stored, only the status."""
    every = Delivery.objects.of(caller_of(request).team)
    chosen = {name: value for name, value in {"state": state, "webhook": webhook}.items() if value}
    rows = every.filter(**chosen).select_related("webhook", "notice__user")
    rows = select_older_rows(rows, every, after) if after else rows
    return paginate_rows(list(rows.order_by("-created_at", "pk")[: limit + 1]), limit, lambda row: row.pk, serialize_delivery)


@router.post("/deliveries/{uuid:delivery_id}/again", auth=require_permission("alerts.manage"), response=DeliveryOut, summary="Send again")
def deliver_again(request: HttpRequest, delivery_id: UUID) -> object:
    """A webhook request that has ended is sent again in a few seconds, with the same id."""
    team = caller_of(request).team
    rows = Delivery.objects.of(team).select_related("webhook", "notice__user")
    if not rows.filter(pk=delivery_id).exists():
        raise Http404
    if not deliveries.requeue_delivery(delivery_id, team.pk):
        raise ApiProblem("conflict", "It is already waiting to be sent, or it is an e-mail, which cannot be sent again manually.")
    return serialize_delivery(rows.get(pk=delivery_id))
