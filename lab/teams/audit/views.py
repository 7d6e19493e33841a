"""The page of the audit log, one entry, and the log as a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_htmx.http import push_url

from lab.lib.costly import limit_costly_requests
from lab.lib.downloads import stream_attachment
from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.models import Team, User
from lab.teams.audit import links
from lab.teams.audit.actions import ACTIONS
from lab.teams.audit.entry_pages import iterate_entry_batches, read_page
from lab.teams.audit.exports import FORMATS
from lab.teams.audit.filters import GROUPS, NOBODY, AuditQuery, group_of, list_action_choices, select_entries
from lab.teams.audit.models import Entry, RequestChannel
from lab.teams.audit.recording import record_audit_entry

TONES = {"session.fail": "warn", "run.kill": "bad"}  # what an admin looks twice at
ENDS = ("delete", "revoke", "remove", "deactivate", "transfer", "recall")


@dataclass(frozen=True)
class EntryRow:
    """An entry with its words. ``link``: the object, while it exists; ``same``: everything that was done to it."""

    entry: Entry
    words: str
    tone: str
    kind: str
    link: str
    same: str
    details: str


def team_of(request: HttpRequest) -> Team:
    return request.team  # type: ignore[attr-defined,no-any-return]


@require_safe
def show_audit_log(request: HttpRequest) -> HttpResponse:
    """``?q= who= did= kind= object= via= address= since= until=`` and ``before=`` or ``after=`` an entry's id."""
    team = team_of(request)
    query = AuditQuery.read(request.GET)
    entries, problems = select_entries(team, query)
    page = read_page(entries, parse_whole_number(request.GET.get("before")) or 0, parse_whole_number(request.GET.get("after")) or 0)
    members = list_possible_actors(team)
    context = {
        "room": "audit",
        "query": query,
        "chips": build_filter_chips(query, members),
        "known_kind": query.kind in links.PLACES,
        "problems": problems,
        "page": page,
        "rows": build_shown_entries(team, page.entries),
        "older": f"{query.query()}&before={page.older}" if page.older else "",
        "newer": f"{query.query()}&after={page.newer}" if page.newer else "",
        "filtered": bool(query.values),
        "people": members,
        "nobody": NOBODY,
        "groups": list_action_choices(),
        "kinds": sorted((kind, link.words) for kind, link in links.PLACES.items()),
        "ways": RequestChannel.choices,
        "formats": [(name, export_format.label) for name, export_format in FORMATS.items()],
    }
    if request.headers.get("HX-Request"):
        return push_url(render(request, "audit/audit.html#table", context), reverse("audit") + query.query().removesuffix("?"))
    return render(request, "audit/audit.html", context)


@require_safe
def show_audit_entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    """One entry, by its own address."""
    team = team_of(request)
    entry = get_object_or_404(Entry.objects.of(team).defer("words"), pk=entry_id)
    return render(request, "audit/entry.html", {"room": "audit", "row": build_shown_entries(team, [entry])[0]})


@require_safe
@limit_costly_requests()
def export_audit_log(request: HttpRequest, form: str) -> Any:
    """Everything the filters of the address select, as ``csv`` or ``jsonl``."""
    if form not in FORMATS:
        raise Http404
    team, query, kind = team_of(request), AuditQuery.read(request.GET), FORMATS[form]
    entries, _ = select_entries(team, query)
    newest = Entry.objects.of(team).order_by("-pk").values_list("pk", flat=True).first() or 0
    if request.method == "GET":
        record_audit_entry("audit.export", team, format=form, filters=query.values)
    name = f"audit-{team.slug}-{timezone.now():%Y%m%d-%H%M%S}.{form}"
    return stream_attachment(request, kind.write(iterate_entry_batches(entries.filter(pk__lte=newest))), name, kind.media_type)


def list_possible_actors(team: Team) -> list[User]:
    """Whose acts one can ask for: all who are or were in the team."""
    return list(User.objects.filter(memberships__team=team).order_by("email"))


def build_filter_chips(query: AuditQuery, members: list[User]) -> list[tuple[str, str]]:
    """(words, the address without it) of each filter that is set."""
    person = next((member.email for member in members if str(member.pk) == query.who), f"person {query.who}")
    words = {
        "q": f"“{query.q}”",
        "who": "nobody signed in" if query.who == NOBODY else person,
        "did": ACTIONS.get(query.did) or GROUPS.get(query.did, query.did),
        "kind": links.describe_object_kind(query.kind),
        "object": f"id {query.object}",
        "via": f"via {query.via}",
        "address": f"from {query.address}",
        "since": f"since {query.since}",
        "until": f"until {query.until}",
    }
    return [(words[name], query.query(**{name: ""})) for name in query.values]


def build_shown_entries(team: Team, entries: list[Entry]) -> list[EntryRow]:
    addresses = links.find_object_addresses(team, entries)
    return [one_shown(entry, addresses.get((entry.kind, entry.object_id), "")) for entry in entries]


def one_shown(entry: Entry, link: str) -> EntryRow:
    tone = TONES.get(entry.action, "bad" if entry.action.partition(".")[2] in ENDS else "")
    same = AuditQuery(kind=entry.kind, object=entry.object_id).query() if entry.object_id else ""
    details = json.dumps(entry.details, ensure_ascii=False, indent=2, sort_keys=True) if entry.details else ""
    words = ACTIONS.get(entry.action, entry.action)
    return EntryRow(entry, words, tone, links.describe_object_kind(entry.kind) if entry.kind else group_of(entry.action), link, same, details)
