"""/admin/: for operators only, signed in by the lab's own pages; nothing secret in it, what it changes is recorded, acts ask first."""

import re
from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from lab.accounts.models import ApiToken, Membership, Role, Team, User
from lab.audit.models import Entry
from lab.audit.recording import record
from lab.labels.making import make_queue
from lab.labels.models import Kind
from lab.operations.base import LISTED
from lab.operations.site import site
from lab.runs.launch import launch_recipe
from lab.runs.models import Run, Status
from lab.usage.models import Quota
from lab.workers.models import Worker
from tests.conftest import make_member


@pytest.fixture
def operator(db: None) -> User:
    return User.objects.create_superuser("operator@example.org", "correct horse battery")


@pytest.fixture
def as_operator(operator: User) -> Client:
    client = Client()
    client.force_login(operator)
    return client


def listing(model: str) -> str:
    return reverse(f"admin:{model}_changelist")


def act(client: Client, model: str, name: str, *keys: object, confirmed: bool = True) -> str:
    data = {"action": name, "_selected_action": [str(key) for key in keys], **({"confirmed": "yes"} if confirmed else {})}
    response = client.post(listing(model), data, follow=True)
    assert response.status_code == 200
    return response.content.decode()


PAGES = [reverse("admin:index"), *(listing(f"{model._meta.app_label}_{model._meta.model_name}") for model in site._registry)]


@pytest.mark.parametrize("page", PAGES)
def test_the_owner_of_a_team_is_no_operator(as_owner: Client, page: str) -> None:
    assert as_owner.get(page).status_code == 404


@pytest.mark.parametrize("page", [*PAGES, "/admin/login/"])
def test_signing_in_is_the_labs_own(db: None, page: str) -> None:
    response = Client().get(page, follow=True)
    assert response.redirect_chain[-1][0].startswith("/accounts/login/?next=")
    assert b"Log in | Django" not in response.content


def test_every_page_opens_and_shows_no_secret(as_operator: Client, team: Team, owner: User) -> None:
    [run] = launch_recipe(team, owner, "grpo")
    queue = make_queue(team, owner, name="Pairs", kind=Kind.PAIR)
    token = ApiToken.objects.create(team=team, user=owner, name="laptop", prefix="lab_abcd", digest="d1ge57" * 10, scopes=["runs.read"])
    worker = Worker.objects.create(name="w", host="h", pid=1, queues=["gpu"])
    quota, _ = Quota.objects.get_or_create(team=team)
    entry = record("run.stop", run, was="<script>alert(1)</script>")
    objects = {Run: run, type(queue): queue, ApiToken: token, Worker: worker, Quota: quota, Entry: entry, Team: team, User: owner}
    objects[Membership] = owner.memberships.get()
    assert set(objects) == set(site._registry)
    for model, one in objects.items():
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        for url in (listing(name), listing(name) + "?q=a", reverse(f"admin:{name}_change", args=[one.pk])):
            page = as_operator.get(url)
            assert page.status_code == 200, url
            text = page.content.decode()
            assert "d1ge57" not in text
            assert owner.password not in text
            assert "<script>alert" not in text
        assert as_operator.get(reverse(f"admin:{name}_delete", args=[one.pk])).status_code == 403


def test_the_dashboard_says_what_is_the_matter(as_operator: Client, team: Team, owner: User) -> None:
    [waiting] = launch_recipe(team, owner, "grpo", name="patient")
    [failed] = launch_recipe(team, owner, "grpo", name="unlucky")
    Run.objects.filter(pk=failed.pk).update(status=Status.FAILED, reason="out of memory", finished_at=timezone.now())
    Worker.objects.create(name="away", host="h", pid=1, queues=["gpu"], seen_at=timezone.now() - timedelta(hours=2))
    record("session.fail", label="eve@example.org")
    page = as_operator.get("/admin/").content.decode()
    text = re.sub(r"<[^>]+>|\s+", " ", page)
    for words in ("no worker for gpu", "out of memory", "away", "lost: seen 2 h ago", "eve@example.org", "PostgreSQL", "Redis", "left", "patient"):
        assert words in text, words
    assert waiting.name in text


def test_the_dashboard_opens_while_redis_is_away(as_operator: Client, settings: object) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"  # type: ignore[attr-defined]
    assert b"Redis is away" in as_operator.get("/admin/").content


def test_an_act_asks_first_and_says_what_it_will_do(as_operator: Client, team: Team, owner: User) -> None:
    runs = [launch_recipe(team, owner, "grpo", name=f"run {number}")[0] for number in range(3)]
    keys = [run.pk for run in runs]
    page = act(as_operator, "runs_run", "stop_runs", *keys, confirmed=False)
    assert "saves a checkpoint" in page
    assert all(run.name in page for run in runs)
    assert len(runs) <= LISTED
    assert set(Run.objects.values_list("status", flat=True)) == {Status.QUEUED}
    assert "done for 3" in act(as_operator, "runs_run", "stop_runs", *keys)
    assert set(Run.objects.values_list("status", flat=True)) == {Status.STOPPED}
    assert set(Entry.objects.filter(action="run.stop").values_list("who", flat=True)) == {"operator@example.org"}
    assert "nothing was changed" in act(as_operator, "runs_run", "stop_runs", keys[0])


def test_tokens_are_revoked_once(as_operator: Client, team: Team, owner: User) -> None:
    token = ApiToken.objects.create(team=team, user=owner, name="laptop", prefix="lab_abcd", digest="d" * 64)
    act(as_operator, "accounts_apitoken", "revoke_tokens", token.pk)
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert token.revoked_by is not None
    assert "revoked already" in act(as_operator, "accounts_apitoken", "revoke_tokens", token.pk)
    assert Entry.objects.filter(action="token.revoke", team=team).count() == 1


def test_a_deactivated_person_is_out_everywhere(as_operator: Client, team: Team, owner: User) -> None:
    person = make_member("leaver@example.org", team, Role.RESEARCHER)
    theirs = Client()
    theirs.force_login(person)
    act(as_operator, "accounts_user", "deactivate_people", person.pk)
    person.refresh_from_db()
    assert not person.is_active
    assert not person.memberships.filter(active=True).exists()
    assert not [one for one in Session.objects.all() if one.get_decoded().get("_auth_user_id") == str(person.pk)]
    assert theirs.get("/runs/").status_code == 302
    assert Entry.objects.filter(action="admin.change", object_id=str(person.pk)).exists()


def test_nobody_deactivates_themselves_or_the_last_owner_of_a_team(as_operator: Client, operator: User, team: Team, owner: User) -> None:
    assert "cannot deactivate yourself" in act(as_operator, "accounts_user", "deactivate_people", operator.pk)
    act(as_operator, "accounts_user", "deactivate_people", owner.pk)
    owner.refresh_from_db()
    assert owner.is_active


def test_a_change_is_recorded_with_its_fields(as_operator: Client, team: Team) -> None:
    url = reverse("admin:accounts_team_change", args=[team.pk])
    response = as_operator.post(url, {"name": "Renamed", "requires_mfa": "", "join_requests": "on", "slug": "stolen"})
    assert response.status_code == 302
    team.refresh_from_db()
    assert (team.name, team.slug) == ("Renamed", "reasoning")
    entry = Entry.objects.get(action="admin.change")
    assert entry.team_id == team.pk
    assert set(entry.details["changed"]) == {"Name", "Join requests"}


def test_only_superusers_make_operators_and_nobody_of_themselves(as_operator: Client, operator: User, owner: User) -> None:
    staff = Client()
    User.objects.filter(pk=owner.pk).update(is_staff=True)
    staff.force_login(owner)
    other = User.objects.create_user("other@example.org", "correct horse battery")
    data = {"first_name": "O", "last_name": "", "is_staff": "on", "is_superuser": "on"}
    for client, target in ((staff, other), (staff, owner), (as_operator, operator)):
        client.post(reverse("admin:accounts_user_change", args=[target.pk]), data)
        before = (target.is_superuser, target.is_superuser)
        target.refresh_from_db()
        assert target.is_superuser == before[0]
    as_operator.post(reverse("admin:accounts_user_change", args=[other.pk]), data)
    other.refresh_from_db()
    assert other.is_staff
