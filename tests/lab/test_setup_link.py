"""The first-start link: one use, one day, one owner."""

import threading
from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.utils import timezone

from lab.lib.refusals import Refusal
from lab.teams.accounts import demo_team, setup_link
from lab.teams.accounts.models import Membership, Role, SetupLink, Team, User

WHO = {"email": "ada@example.org", "password": "correct horse battery", "team_name": "Analytical Engines", "name": "Ada Lovelace"}

pytestmark = pytest.mark.django_db


def fresh_token() -> str:
    path = setup_link.create_setup_link()
    assert path is not None
    assert path.startswith("/setup/")
    return path.split("/")[2]


def test_it_makes_the_owner_and_the_team() -> None:
    user = setup_link.consume_setup_link(fresh_token(), **WHO)
    assert (user.get_full_name(), user.is_staff, user.is_superuser) == ("Ada Lovelace", True, True)
    assert user.check_password(WHO["password"])
    membership = Membership.objects.get()
    assert (membership.user, membership.role, membership.team.name, membership.team.slug) == (
        user,
        Role.OWNER,
        "Analytical Engines",
        "analytical-engines",
    )


def test_it_stores_no_token() -> None:
    token = fresh_token()
    stored = SetupLink.objects.values_list("digest", flat=True)
    assert len(stored) == 1
    assert token not in stored[0]


def test_it_works_once() -> None:
    token = fresh_token()
    setup_link.consume_setup_link(token, **WHO)
    with pytest.raises(Refusal, match="already set up"):
        setup_link.consume_setup_link(token, **{**WHO, "email": "eve@example.org"})
    assert User.objects.count() == 1
    assert setup_link.create_setup_link() is None


def test_a_newer_link_replaces_an_older_one() -> None:
    old, new = fresh_token(), fresh_token()
    with pytest.raises(Refusal, match="not valid"):
        setup_link.check_setup_link(old)
    setup_link.check_setup_link(new)


def test_it_expires() -> None:
    token = fresh_token()
    SetupLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Refusal, match="expired"):
        setup_link.consume_setup_link(token, **WHO)
    assert not User.objects.exists()


@pytest.mark.parametrize("token", ["", "guess", "\0", "\ud800", "x" * 10_000])
def test_it_refuses_a_guess(token: str) -> None:
    fresh_token()
    with pytest.raises(Refusal, match="not valid"):
        setup_link.consume_setup_link(token, **WHO)


def test_it_names_every_field_that_is_wrong_and_keeps_the_link() -> None:
    token = fresh_token()
    with pytest.raises(ValidationError) as caught:
        setup_link.consume_setup_link(token, email="nobody", password="123", team_name=" ", name="x" * 200)
    assert set(caught.value.message_dict) == {"email", "password", "team_name", "name"}
    assert not Team.objects.exists()
    setup_link.consume_setup_link(token, **WHO)


def test_a_team_name_without_letters_gets_a_slug() -> None:
    setup_link.consume_setup_link(fresh_token(), **{**WHO, "team_name": "強化学習"})
    assert Team.objects.get().slug == "team"


@pytest.mark.django_db(transaction=True)
def test_of_two_at_the_same_time_one_becomes_the_owner() -> None:
    token, outcomes = fresh_token(), []
    together = threading.Barrier(2)

    def use(email: str) -> None:
        together.wait()
        try:
            outcomes.append(setup_link.consume_setup_link(token, **{**WHO, "email": email}).email)
        except Refusal:
            outcomes.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=use, args=[email]) for email in ("ada@example.org", "eve@example.org")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("refused") == 1
    assert User.objects.count() == Team.objects.count() == 1


def test_the_demos_account_is_nobody_and_its_team_is_the_first_owners_too() -> None:
    demo_account = demo_team.ensure_demo_account()
    assert not demo_account.has_usable_password()
    user = setup_link.consume_setup_link(fresh_token(), **WHO)
    teams = {membership.team.slug: membership.role for membership in Membership.objects.filter(user=user)}
    assert teams == {"analytical-engines": Role.OWNER, "demo": Role.OWNER}
    assert setup_link.create_setup_link() is None


def test_a_demo_in_a_lab_with_people_is_in_a_team_of_its_own_that_the_operators_own() -> None:
    user = setup_link.consume_setup_link(fresh_token(), **{**WHO, "team_name": "Demo"})
    for _ in range(2):
        demo_team.ensure_demo_account()
    made = demo_team.find_demo_team()
    assert made is not None
    assert (made.slug, set(made.memberships.values_list("user__email", flat=True))) == ("demo-2", {user.email, demo_team.EMAIL})
    assert Membership.objects.get(team__slug="demo").user == user


def test_who_sets_the_lab_up_after_the_demo_lands_on_its_runs(client: Client) -> None:
    demo_team.ensure_demo_account()
    fields = {"name": WHO["name"], "email": WHO["email"], "password": WHO["password"], "team_name": WHO["team_name"]}
    response = client.post(f"/setup/{fresh_token()}/", fields)
    assert (response.status_code, response["Location"]) == (302, "/t/demo/runs/")
    assert "The demo&#x27;s runs are in the team Demo." in client.get("/t/demo/runs/").content.decode()
