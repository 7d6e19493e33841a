"""Telling people: each person once per event, by the channels their rules name, and nobody who may not know of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from lab.labelling.labels.people import open_to
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.accounts.permissions import TABLE, is_role_allowed
from lab.training.runs.publisher import publish_message
from lab.watching.alerts.chart_marks import store_alert_marks
from lab.watching.alerts.events import AlertEvent, is_event_for_rule
from lab.watching.alerts.kinds import KINDS
from lab.watching.alerts.models import KEY, SUBJECT, Delivery, Notice, Rule, Webhook

MAX_TEXT = 2000


@dataclass
class RecipientChannels:
    inbox: bool = False
    email: bool = False
    rule: Rule | None = None


def inbox_group(team_id: int, user_id: int) -> str:
    return f"inbox-{team_id}-{user_id}"


def notify_members(
    team: Team, kind: str, subject: str, *, url: str, text: str = "", users: Iterable[User] | None = None, key: str, but: User | None = None
) -> int:
    """Tells ``users`` in their inbox, or (None) whoever has a rule for ``kind``, ``but`` not who did it; returns how many people were told now.

    Telling the same ``key`` again tells only who has not been told. ``url`` is a path of the lab with the team (``team_path``, or ``reverse``
    within a page of the team). Annotators are told only of what their role allows, deactivated people of nothing. Part of the caller's
    transaction. Raises KeyError for an unknown kind.
    """
    KINDS[kind]
    event = AlertEvent(team, kind, key, subject, text, url)
    rules = [rule for rule in Rule.objects.listening(kind).filter(team=team) if is_event_for_rule(rule, event)]
    return dispatch_event(event, rules, None if users is None else [user.pk for user in users], but.pk if but else None)


def dispatch_event(event: AlertEvent, rules: Sequence[Rule], users: Sequence[int] | None = None, but: int | None = None) -> int:
    """Writes the notices and deliveries that ``rules`` (which concern the event) ask for, and of ``users`` whatever their rules say."""
    if not rules and not users:
        return 0
    with transaction.atomic():
        for hook in {rule.webhook_id for rule in rules if rule.webhook_id and rule.owner_id is None}:
            enqueue_webhook_call(event, hook)
        store_alert_marks(event, rules)
        people = collect_recipient_channels(event, rules, users)
        told = create_notices(event, {user: channels for user, channels in people.items() if user != but})
    return len(told)


def collect_recipient_channels(event: AlertEvent, rules: Sequence[Rule], users: Sequence[int] | None) -> dict[int, RecipientChannels]:
    """user → channels. With ``users``, only they."""
    channels_by_user = {user: RecipientChannels(inbox=True) for user in users or ()}
    members = {member.user_id: member for member in list_permitted_members(event, None if users is None else users)}
    for rule in rules:
        for user in members if rule.owner_id is None else [rule.owner_id]:
            if users is None or user in channels_by_user:
                channels = channels_by_user.setdefault(user, RecipientChannels(rule=rule))
                channels.inbox, channels.email, channels.rule = channels.inbox or rule.inbox, channels.email or rule.email, channels.rule or rule
    return {user: channels for user, channels in channels_by_user.items() if user in members and (channels.inbox or channels.email)}


def list_permitted_members(event: AlertEvent, users: Sequence[int] | None) -> list[Membership]:
    """Those who may know of the event: active, in a role the kind is for, and of queues that an annotator may open."""
    roles = TABLE[KINDS[event.kind].permission].roles
    members = event.team.memberships.filter(active=True, user__is_active=True, role__in=roles).select_related("user")
    permitted = list(members if users is None else members.filter(user__in=users))
    return [member for member in permitted if event.queue is None or may_open(member, event.queue.pk)]


def may_open(member: Membership, queue_id: int) -> bool:
    if member.role != Role.ANNOTATOR:
        return True
    return open_to(member.team, member.user, leads=False).filter(pk=queue_id).exists()


def create_notices(event: AlertEvent, people: dict[int, RecipientChannels]) -> list[Notice]:
    """The notices that are new. Two writers at once are told apart by the ids that were kept."""
    known = set(Notice.objects.filter(team=event.team, key=event.key[:KEY], user__in=people).values_list("user_id", flat=True))
    subject, text = one_line(event.subject)[:SUBJECT], event.text.replace("\0", "")[:MAX_TEXT]
    url = event.url if event.url.startswith("/") and not event.url.startswith("//") else ""
    words = {"kind": event.kind, "key": event.key[:KEY], "subject": subject, "text": text, "url": url[:500], "created_at": timezone.now()}
    fresh = [Notice(team=event.team, user_id=user, rule=to.rule, inbox=to.inbox, **words) for user, to in people.items() if user not in known]
    if not fresh:
        return []
    Notice.objects.bulk_create(fresh, ignore_conflicts=True)
    kept = set(Notice.objects.filter(team=event.team, pk__in=[notice.pk for notice in fresh]).values_list("pk", flat=True))
    told = [notice for notice in fresh if notice.pk in kept]
    Delivery.objects.bulk_create(Delivery(team=event.team, notice=notice, key=notice.key) for notice in told if people[notice.user_id].email)
    transaction.on_commit(lambda: wake_inbox_pages(notice for notice in told if notice.inbox))
    return told


def wake_inbox_pages(notices: Iterable[Notice]) -> None:
    for notice in notices:
        publish_message(inbox_group(notice.team_id, notice.user_id), {"type": "notice"})


def enqueue_webhook_call(event: AlertEvent, webhook_id: int) -> None:
    """Queues the request of an enabled webhook, once per key."""
    if not Webhook.objects.filter(pk=webhook_id, team=event.team, enabled=True).exists():
        return
    Delivery.objects.bulk_create([Delivery(team=event.team, webhook_id=webhook_id, key=event.key[:KEY], event=told_of(event))], ignore_conflicts=True)


def told_of(event: AlertEvent) -> dict[str, str]:
    """What a webhook learns; ``url`` becomes absolute when it is sent."""
    text = event.text.replace("\0", "")[:MAX_TEXT]
    return {"kind": event.kind, "subject": one_line(event.subject)[:SUBJECT], "text": text, "url": event.url, "at": event.at.isoformat()}


def one_line(text: str) -> str:
    """Without line breaks and control characters: subjects become mail headers."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def list_alert_managers(team: Team) -> list[User]:
    """Those who may set the team's rules and webhooks."""
    members = team.memberships.filter(Q(active=True, user__is_active=True)).select_related("user")
    return [member.user for member in members if is_role_allowed(member.role, "alerts.manage")]
