"""Sending what waits: each delivery is leased before it is sent, tried again with growing pauses, and given up in the end.

A lease is the time of the next try moved on by a transaction of its own. A worker that dies while it sends leaves a delivery that is tried
again, under the same id, by which a receiver knows it.
"""

from __future__ import annotations

import json
import logging
import random
import time
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from lab.lib import outgoing
from lab.lib.clock import database_now
from lab.lib.outgoing import RequestOutcome
from lab.lib.sealed import UnsealError
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.teams.accounts.mail import has_mail_server
from lab.watching.alerts import addresses, mails, signatures
from lab.watching.alerts.kinds import WEBHOOK
from lab.watching.alerts.models import Delivery, DeliveryState, Notice, Webhook
from lab.watching.alerts.notices import list_alert_managers, notify_members

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)  # longer than any one sending takes
TIMEOUT = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 6 * 3600.0
MAX_TRIES = 10  # over about a day
GIVE_UP = timedelta(days=3)  # a webhook that has failed for so long is disabled
ROUND_SECONDS = 20.0
AT_ONCE = 50


def send_due_deliveries() -> None:
    """One round: what is due, one after the other, for at most ROUND_SECONDS."""
    began = time.monotonic()
    for _ in range(AT_ONCE):
        taken = lease_next_delivery()
        if taken is None or time.monotonic() - began > ROUND_SECONDS:
            return
        send_delivery(taken)


def lease_next_delivery() -> Delivery | None:
    """The delivery that has waited longest, leased; None when nothing is due."""
    now = database_now()
    with transaction.atomic():
        due = Delivery.across_teams.select_for_update(skip_locked=True, of=("self",)).filter(state=DeliveryState.WAITING, next_try__lte=now)
        delivery = due.select_related("team", "webhook", "notice", "notice__user", "notice__rule").order_by("next_try").first()
        if delivery is None:
            return None
        delivery.tries += 1
        Delivery.objects.same_row(delivery).update(tries=delivery.tries, next_try=now + LEASE, tried_at=now)
    return delivery


def send_delivery(delivery: Delivery) -> RequestOutcome:
    """Sends a leased delivery and writes down what became of it."""
    if not is_delivery_wanted(delivery):
        record_delivery_outcome(
            delivery, RequestOutcome(None, "no longer wanted: the person left, or the webhook is disabled"), DeliveryState.DROPPED
        )
        return RequestOutcome(None, "dropped")
    if delivery.notice is not None and mails.too_many(delivery.notice):
        record_delivery_outcome(
            delivery, RequestOutcome(None, f"more than {mails.AN_HOUR} e-mails to this person within an hour; see the inbox"), DeliveryState.DROPPED
        )
        return RequestOutcome(None, "dropped")
    if delivery.webhook is None and not has_mail_server():
        return keep_unsent(delivery)
    outcome = mails.send_notice_mail(delivery) if delivery.webhook is None else post_to_webhook(delivery, delivery.webhook)
    state = DeliveryState.DELIVERED if outcome.taken else DeliveryState.FAILED if delivery.tries >= MAX_TRIES else DeliveryState.WAITING
    record_delivery_outcome(delivery, outcome, state)
    if delivery.webhook is not None:
        update_webhook_health(delivery.webhook, outcome)
    return outcome


def keep_unsent(delivery: Delivery) -> RequestOutcome:
    """Without a mail server a mail becomes a file that reaches nobody: it is not delivered, and what it says stands in the inbox."""
    outcome = mails.send_notice_mail(delivery)
    if outcome.taken:
        outcome = RequestOutcome(None, "not sent: the lab has no mail server (LAB_EMAIL_URL); see the inbox")
    if delivery.notice is not None:
        Notice.objects.same_row(delivery.notice).update(inbox=True)
    record_delivery_outcome(delivery, outcome, DeliveryState.DROPPED)
    return outcome


def is_delivery_wanted(delivery: Delivery) -> bool:
    if delivery.webhook is not None:
        return delivery.webhook.enabled or delivery.event.get("kind") == "test"
    user = delivery.notice.user if delivery.notice else None
    return user is not None and user.is_active and delivery.team.memberships.filter(user=user, active=True).exists()


def record_delivery_outcome(delivery: Delivery, outcome: RequestOutcome, state: DeliveryState) -> None:
    next_try = Now() + timedelta(seconds=compute_retry_pause(delivery.tries))
    Delivery.objects.same_row(delivery).update(state=state, status=outcome.status, problem=outcome.problem[:300], next_try=next_try)


def compute_retry_pause(tries: int) -> float:
    """Seconds after the given number of tries: 30 s, 1 min, 2 min … 6 h, each between half and all of it, so that many do not come at once."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 1)) * random.uniform(0.5, 1.0))


def post_to_webhook(delivery: Delivery, hook: Webhook) -> RequestOutcome:
    try:
        url, keys = addresses.address_of(hook), signatures.secrets_of(hook)
    except UnsealError as error:
        return RequestOutcome(None, str(error))
    body, timestamp = body_of(delivery), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "Policy-Lab-Delivery": str(delivery.pk),
        "Policy-Lab-Timestamp": str(timestamp),
        "Policy-Lab-Signature": signatures.sign_webhook_body(keys, timestamp, body),
    }
    return outgoing.post_to_address(url, body, headers, TIMEOUT)


def body_of(delivery: Delivery) -> bytes:
    url = str(delivery.event.get("url") or "")
    told = {"id": str(delivery.pk), "team": delivery.team.slug, **delivery.event, "url": build_absolute_url(url) if url else ""}
    return json.dumps(told, separators=(",", ":")).encode()


def update_webhook_health(hook: Webhook, outcome: RequestOutcome) -> None:
    """Remembers since when a webhook fails, and switches it off when that is too long ago."""
    now = database_now()
    if outcome.taken:
        Webhook.objects.same_row(hook).update(failing_since=None, delivered_at=now)
        return
    Webhook.objects.same_row(hook).filter(failing_since=None).update(failing_since=now)
    why = f"failed since {now - GIVE_UP:%Y-%m-%d} or longer; last error: {outcome.problem}"[:200]
    off = Webhook.objects.same_row(hook).filter(enabled=True, failing_since__lt=now - GIVE_UP).update(enabled=False, disabled_why=why)
    if off:
        log.warning("webhook %s of team %s is disabled: %s", hook.pk, hook.team_id, why)
        url = team_path(hook.team, "webhook", hook.pk)
        people = list_alert_managers(hook.team)
        notify_members(
            hook.team, WEBHOOK, f"Webhook {hook.name} is disabled", url=url, text=why, users=people, key=f"webhook:{hook.pk}:off:{now:%Y%m%d%H}"
        )


def requeue_delivery(pk: UUID, team_id: int) -> bool:
    """Puts a delivery that ended back in line; False for one that waits anyway or is not there."""
    ended = Delivery.objects.filter(pk=pk, team=team_id, webhook__isnull=False).exclude(state=DeliveryState.WAITING)
    return ended.update(state=DeliveryState.WAITING, tries=0, next_try=Now(), problem="") == 1


def send_webhook_test(hook: Webhook) -> Delivery:
    """Sends a test at once and returns it with its outcome; tried once."""
    event = {"kind": "test", "subject": "Test of this webhook", "text": "Nothing has happened.", "at": timezone.now().isoformat()}
    event["url"] = team_path(hook.team, "webhook", hook.pk)
    now = database_now()
    delivery = Delivery.objects.create(
        team=hook.team,
        webhook=hook,
        key=f"test:{time.time_ns()}",
        event=event,
        tries=MAX_TRIES,
        tried_at=now,
        next_try=now + LEASE,
    )
    send_delivery(delivery)
    delivery.refresh_from_db()
    return delivery
