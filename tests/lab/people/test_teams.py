"""Teams as such: settings, requests to join, making, switching and deleting them."""

from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.apps import apps
from django.db import connection, models
from django.test import Client

from lab.data.datasets import uploads
from lab.lib.folders import remove_folder
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import JoinRequest, Membership, Role, Team, User
from lab.teams.audit.models import Entry
from lab.teams.people import join_requests
from lab.teams.people.new_teams import make_team
from lab.teams.people.team_deletion import delete_team, iterate_owned_models
from lab.training.runs.models import Run, Status
from lab.training.runs.references import datasets_of
from tests.conftest import make_member
from tests.lab.cast import make_cast
from tests.lab.supervisor.spools import make_run

pytestmark = pytest.mark.django_db


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_settings_are_saved_and_logged_with_what_was_before(as_owner: Client, team: Team) -> None:
    form = {"name": "Reasoning group", "join_requests": "on"}
    assert as_owner.post("/t/reasoning/team/settings/", form).status_code == 302
    team.refresh_from_db()
    assert (team.name, team.slug, team.join_requests, team.requires_mfa) == ("Reasoning group", "reasoning", True, False)
    entry = Entry.across_teams.get(action="team.change")
    assert entry.details["name"] == {"before": "Reasoning", "after": "Reasoning group"}
    as_owner.post("/t/reasoning/team/settings/", form)
    assert Entry.across_teams.filter(action="team.change").count() == 1


@pytest.mark.parametrize(("name", "words"), [("", "required"), ("x" * 81, "at most 80"), ("a\0b", "Null characters")])
def test_a_bad_name_is_said(as_owner: Client, team: Team, name: str, words: str) -> None:
    response = as_owner.post("/t/reasoning/team/settings/", {"name": name})
    assert response.status_code == 422
    assert words in response.content.decode()
    team.refresh_from_db()
    assert team.name == "Reasoning"


def test_nobody_demands_a_second_factor_before_having_one(as_owner: Client, owner: User, team: Team) -> None:
    form = {"name": "Reasoning", "requires_mfa": "on"}
    response = as_owner.post("/t/reasoning/team/settings/", form)
    assert response.status_code == 422
    assert "your own account first" in response.content.decode()
    Authenticator.objects.create(user=owner, type=Authenticator.Type.TOTP, data={"secret": "x"})
    assert as_owner.post("/t/reasoning/team/settings/", form).status_code == 302
    team.refresh_from_db()
    assert team.requires_mfa


def test_an_admin_changes_settings_but_owns_nothing(team: Team, owner: User) -> None:
    admin = signed_in(make_member("admin@example.org", team, Role.ADMIN))
    assert admin.get("/t/reasoning/team/settings/").status_code == 200
    for path in ("transfer", "delete"):
        assert admin.get(f"/t/reasoning/team/{path}/").status_code == 403
        assert admin.post(f"/t/reasoning/team/{path}/", {"name": "Reasoning"}).status_code == 403


def ask(client: Client, slug: str, message: str = "let me in") -> str:
    response = client.post("/teams/join/", {"team": slug, "message": message}, follow=True)
    return str(next(iter(response.context["messages"])))


def test_the_answer_is_the_same_whatever_the_team(team: Team, teammate: User, as_stranger: Client) -> None:
    closed = ask(as_stranger, "reasoning")
    unknown = ask(as_stranger, "no-such-team")
    Team.objects.filter(pk=team.pk).update(join_requests=True)
    open_ = ask(as_stranger, " Reasoning ")
    assert closed == unknown == open_ == ask(as_stranger, "reasoning") == ask(signed_in(teammate), "reasoning")
    assert JoinRequest.across_teams.count() == 1  # one at a time, none of a member, none to a closed team


def test_admins_let_somebody_in_with_a_role_or_refuse(team: Team, owner: User, stranger: User, as_owner: Client, as_stranger: Client) -> None:
    Team.objects.filter(pk=team.pk).update(join_requests=True)
    ask(as_stranger, "reasoning", "<b>hello</b>")
    page = as_owner.get("/t/reasoning/team/").content.decode()
    assert "&lt;b&gt;hello" in page
    assert '1<span class="visually-hidden"> pending join requests' in page
    [asked] = JoinRequest.across_teams.all()
    url = f"/t/reasoning/team/requests/{asked.pk}/"
    as_owner.post(url, {"act": "let in", "role": "god"})
    assert not Membership.objects.filter(team=team, user=stranger).exists()
    as_owner.post(url, {"act": "let in", "role": "annotator"})
    assert Membership.objects.get(team=team, user=stranger).role == Role.ANNOTATOR
    assert [entry.action for entry in Entry.objects.filter(team=team).order_by("pk")] == ["join.ask", "member.join", "join.answer"]
    said = as_owner.post(url, {"act": "refuse"}, follow=True).context["messages"]
    assert "answered or withdrawn" in [str(one) for one in said][-1]


def test_a_refusal_is_quiet_for_a_week_and_an_admin_makes_no_owner(team: Team, owner: User, stranger: User, as_stranger: Client) -> None:
    Team.objects.filter(pk=team.pk).update(join_requests=True)
    ask(as_stranger, "reasoning")
    [asked] = JoinRequest.across_teams.all()
    admin = make_member("admin@example.org", team, Role.ADMIN)
    with pytest.raises(Refusal, match="Only an owner"):
        join_requests.answer_join_request(asked, admin, "owner")
    join_requests.answer_join_request(asked, admin)
    ask(as_stranger, "reasoning")
    assert JoinRequest.across_teams.count() == 1
    assert signed_in(admin).post(f"/t/reasoning/team/requests/{10**25}/").status_code == 404


def test_one_person_floods_nobody(stranger: User) -> None:
    for number in range(8):
        team = Team.objects.create(name=str(number), slug=f"open-{number}", join_requests=True)
        join_requests.create_join_request(stranger, team.slug, "x" * 1000)
    assert JoinRequest.across_teams.count() == join_requests.MOST_OPEN


def test_a_new_team_is_for_who_runs_one_and_has_an_address_of_its_own(owner: User, teammate: User) -> None:
    with pytest.raises(Refusal, match="owners and admins"):
        make_team("Mine", teammate)
    assert signed_in(teammate).post("/teams/new/", {"name": "Mine"}).status_code == 422
    response = signed_in(owner).post("/teams/new/", {"name": "Reasoning"})
    second = Team.objects.exclude(slug="reasoning").get()
    assert response.headers["Location"] == f"/t/{second.slug}/"
    assert second.slug.startswith("reasoning-")
    assert Membership.objects.get(team=second).role == Role.OWNER
    assert make_team("☃☃", owner).slug == "team"
    assert make_team("x" * 80, owner).slug == "x" * 40
    teammate.is_staff = True
    teammate.save()
    with pytest.raises(Refusal, match="owners and admins"):  # staff have no powers without a second factor
        make_team("By staff", teammate)
    Authenticator.objects.create(user=teammate, type=Authenticator.Type.TOTP, data={"secret": "x"})
    assert make_team("By staff", teammate).slug == "by-staff"


def test_the_switcher_leads_to_the_same_page_where_the_role_may_see_it(team: Team, owner: User, as_owner: Client) -> None:
    for slug, role in (("alpha", Role.VIEWER), ("beta", Role.ANNOTATOR)):
        Membership.objects.create(team=Team.objects.create(name=slug, slug=slug), user=owner, role=role)
    run = make_run(team)
    page = as_owner.get("/t/reasoning/runs/").content.decode()
    assert 'href="/t/alpha/runs/"' in page
    assert 'href="/t/beta/"' in page  # annotators see no runs
    assert 'href="/t/reasoning/runs/" aria-current="true"' in page
    page = as_owner.get(f"/t/reasoning/runs/{run.pk}/").content.decode()
    assert 'href="/t/alpha/"' in page  # the other team has no such run
    assert f"/t/alpha/runs/{run.pk}" not in page
    Membership.objects.filter(team__slug="alpha").update(active=False)
    assert "/t/alpha/" not in as_owner.get("/t/reasoning/runs/").content.decode()


def test_a_page_that_is_not_found_offers_the_same_path_in_other_teams_whether_it_is_there_or_not(team: Team, owner: User, as_owner: Client) -> None:
    other = Team.objects.create(name="Other", slug="other")
    Membership.objects.create(team=other, user=owner)
    run = make_run(other)
    for path in (f"/runs/{run.pk}/", "/runs/00000000-0000-4000-8000-000000000000/", "/nothing/"):
        response = as_owner.get(f"/t/reasoning{path}")
        assert response.status_code == 404
        assert f'href="/t/other{path}"' in response.content.decode()
    assert "/t/other" not in Client().get("/t/reasoning/nothing/").content.decode()
    Membership.objects.all().delete()
    assert as_owner.get("/t/reasoning/runs/").status_code == 404
    assert as_owner.get("/teams/").status_code == 200
    refused = as_owner.get("/runs/")
    assert refused.status_code == 403
    assert "ask an admin to invite you" in refused.content.decode()


def rows_of(team: Team) -> dict[str, int]:
    return {f"{model._meta.label} by {path}": model._base_manager.filter(**{path: team.pk}).count() for model, path in iterate_owned_models(Team)}


def test_a_deleted_team_leaves_no_row_no_folder_and_nothing_of_another_is_gone(team: Team, owner: User, stranger: User, as_owner: Client) -> None:
    theirs = make_cast(stranger.memberships.get().team, stranger, "kept")
    ours = make_cast(team, owner, "gone")
    folder = Path(ours.run.folder)
    folder.mkdir(parents=True, exist_ok=True)
    before = rows_of(theirs.team)
    assert as_owner.post("/t/reasoning/team/delete/", {"name": "reasoning"}).status_code == 422
    assert folder.is_dir()
    assert as_owner.post("/t/reasoning/team/delete/", {"name": "Reasoning"}).status_code == 302
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # as at the end of the transaction
    assert not Team.objects.filter(pk=team.pk).exists()
    assert not any(rows_of(team).values())
    assert rows_of(theirs.team) == before
    assert not any(model.across_teams.filter(pk=one.pk).exists() for model, one in ((Run, ours.run), (type(ours.rollout), ours.rollout)))
    assert User.objects.filter(pk=owner.pk).exists()
    entry = Entry.across_teams.get(action="team.delete")
    assert (entry.label, entry.object_id, entry.actor) == ("Reasoning", str(team.pk), owner)
    assert Path(theirs.run.folder).parent == folder.parent


def test_folders_go_once_the_rows_are_gone(team: Team, owner: User, django_capture_on_commit_callbacks: Any) -> None:
    run = make_run(team, status=Status.FINISHED)
    run.folder.mkdir(parents=True)
    (run.folder / "run.json").write_text("{}")
    with django_capture_on_commit_callbacks(execute=False):
        delete_team(team, owner, "Reasoning")
    assert run.folder.is_dir()


def test_every_model_that_can_reach_a_team_is_reached() -> None:
    """A room that adds rows to teams need not think of this: but a key that neither cascades nor is emptied would stop every deletion."""
    found = {model for model, _ in iterate_owned_models(Team)} | {Team}
    for model in apps.get_models(include_auto_created=True):
        for field in model._meta.concrete_fields:
            if isinstance(field, models.ForeignKey) and field.related_model in found and field.db_constraint:
                kept = model not in found
                assert not kept, f"{model._meta.label}.{field.name} would point at rows that are gone"


def test_its_datasets_and_uploads_go_too_and_no_link_is_followed(
    team: Team, owner: User, tmp_path: Path, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    settings.DATASETS_ROOT = tmp_path / "datasets"
    other, elsewhere = datasets_of(Team(pk=team.pk + 1)), tmp_path / "elsewhere"
    for folder in (datasets_of(team), other, elsewhere, uploads.get_upload_root()):
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_text("{}")
    (datasets_of(team) / "rows.jsonl").chmod(0o444)
    (datasets_of(team) / "link").symlink_to(elsewhere)
    uploads.folder_of(team).symlink_to(elsewhere)
    with django_capture_on_commit_callbacks(execute=True):
        delete_team(team, owner, "Reasoning")
    assert not datasets_of(Team(pk=team.pk)).exists()
    assert not uploads.folder_of(team).is_symlink()
    assert [(folder / "rows.jsonl").is_file() for folder in (other, elsewhere, uploads.get_upload_root())] == [True, True, True]


@pytest.mark.parametrize("name", ["", ".", "..", "../elsewhere", "a/b", "/"])
def test_no_folder_outside_the_root_is_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    with pytest.raises(ValueError, match="right below"):
        remove_folder(tmp_path / "root", name)
    assert (tmp_path / "elsewhere").is_dir()


def test_a_team_with_open_runs_is_not_deleted_and_owners_only_delete(team: Team, owner: User, as_owner: Client) -> None:
    run = make_run(team, status=Status.RUNNING)
    page = as_owner.get("/t/reasoning/team/delete/").content.decode()
    assert "1 run is queued or training" in page
    assert 'name="name"' not in page
    with pytest.raises(Refusal, match="Stop them first"):
        delete_team(team, owner, "Reasoning")
    Run.across_teams.filter(pk=run.pk).update(status=Status.STOPPED)
    admin = make_member("admin@example.org", team, Role.ADMIN)
    with pytest.raises(Refusal, match="no longer own"):
        delete_team(team, admin, "Reasoning")
