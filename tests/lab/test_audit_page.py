"""The page of the audit log: filters, keyset pages, single entries, exports, and that it stays fast."""

import csv
import io
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.audit.entry_pages import PAGE
from lab.teams.audit.filters import AuditQuery, select_entries
from lab.teams.audit.models import Entry, RequestChannel
from lab.teams.audit.recording import escape_unstorable_text, record_audit_entry
from lab.training.runs.launch import launch_recipe
from tests.conftest import make_member
from tests.hostile import PAYLOADS

URL = "/audit/"


def add(team: Team, **fields: Any) -> Entry:
    return Entry.objects.create(**{"team": team, "action": "run.stop", "via": RequestChannel.BROWSER, "who": "owner@example.org", **fields})


def ids(client: Client, query: str = "") -> list[int]:
    response = client.get(URL + query)
    assert response.status_code == 200
    return [row.entry.pk for row in response.context["rows"]]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ANNOTATOR, Role.RESEARCHER])
def test_only_admins_and_owners_read_it(client: Client, team: Team, role: Role) -> None:
    client.force_login(make_member("somebody@example.org", team, role))
    entry = add(team)
    for url in (URL, reverse("audit-entry", args=[entry.pk]), reverse("audit-export", args=["csv"])):
        assert client.get(url).status_code == 403, url


def test_it_says_so_when_nothing_is_there_or_nothing_matches(as_owner: Client, team: Team) -> None:
    assert b"No entries yet" in as_owner.get(URL).content
    add(team)
    assert b"No results" in as_owner.get(URL + "?q=zebra").content


def test_every_filter_selects(as_owner: Client, team: Team, owner: User) -> None:
    mine = add(team, actor=owner, label="#7 long run", kind="run", object_id="abc-7", address="192.0.2.7", via=RequestChannel.API)
    add(team, actor=None, who="", action="session.fail", label="eve@example.org", address="192.0.2.8")
    for query in (
        f"who={owner.pk}",
        "did=run",
        "did=run.stop",
        "kind=run",
        "kind=run&object=abc-7",
        "via=api",
        "address=192.0.2.7",
        "q=lon",
        "q=7+run",
    ):
        assert ids(as_owner, f"?{query}") == [mine.pk], query
    assert ids(as_owner, "?q=owner+example") == [mine.pk]
    other = Entry.across_teams.get(action="session.fail").pk
    assert ids(as_owner, "?who=lab") == [other]
    assert ids(as_owner, "?q=eve@example.org") == [other]
    first, last = mine.at.date(), Entry.across_teams.get(pk=other).at.date()  # two days where midnight has just passed
    assert ids(as_owner, f"?since={first}&until={last}") == [other, mine.pk]
    assert ids(as_owner, "?until=2001-01-01") == ids(as_owner, "?since=2901-01-01") == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("address=nowhere", "IP address"),
        ("since=yesterday", "2026-11-30"),
        ("did=run.fly", "Choose one from the list"),
        ("who=me", "Choose someone"),
        (f"who={10**30}", "Choose someone"),
        ("object=7", "an id needs a kind"),
        ("via=pigeon", "browser, api"),
        ("q=%26%7C%21", "Enter letters"),
    ],
)
def test_a_filter_that_cannot_be_used_says_why_and_is_left_out(as_owner: Client, team: Team, query: str, words: str) -> None:
    entry = add(team)
    response = as_owner.get(f"{URL}?{query}")
    assert words in response.content.decode()
    assert [row.entry.pk for row in response.context["rows"]] == [entry.pk]


@pytest.mark.parametrize(
    "query", ["q='", "q=a' | b", "q=\\", "q=%00", "q=:*", "before=x", "after=99999999999999999999", "since=0001-01-01", "until=9999-12-31"]
)
def test_nothing_in_the_address_breaks_it(as_owner: Client, team: Team, query: str) -> None:
    add(team)
    assert as_owner.get(f"{URL}?{query}").status_code == 200


def test_pages_hold_every_entry_once_in_both_directions(as_owner: Client, team: Team, stranger: User) -> None:
    Entry.objects.bulk_create(Entry(team=team, action="run.stop", via=RequestChannel.BROWSER) for _ in range(2 * PAGE + 5))
    add(stranger.memberships.get().team)
    everything = list(Entry.objects.of(team).order_by("-pk").values_list("pk", flat=True))
    seen, url, last = [], URL, ""
    while url:
        response = as_owner.get(url)
        seen += [row.entry.pk for row in response.context["rows"]]
        last, url = url, URL + response.context["older"] if response.context["older"] else ""
    assert seen == everything
    back = as_owner.get(URL + as_owner.get(last).context["newer"])
    assert [row.entry.pk for row in back.context["rows"]] == everything[PAGE : 2 * PAGE]
    assert parse_qs(urlsplit(back.context["newer"]).query)["after"] == [str(everything[PAGE])]


def test_an_entry_leads_to_its_object_while_that_exists(as_owner: Client, team: Team, owner: User) -> None:
    [run] = launch_recipe(team, owner, "grpo")
    record_audit_entry("run.stop", run)
    url = reverse("audit-entry", args=[Entry.across_teams.latest("pk").pk])
    link = f'href="{reverse("run", args=[run.pk])}"'
    assert link in as_owner.get(url).content.decode().replace("/t/reasoning", "")
    run.delete()
    page = as_owner.get(url)
    assert page.status_code == 200
    assert link not in page.content.decode().replace("/t/reasoning", "")
    assert run.name in page.content.decode()


def test_the_queries_of_a_page_do_not_grow_with_its_entries(as_owner: Client, team: Team, owner: User) -> None:
    counts = []
    for _ in range(2):
        launch_recipe(team, owner, "grpo")
        as_owner.get(URL)
        with CaptureQueriesContext(connection) as queries:
            as_owner.get(URL)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_hostile_text_is_text(as_owner: Client, team: Team) -> None:
    for payload in PAYLOADS[:20]:
        add(team, label=escape_unstorable_text(payload)[:200], agent="<script>alert(1)</script>", details={"name": "<img src=x onerror=alert(1)>"})
    page = as_owner.get(URL).content.decode()
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def exported(client: Client, form: str, query: str = "") -> str:
    response = client.get(reverse("audit-export", args=[form]) + query)
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"].startswith('attachment; filename="audit-reasoning-')
    return b"".join(response.streaming_content).decode()


def test_the_csv_neutralises_formulas_and_holds_what_the_filters_select(as_owner: Client, team: Team, stranger: User) -> None:
    add(team, label="=cmd|' /C calc'!A0", details={"a": 1})
    add(team, action="run.kill", label="other")
    add(stranger.memberships.get().team, label="foreign")
    rows = list(csv.DictReader(io.StringIO(exported(as_owner, "csv", "?did=run.stop"))))
    assert [(row["label"], row["details"]) for row in rows] == [("'=cmd|' /C calc'!A0", '{"a": 1}')]


@pytest.mark.feature(79)
def test_json_lines_hold_everything_newest_first_and_the_export_is_in_the_log(as_owner: Client, team: Team, owner: User) -> None:
    made = [add(team, label=str(number)) for number in range(3)]
    lines = [json.loads(line) for line in exported(as_owner, "jsonl").splitlines()]
    assert [line["id"] for line in lines] == [entry.pk for entry in reversed(made)]
    entry = Entry.across_teams.get(action="audit.export")
    assert (entry.who, entry.details) == (owner.email, {"format": "jsonl", "filters": {}})


def test_exports_of_other_forms_and_entries_of_other_teams_are_not_found(as_owner: Client, stranger: User) -> None:
    theirs = add(stranger.memberships.get().team)
    assert as_owner.get(reverse("audit-export", args=["xml"])).status_code == 404
    assert as_owner.get(reverse("audit-entry", args=[theirs.pk])).status_code == 404
    assert as_owner.get(f"/audit/{10**25}/").status_code == 404


MANY = """
INSERT INTO audit_entry (at, team_id, actor_id, who, via, token, action, kind, object_id, label, address, agent, details)
SELECT now() - (%(n)s - i) * interval '1 minute', %(team)s, %(actor)s, 'p' || i %% 50 || '@example.org', 'browser', '',
       CASE WHEN i %% 1000 = 0 THEN 'run.kill' ELSE 'run.stop' END, 'run', md5(i::text), '#' || i || ' run', ('192.0.2.' || i %% 200)::inet, '', '{}'
FROM generate_series(1, %(n)s) i
"""
QUERIES = (
    "",
    "who={owner}",
    "did=run.kill",
    "did=session",
    "kind=run&object=abc",
    "via=api",
    "address=192.0.2.250",
    "since=2001-01-01",
    "q=zebra",
    "q=77",
)


def test_no_filter_reads_the_whole_table(team: Team, owner: User) -> None:
    with connection.cursor() as cursor:
        cursor.execute(MANY, {"n": 20_000, "team": team.pk, "actor": owner.pk + 1})
        cursor.execute("ANALYZE audit_entry")
    for query in QUERIES:
        asked = AuditQuery.read({name: values[0] for name, values in parse_qs(query.format(owner=owner.pk)).items()})
        found, problems = select_entries(team, asked)
        assert not problems
        plan = found.order_by("-pk")[: PAGE + 1].explain()
        assert "Seq Scan" not in plan, f"{query}\n{plan}"


def test_former_members_can_still_be_asked_for(as_owner: Client, team: Team) -> None:
    gone = make_member("gone@example.org", team)
    Membership.objects.filter(user=gone).update(active=False)
    assert b"gone@example.org" in as_owner.get(URL).content
