"""The inbox and the pages of rules: each person sees and changes their own, admins those of the team."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Status
from lab.watching.alerts import kinds
from lab.watching.alerts.models import Notice, Rule
from lab.watching.alerts.notices import notify_members
from tests.hostile import PAYLOADS
from tests.lab.alerts.conftest import look
from tests.lab.supervisor.spools import make_run, measured, started, store

pytestmark = pytest.mark.django_db
VALID = {"kind": "metric", "metric": "reward", "direction": "above", "number": "0.8", "inbox": "on", "mine": "on"}


def tell(team: Team, user: User, subject: str = "Run 1 finished", key: str = "k1") -> Notice:
    notify_members(team, kinds.NEWS, subject, url=f"/t/{team.slug}/runs/", users=[user], key=key)
    return Notice.across_teams.get(user=user, key=key)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_the_inbox_shows_what_i_was_told_and_nothing_of_others(team: Team, owner: User, teammate: User, as_owner: Client) -> None:
    assert "No notifications" in as_owner.get("/inbox/").content.decode()
    tell(team, owner, "mine")
    theirs = tell(team, teammate, "theirs")
    page = as_owner.get("/inbox/").content.decode()
    assert "mine" in page
    assert "theirs" not in page
    for path in (f"/inbox/{theirs.pk}/open/", f"/inbox/{theirs.pk}/read/"):
        assert as_owner.get(path).status_code in (404, 405)
        assert as_owner.post(path).status_code in (404, 405)
    assert Notice.across_teams.get(pk=theirs.pk).read_at is None


def test_a_link_opens_and_marks_read_and_unread_brings_it_back(team: Team, owner: User, as_owner: Client) -> None:
    one = tell(team, owner)
    as_owner.head(f"/inbox/{one.pk}/open/")
    assert Notice.across_teams.get().read_at is None
    opened = as_owner.get(f"/inbox/{one.pk}/open/")
    assert opened.headers["Location"] == "/t/reasoning/runs/"
    assert Notice.across_teams.get().read_at is not None
    as_owner.post(f"/inbox/{one.pk}/read/", {"unread": "1"})
    assert Notice.across_teams.get().read_at is None


def test_a_notice_never_leads_out_of_the_lab(team: Team, owner: User, as_owner: Client) -> None:
    one = tell(team, owner)
    for url in ("https://evil.example.org/", "//evil.example.org/", "javascript:alert(1)", ""):
        Notice.across_teams.update(url=url)
        assert as_owner.get(f"/inbox/{one.pk}/open/").headers["Location"].endswith("/inbox/")


def test_all_read_can_be_undone_for_exactly_those(team: Team, owner: User, as_owner: Client) -> None:
    before = tell(team, owner, key="k0")
    Notice.across_teams.update(read_at=timezone.now())
    for number in range(3):
        tell(team, owner, key=f"k{number + 1}")
    where = as_owner.post("/inbox/read/").headers["Location"]
    assert not Notice.across_teams.unread().exists()
    page = as_owner.get(where).content.decode()
    at = page.split('name="at" value="')[1].split('"')[0]
    as_owner.post("/inbox/unread/", {"at": at})
    assert Notice.across_teams.unread().count() == 3
    assert Notice.across_teams.get(pk=before.pk).read_at is not None


@pytest.mark.parametrize(
    "query", ["show=unread", "kind=news", "kind=__x", "page=9999999999999", "page=-1", "undo=x", "undo=2026-99-99T00:00:00Z", "show=%00"]
)
def test_an_odd_address_of_the_inbox_is_a_page(query: str, team: Team, owner: User, as_owner: Client) -> None:
    tell(team, owner)
    assert as_owner.get(f"/inbox/?{query}").status_code == 200


def test_a_rule_is_made_changed_switched_and_deleted(team: Team, owner: User, as_owner: Client) -> None:
    run = make_run(team)
    as_owner.post("/alerts/new/", {**VALID, "run": f"#{run.number}", "words": "a", "email": "on"})
    one = Rule.across_teams.get(metric="reward")
    assert (one.owner, one.run, one.number, one.direction, one.mine, one.email) == (owner, run, 0.8, "above", True, True)
    page = as_owner.get("/alerts/").content.decode()
    assert "reward above 0.8" in page
    as_owner.post(f"/alerts/{one.pk}/", {"kind": "run-finished", "metric": "left over", "inbox": "on"})
    one.refresh_from_db()
    assert (one.kind, one.metric, one.run, one.mine) == ("run-finished", "", None, False)
    as_owner.post(f"/alerts/{one.pk}/switch/", {"on": "0"})
    assert not Rule.across_teams.get(pk=one.pk).enabled
    as_owner.post(f"/alerts/{one.pk}/delete/")
    assert not Rule.across_teams.filter(pk=one.pk).exists()


def test_a_form_sent_twice_makes_one_rule(team: Team, owner: User, as_owner: Client) -> None:
    for _ in range(2):
        as_owner.post("/alerts/new/", VALID)
    assert Rule.across_teams.filter(metric="reward").count() == 1


def test_a_rule_that_is_changed_looks_anew(team: Team, owner: User, as_owner: Client) -> None:
    run = make_run(team, status=Status.RUNNING, created_by=owner)
    store(run, started(), measured(1, values={"reward": 0.5}))
    as_owner.post("/alerts/new/", {**VALID, "number": "0.4"})
    one = Rule.across_teams.get(metric="reward")
    look()
    as_owner.post(f"/alerts/{one.pk}/", {**VALID, "number": "0.3"})
    look()
    assert list(Notice.across_teams.order_by("created_at").values_list("subject", flat=True)) == [
        f"{run}: reward above 0.4",
        f"{run}: reward above 0.3",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "gossip"}, "Choose one from the list."),
        ({"metric": ""}, "Enter a metric"),
        ({"number": ""}, "Enter a number."),
        ({"number": "nan"}, "Enter a number"),
        ({"number": "x"}, "Enter a number"),
        ({"run": "#99"}, "There is no such run. Enter its number, 1 to 1."),
        ({"run": "9" * 12}, "There is no such run"),
        ({"inbox": ""}, "Choose at least one channel"),
        ({"words": "a\0b"}, "Null characters are not allowed"),
        ({"kind": "metric-flat", "band": "-1", "steps": "5"}, "Enter 0 or a small number"),
        ({"kind": "metric-flat", "band": "0.1", "steps": ""}, "Enter the number of steps"),
        ({"kind": "metric-flat", "band": "0.1", "steps": "1"}, "Enter 2 or more."),
        ({"project": "999999999999999999999"}, "Select a valid choice"),
    ],
)
def test_what_cannot_be_used_is_named_and_nothing_is_lost(change: dict[str, str], said: str, team: Team, as_owner: Client) -> None:
    make_run(team)
    page = as_owner.post("/alerts/new/", {**VALID, "recipe": "grpo", **change}).content.decode()
    assert said in page
    assert not Rule.across_teams.filter(metric="reward").exists()
    if "metric" not in change:
        assert 'value="reward"' in page


def test_a_chart_s_link_fills_the_form(team: Team, as_owner: Client) -> None:
    run = make_run(team, step=3)
    store(run, started(), measured(1, values={"kl": 0.1, "reward": 1.0}))
    page = as_owner.get(f"/alerts/new/?kind=metric&run={run.number}&metric=kl&direction=below&number=0.5").content.decode()
    for piece in ('value="kl"', 'value="0.5"', '<option value="below" selected>', f'value="{run.number}"', '<option value="kl">'):
        assert piece in page


def test_the_preview_counts_last_week(team: Team, owner: User, as_owner: Client) -> None:
    for value in (0.5, 0.9):
        run = make_run(team, status=Status.FINISHED, finished_at=timezone.now(), created_by=owner)
        store(run, started(), measured(1, values={"kl": value}))
        type(run).objects.same_row(run).update(status=Status.FINISHED, finished_at=timezone.now())
    query = {"kind": "metric", "metric": "kl", "direction": "above", "number": "0.8"}
    assert "1 time</strong>" in as_owner.get("/alerts/preview/", query).content.decode()
    assert "2 times</strong>" in as_owner.get("/alerts/preview/", {"kind": "run-finished", "mine": "on"}).content.decode()
    assert "Fill in the remaining fields" in as_owner.get("/alerts/preview/", {"kind": "metric"}).content.decode()
    assert "No history" in as_owner.get("/alerts/preview/", {"kind": "doctor"}).content.decode()


def test_rules_of_others_are_not_found_and_the_team_s_are_for_admins(
    team: Team, owner: User, teammate: User, annotator: User, as_owner: Client
) -> None:
    one = Rule.objects.create(team=team, owner=teammate, kind=kinds.FINISHED)
    shared = Rule.objects.create(team=team, owner=None, kind=kinds.FINISHED)
    for path in (f"/alerts/{one.pk}/", f"/alerts/{shared.pk}/", f"/alerts/team/{one.pk}/", f"/alerts/{10**20}/", f"/alerts/webhooks/{10**20}/"):
        assert as_owner.get(path).status_code == 404
    assert as_owner.get(f"/alerts/team/{shared.pk}/").status_code == 200
    for user in (teammate, annotator):
        for path in ("/alerts/team/", "/alerts/team/new/", f"/alerts/team/{shared.pk}/", "/alerts/webhooks/new/", "/alerts/deliveries/"):
            assert signed_in(user).get(path).status_code == 403
    assert signed_in(annotator).get("/alerts/new/").status_code == 403


def test_an_annotator_turns_mail_about_queues_off(team: Team, annotator: User) -> None:
    client = signed_in(annotator)
    page = client.get("/alerts/").content.decode()
    assert "Queue due" in page
    assert "New alert" not in page
    one = Rule.across_teams.get(owner=annotator)
    client.post(f"/alerts/{one.pk}/switch/", {"what": "email", "on": "0"})
    one.refresh_from_db()
    assert (one.email, one.inbox, one.enabled) == (False, True, True)


def test_a_kind_a_role_may_not_know_is_not_offered(team: Team, viewer: User) -> None:
    client = signed_in(viewer)
    assert "Labels in conflict" not in client.get("/alerts/new/").content.decode()
    client.post("/alerts/new/", {"kind": kinds.CONFLICTS, "inbox": "on"})
    assert not Rule.across_teams.filter(owner=viewer, kind=kinds.CONFLICTS).exists()


@pytest.mark.parametrize("payload", PAYLOADS[:12])
def test_hostile_words_are_shown_as_they_are(payload: Any, team: Team, owner: User, as_owner: Client) -> None:
    text = str(payload).replace("\0", "")
    tell(team, owner, text)
    Rule.objects.create(team=team, owner=owner, kind=kinds.METRIC, metric=text[:200], direction="above", number=1, words=text[:100])
    for path in ("/inbox/", "/alerts/"):
        page = as_owner.get(path).content.decode()
        assert "<script>alert" not in page
        assert "<img src=x" not in page


def test_every_page_opens(team: Team, owner: User, as_owner: Client, rule: Callable[..., Rule]) -> None:
    rule(kinds.FLAT, metric="reward", number=0.1, steps=20)
    rule(kinds.FAILED, owner=None)
    for path in (
        "/alerts/",
        "/alerts/team/",
        "/alerts/team/new/",
        "/alerts/deliveries/",
        "/alerts/deliveries/?state=failed",
        "/alerts/webhooks/new/",
    ):
        assert as_owner.get(path).status_code == 200
