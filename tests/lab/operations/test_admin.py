"""/admin/: for operators only, signed in by the lab's own pages; nothing secret in it, what it changes is recorded, acts ask first."""

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from lab.edges.operations.base import LISTED, OperatorAdmin
from lab.edges.operations.site import site
from lab.labelling.labels.models import Kind
from lab.labelling.labels.new_queues import make_queue
from lab.teams.accounts import setup_link
from lab.teams.accounts.address_proof import mark_verified
from lab.teams.accounts.models import ApiToken, Membership, Role, Team, User
from lab.teams.audit.models import Entry
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Run, Status
from lab.training.workers.models import Worker, WorkerStart
from lab.watching.usage.models import Quota
from tests.conftest import make_member
from tests.lab.accounts.signing_in import give_app, link_in_the_mail, sign_in


@pytest.fixture
def operator(db: None) -> User:
    user = User.objects.create_superuser("operator@example.org", "correct horse battery")
    give_app(user)
    return user


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


@pytest.mark.parametrize("page", [*PAGES, reverse("admin:autocomplete")])
def test_staff_without_a_second_factor_are_led_to_setting_one_up(as_operator: Client, operator: User, page: str) -> None:
    assert as_operator.get(reverse("admin:index")).status_code == 200
    Authenticator.objects.filter(user=operator, type="totp").delete()  # recovery codes alone are none
    assert as_operator.get(page).status_code == 403
    assert as_operator.post(page).status_code == 403
    response = as_operator.get(page, headers={"Accept": "text/html"}, follow=True)
    assert response.redirect_chain == [("/accounts/2fa/", 302)]
    assert "The operators&#x27; pages require a second factor" in response.content.decode()
    assert "Set up" in response.content.decode()


def test_a_new_installation_leads_its_first_operator_to_a_second_factor(client: Client, db: None) -> None:
    path = setup_link.create_setup_link()
    client.post(path, {"name": "Ada", "email": "ada@example.org", "password": "correct horse battery", "team_name": "Engines"})
    assert client.get("/t/engines/runs/").status_code == 200
    assert client.get("/admin/", headers={"Accept": "text/html"}).headers["Location"] == "/accounts/2fa/"
    give_app(User.objects.get())
    assert client.get("/admin/").status_code == 200


def filters_of(model_admin: Any) -> set[str]:
    return {one[0] if isinstance(one, tuple) else one for one in model_admin.list_filter}


def columns(model: Any) -> Iterator[str]:
    """Every column of the model and of the models one relation away, by the names that lookups use."""
    for field in model._meta.get_fields():
        yield field.name
        if field.is_relation and field.related_model:
            yield from (f"{field.name}__{other.name}" for other in field.related_model._meta.get_fields())


@pytest.mark.parametrize("model", list(site._registry), ids=lambda model: model.__name__)
def test_no_column_can_be_asked_for_but_by_the_pages_own_filters(as_operator: Client, model: Any) -> None:
    model_admin = site._registry[model]
    assert isinstance(model_admin, OperatorAdmin)
    lookups = ("", "__startswith", "__contains", "__regex", "__gt", "__in", "__exact", "__isnull")
    asked = [(name, name + how) for name in columns(model) for how in lookups]
    opened = [lookup for _, lookup in asked if model_admin.lookup_allowed(lookup, "x")]
    assert {re.sub("(__id)?(__(exact|in|isnull))?$", "", lookup) for lookup in opened} <= filters_of(model_admin)
    assert [lookup for lookup in opened if lookup.endswith(("startswith", "contains", "regex", "gt"))] == []
    first = f"{model._meta.pk.name}__startswith"
    assert as_operator.get(listing(f"{model._meta.app_label}_{model._meta.model_name}"), {first: "1"}).status_code == 400


@pytest.mark.parametrize(
    ("page", "lookup"),
    [
        ("accounts_user", "password__startswith"),
        ("accounts_apitoken", "digest__startswith"),
        ("accounts_apitoken", "user__password__startswith"),
        ("accounts_membership", "user__password__startswith"),
        ("accounts_user", "authenticator__data__secret__startswith"),
    ],
)
def test_secrets_are_not_found_by_their_beginning(as_operator: Client, page: str, lookup: str) -> None:
    assert as_operator.get(listing(page), {lookup: ""}).status_code == 400


@pytest.mark.parametrize("model", list(site._registry), ids=lambda model: model.__name__)
def test_every_link_of_a_filter_works(as_operator: Client, team: Team, owner: User, model: Any) -> None:
    name = f"{model._meta.app_label}_{model._meta.model_name}"
    WorkerStart.objects.create(queue="large", expected_until=timezone.now())  # whose filter offers what there is
    page = as_operator.get(listing(name))
    changes = page.context["cl"]
    links = {choice["query_string"] for spec in changes.filter_specs for choice in spec.choices(changes)}
    assert len(links) >= 2 * len(changes.filter_specs)
    for link in links:
        assert as_operator.get(listing(name) + link).status_code == 200, link


def test_a_reset_account_is_opened_by_the_mailed_link_alone(as_operator: Client, operator: User, team: Team, owner: User) -> None:
    person = make_member("lost@example.org", team, Role.RESEARCHER)
    mark_verified(person)
    give_app(person)
    token = ApiToken.objects.create(team=team, user=person, name="laptop", prefix="lab_abcd", digest="d" * 64)
    theirs = Client()
    theirs.force_login(person)
    assert "second factors, passkeys" in act(as_operator, "accounts_user", "reset_people", person.pk, confirmed=False)
    assert "done for 1" in act(as_operator, "accounts_user", "reset_people", person.pk)
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert not Authenticator.objects.filter(user=person).exists()
    assert theirs.get("/account/").status_code == 302
    assert "are not correct" in sign_in(Client(), person.email).content.decode()
    assert Client().get(link_in_the_mail(person.email)).status_code == 302
    assert Entry.across_teams.filter(action="account.reset", object_id=str(person.pk), actor=operator).exists()
    assert "cannot reset your own account" in act(as_operator, "accounts_user", "reset_people", operator.pk)
    User.objects.filter(pk=operator.pk).update(is_superuser=False)
    User.objects.filter(pk=owner.pk).update(is_superuser=True)
    assert "Only a superuser" in act(as_operator, "accounts_user", "reset_people", owner.pk)


def test_every_page_opens_and_shows_no_secret(as_operator: Client, team: Team, owner: User) -> None:
    [run] = launch_recipe(team, owner, "grpo")
    queue = make_queue(team, owner, name="Pairs", kind=Kind.PAIR)
    token = ApiToken.objects.create(team=team, user=owner, name="laptop", prefix="lab_abcd", digest="d1ge57" * 10, scopes=["runs.read"])
    worker = Worker.objects.create(name="w", host="h", pid=1, queues=["gpu"])
    quota, _ = Quota.objects.get_or_create(team=team)
    entry = record_audit_entry("run.stop", run, was="<script>alert(1)</script>")
    objects = {Run: run, type(queue): queue, ApiToken: token, Worker: worker, Quota: quota, Entry: entry, Team: team, User: owner}
    objects[Membership] = owner.memberships.get()
    objects[WorkerStart] = WorkerStart.objects.create(
        queue="large", command=["sbatch"], output="<script>alert(1)</script>", expected_until=timezone.now()
    )
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
    Run.across_teams.filter(pk=failed.pk).update(status=Status.FAILED, reason="out of memory", finished_at=timezone.now())
    Worker.objects.create(name="away", host="h", pid=1, queues=["gpu"], seen_at=timezone.now() - timedelta(hours=2))
    record_audit_entry("session.fail", label="eve@example.org")
    page = as_operator.get("/admin/").content.decode()
    text = re.sub(r"<[^>]+>|\s+", " ", page)
    for words in ("no worker for gpu", "out of memory", "away", "lost: seen 2 h ago", "eve@example.org", "PostgreSQL", "Redis", "left", "patient"):
        assert words in text, words
    assert waiting.name in text
    links = {unescape(link) for link in re.findall(r'href="(/admin/[^"]+\?[^"]+)"', page)}
    assert len(links) >= 3
    assert {link: as_operator.get(link).status_code for link in links} == dict.fromkeys(links, 200)


def test_the_dashboard_opens_while_redis_is_away(as_operator: Client, settings: object) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"  # type: ignore[attr-defined]
    assert b"Redis is down" in as_operator.get("/admin/").content


def test_an_act_asks_first_and_says_what_it_will_do(as_operator: Client, team: Team, owner: User) -> None:
    runs = [launch_recipe(team, owner, "grpo", name=f"run {number}")[0] for number in range(3)]
    keys = [run.pk for run in runs]
    page = act(as_operator, "runs_run", "stop_runs", *keys, confirmed=False)
    assert "saves a checkpoint" in page
    assert all(run.name in page for run in runs)
    assert len(runs) <= LISTED
    assert set(Run.across_teams.values_list("status", flat=True)) == {Status.QUEUED}
    assert "done for 3" in act(as_operator, "runs_run", "stop_runs", *keys)
    assert set(Run.across_teams.values_list("status", flat=True)) == {Status.STOPPED}
    assert set(Entry.across_teams.filter(action="run.stop").values_list("who", flat=True)) == {"operator@example.org"}
    assert "nothing was changed" in act(as_operator, "runs_run", "stop_runs", keys[0])


def test_tokens_are_revoked_once(as_operator: Client, team: Team, owner: User) -> None:
    token = ApiToken.objects.create(team=team, user=owner, name="laptop", prefix="lab_abcd", digest="d" * 64)
    act(as_operator, "accounts_apitoken", "revoke_tokens", token.pk)
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert token.revoked_by is not None
    assert "already revoked" in act(as_operator, "accounts_apitoken", "revoke_tokens", token.pk)
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
    assert Entry.across_teams.filter(action="admin.change", object_id=str(person.pk)).exists()


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
    entry = Entry.across_teams.get(action="admin.change")
    assert entry.team_id == team.pk
    assert set(entry.details["changed"]) == {"Name", "Join requests"}


def test_only_superusers_make_operators_and_nobody_of_themselves(as_operator: Client, operator: User, owner: User) -> None:
    staff = Client()
    User.objects.filter(pk=owner.pk).update(is_staff=True)
    give_app(owner)
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
