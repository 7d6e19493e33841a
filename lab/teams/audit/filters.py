"""What the address of the audit log asks for: filters that can be used, and words for those that cannot."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.postgres.search import SearchQuery
from django.db.models import Q, QuerySet

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Problem
from lab.teams.accounts.models import Team
from lab.teams.audit.actions import ACTIONS
from lab.teams.audit.models import Entry, RequestChannel

NOBODY = "lab"  # value of ``who`` for what nobody did: workers, and people without an account
MOST_WORDS = 8
SLACK = 1000  # ids: entries of transactions that ran side by side are numbered in another order than they are dated
GROUPS = {  # beginning of an action → words
    "session": "Signing in and out",
    "password": "Passwords",
    "email": "E-mail addresses",
    "mfa": "Second factors",
    "team": "Team",
    "member": "Members",
    "join": "Join requests",
    "project": "Projects",
    "token": "Access tokens",
    "run": "Runs",
    "worker": "Workers",
    "recipe": "Recipes",
    "ablation": "Ablations",
    "sweep": "Sweeps",
    "reward": "Reward functions",
    "rollouts": "Rollouts",
    "metrics": "Metrics",
    "queue": "Queues",
    "feed": "Feeds",
    "label": "Labels",
    "dataset": "Datasets",
    "task": "Tasks",
    "quota": "Quotas",
    "alert": "Alerts",
    "webhook": "Webhooks",
    "policy": "Policies",
    "secret": "Secrets",
    "audit": "Audit log",
    "admin": "Operators",
}


def group_of(action: str) -> str:
    return action.partition(".")[0]


def list_action_choices() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """For the filter: each group with its words and its actions. A group without words shows its name, so that nothing new is missing."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for action, words in ACTIONS.items():
        groups.setdefault(group_of(action), []).append((action, words))
    return [(group, GROUPS.get(group, group.capitalize()), actions) for group, actions in groups.items()]


@dataclass(frozen=True)
class AuditQuery:
    """The filters as they stand in the address; "" where nothing is asked. ``object`` is an id and needs ``kind``."""

    q: str = ""
    who: str = ""  # a person's id, or NOBODY
    did: str = ""  # an action, or a group of actions
    kind: str = ""
    object: str = ""
    via: str = ""
    address: str = ""
    since: str = ""
    until: str = ""

    @classmethod
    def read(cls, query: Mapping[str, Any]) -> AuditQuery:
        return cls(**{field.name: str(query.get(field.name, "")).replace("\0", "").strip()[:200] for field in fields(cls)})

    @property
    def values(self) -> dict[str, str]:
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}

    def query(self, **changes: str) -> str:
        """The query string with some filters changed; "" takes one off."""
        parameters = {**self.values, **changes}
        return f"?{urlencode({name: value for name, value in parameters.items() if value})}"


def select_entries(team: Team, query: AuditQuery) -> tuple[QuerySet[Entry], list[Problem]]:
    """The team's entries that are asked for, in no order."""
    problems: list[Problem] = []
    entries = Entry.objects.of(team).defer("words")
    for read in (parse_actor_filter, parse_action_filter, parse_object_filter, parse_origin_filter, parse_search_filter):
        condition = read(query, problems)
        if condition:
            entries = entries.filter(condition)
    start, end = (parse_day_filter(query, name, problems) for name in ("since", "until"))
    return filter_entries_by_time(team, entries, start, end + timedelta(days=1) if end and end.year < 9999 else None), problems


def parse_actor_filter(query: AuditQuery, problems: list[Problem]) -> Q | None:
    if query.who == NOBODY:
        return Q(actor=None)
    if not query.who:
        return None
    if (actor := parse_whole_number(query.who)) is not None:
        return Q(actor_id=actor)
    problems.append(Problem("who", "Person: unknown. Choose someone from the list."))
    return None


def parse_action_filter(query: AuditQuery, problems: list[Problem]) -> Q | None:
    if not query.did:
        return None
    actions = [action for action in ACTIONS if query.did in (action, group_of(action))]
    if not actions:
        problems.append(Problem("did", f"Action: “{query.did}” is unknown. Choose one from the list."))
        return None
    return Q(action=actions[0]) if len(actions) == 1 else Q(action__in=actions)


def parse_object_filter(query: AuditQuery, problems: list[Problem]) -> Q | None:
    if query.object and not query.kind:
        problems.append(Problem("object", "Object: an id needs a kind. Choose one, for example run or queue."))
        return None
    if not query.kind:
        return None
    return Q(kind=query.kind, object_id=query.object) if query.object else Q(kind=query.kind)


def parse_origin_filter(query: AuditQuery, problems: list[Problem]) -> Q | None:
    condition = Q()
    if query.via in RequestChannel.values:
        condition &= Q(via=query.via)
    elif query.via:
        problems.append(Problem("via", f"Via: “{query.via}” is none of {', '.join(RequestChannel.values)}."))
    if query.address:
        try:
            condition &= Q(address=str(ipaddress.ip_address(query.address)))
        except ValueError:
            problems.append(Problem("address", f"Address: “{query.address}” is not an IP address. Enter one like 192.0.2.7 or 2001:db8::1."))
    return condition or None


def parse_search_filter(query: AuditQuery, problems: list[Problem]) -> Q | None:
    """Each word begins one of the entry's words."""
    if not query.q:
        return None
    words = re.findall(r"[^\W_]+", query.q)[:MOST_WORDS]
    if not words:
        problems.append(Problem("q", "Search: no words. Enter letters or digits of a name, an address or an id."))
        return None
    return Q(words=SearchQuery(" & ".join(f"'{word}':*" for word in words), search_type="raw", config="simple"))


def parse_day_filter(query: AuditQuery, name: str, problems: list[Problem]) -> datetime | None:
    text = getattr(query, name)
    if not text:
        return None
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        problems.append(Problem(name, f"{'From' if name == 'since' else 'To'}: “{text}” is not a date. Enter it as 2026-11-30."))
        return None


def filter_entries_by_time(team: Team, entries: QuerySet[Entry], start: datetime | None, end: datetime | None) -> QuerySet[Entry]:
    """Between two moments. Ids stand in for moments first, so that the walk from the newest begins at the right place."""
    every = Entry.objects.of(team)
    if start is not None:
        first = every.filter(at__gte=start).order_by("at").values_list("pk", flat=True).first()
        entries = entries.filter(at__gte=start, pk__gte=first - SLACK) if first is not None else entries.none()
    if end is not None:
        last = every.filter(at__lt=end).order_by("-at").values_list("pk", flat=True).first()
        entries = entries.filter(at__lt=end, pk__lte=last + SLACK) if last is not None else entries.none()
    return entries
