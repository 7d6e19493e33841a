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
from lab.lib.outgoing import Outcome
from lab.lib.sealed import Unreadable
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
        one = due.select_related("team", "webhook", "notice", "notice__user", "notice__rule").order_by("next_try").first()
        if one is None:
            return None
        one.tries += 1
        Delivery.objects.same_row(one).update(tries=one.tries, next_try=now + LEASE, tried_at=now)
    return one


def send_delivery(one: Delivery) -> Outcome:
    """Sends a leased delivery and writes down what became of it."""
    if not is_delivery_wanted(one):
        record_delivery_outcome(one, Outcome(None, "no longer wanted: the person left, or the webhook is disabled"), DeliveryState.DROPPED)
        return Outcome(None, "dropped")
    if one.notice is not None and mails.too_many(one.notice):
        record_delivery_outcome(
            one, Outcome(None, f"more than {mails.AN_HOUR} e-mails to this person within an hour; see the inbox"), DeliveryState.DROPPED
        )
        return Outcome(None, "dropped")
    if one.webhook is None and not has_mail_server():
        return keep_unsent(one)
    outcome = mails.send_notice_mail(one) if one.webhook is None else post_to_webhook(one, one.webhook)
    state = DeliveryState.DELIVERED if outcome.taken else DeliveryState.FAILED if one.tries >= MAX_TRIES else DeliveryState.WAITING
    record_delivery_outcome(one, outcome, state)
    if one.webhook is not None:
        update_webhook_health(one.webhook, outcome)
    return outcome


def keep_unsent(one: Delivery) -> Outcome:
    """Without a mail server a mail becomes a file that reaches nobody: it is not delivered, and what it says stands in the inbox."""
    outcome = mails.send_notice_mail(one)
    if outcome.taken:
        outcome = Outcome(None, "not sent: the lab has no mail server (LAB_EMAIL_URL); see the inbox")
    if one.notice is not None:
        Notice.objects.same_row(one.notice).update(inbox=True)
    record_delivery_outcome(one, outcome, DeliveryState.DROPPED)
    return outcome


def is_delivery_wanted(one: Delivery) -> bool:
    if one.webhook is not None:
        return one.webhook.enabled or one.event.get("kind") == "test"
    user = one.notice.user if one.notice else None
    return user is not None and user.is_active and one.team.memberships.filter(user=user, active=True).exists()


def record_delivery_outcome(one: Delivery, outcome: Outcome, state: DeliveryState) -> None:
    next_try = Now() + timedelta(seconds=compute_retry_pause(one.tries))
    Delivery.objects.same_row(one).update(state=state, status=outcome.status, problem=outcome.problem[:300], next_try=next_try)


def compute_retry_pause(tries: int) -> float:
    """Seconds after the given number of tries: 30 s, 1 min, 2 min … 6 h, each between half and all of it, so that many do not come at once."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 1)) * random.uniform(0.5, 1.0))


def post_to_webhook(one: Delivery, hook: Webhook) -> Outcome:
    try:
        url, keys = addresses.address_of(hook), signatures.secrets_of(hook)
    except Unreadable as error:
        return Outcome(None, str(error))
    body, timestamp = body_of(one), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "Policy-Lab-Delivery": str(one.pk),
        "Policy-Lab-Timestamp": str(timestamp),
        "Policy-Lab-Signature": signatures.sign_webhook_body(keys, timestamp, body),
    }
    return outgoing.post_to_address(url, body, headers, TIMEOUT)


def body_of(one: Delivery) -> bytes:
    url = str(one.event.get("url") or "")
    told = {"id": str(one.pk), "team": one.team.slug, **one.event, "url": build_absolute_url(url) if url else ""}
    return json.dumps(told, separators=(",", ":")).encode()


def update_webhook_health(hook: Webhook, outcome: Outcome) -> None:
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
    made = Delivery.objects.create(
        team=hook.team,
        webhook=hook,
        key=f"test:{time.time_ns()}",
        event=event,
        tries=MAX_TRIES,
        tried_at=now,
        next_try=now + LEASE,
    )
    send_delivery(made)
    made.refresh_from_db()
    return made
