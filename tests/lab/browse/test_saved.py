"""Views people keep: saved, opened, changed, shared, deleted and brought back, and who may do what."""

from typing import Any

import pytest
from django.test import Client

from lab.rollouts.browse.models import SavedView
from lab.teams.accounts.models import Team, User
from tests.lab.supervisor.spools import make_run

QUERY = "?run=1&f=reward%3Alt%3A0&sort=-length&cols=-prompt"


@pytest.fixture
def as_teammate(teammate: User) -> Client:
    client = Client()
    client.force_login(teammate)
    return client


def save(client: Client, name: str = "short", query: str = QUERY, **data: str) -> Any:
    return client.post("/rollouts/views/", {"name": name, "query": query, **data})


def only() -> SavedView:
    return SavedView.across_teams.get()


def menu(client: Client, query: str = "") -> str:
    response = client.get(f"/rollouts/{query}")
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.feature(52)
def test_a_view_keeps_the_address_and_opens_it(as_owner: Client, team: Team) -> None:
    make_run(team)
    response = save(as_owner, query=QUERY + "&after=W10&nonsense=1&view=99")
    view = only()
    assert view.query == QUERY[1:]
    assert response.headers["Location"] == f"/rollouts/{QUERY}&view={view.pk}"
    assert as_owner.get(f"/rollouts/views/{view.pk}/").headers["Location"] == response.headers["Location"]
    assert "View “<bdi>short</bdi>”</p>" in menu(as_owner, f"{QUERY}&view={view.pk}")


def test_a_view_that_was_left_says_so_and_is_updated(as_owner: Client, team: Team) -> None:
    save(as_owner)
    view = only()
    moved = f"?f=step%3Aeq%3A2&view={view.pk}"
    body = menu(as_owner, moved)
    assert "</bdi>”, changed" in body
    assert f"/rollouts/views/{view.pk}/update/" in body
    as_owner.post(f"/rollouts/views/{view.pk}/update/", {"query": moved})
    assert only().query == "f=step%3Aeq%3A2"
    assert "</bdi>”, changed" not in menu(as_owner, moved)


def test_a_name_is_not_taken_twice_and_a_second_press_saves_once(as_owner: Client) -> None:
    save(as_owner)
    assert save(as_owner).headers["Location"].endswith(f"view={only().pk}")
    answer = as_owner.post("/rollouts/views/", {"name": "short", "query": "?run=2"}, follow=True)
    assert "You have a view called “short”." in answer.content.decode()
    assert answer.redirect_chain[0][0] == "/rollouts/?run=2"
    assert only().query == QUERY[1:]


@pytest.mark.parametrize(
    ("name", "words"), [("", "Enter a name for the view."), (" \t ", "Enter a name for the view."), ("x" * 81, "at most 80 characters")]
)
def test_a_name_that_cannot_be_used_loses_nothing(name: str, words: str, as_owner: Client) -> None:
    response = as_owner.post("/rollouts/views/", {"name": name, "query": QUERY}, follow=True)
    assert words in response.content.decode()
    assert response.redirect_chain[0][0] == f"/rollouts/{QUERY}"
    assert not SavedView.across_teams.exists()


def test_renaming_and_sharing(as_owner: Client, as_teammate: Client) -> None:
    save(as_owner)
    save(as_owner, name="other")
    view = SavedView.across_teams.get(name="short")
    as_owner.post(f"/rollouts/views/{view.pk}/rename/", {"name": "  <b>long</b>  ones ", "shared": "1"})
    view.refresh_from_db()
    assert (view.name, view.shared) == ("<b>long</b> ones", True)
    assert "&lt;b&gt;long&lt;/b&gt; ones" in menu(as_teammate)
    taken = as_owner.post(f"/rollouts/views/{view.pk}/rename/", {"name": "other"}, follow=True)
    assert "You have another view called “other”" in taken.content.decode()
    as_owner.post(f"/rollouts/views/{view.pk}/rename/", {"name": "mine"})
    assert "mine" not in menu(as_teammate)


def test_a_private_view_is_nobody_elses(as_owner: Client, as_teammate: Client, as_stranger: Client) -> None:
    save(as_owner)
    key = only().pk
    for client in (as_teammate, as_stranger):
        assert client.get(f"/rollouts/views/{key}/").status_code == 404
        assert "short</bdi>" not in menu(client, f"?view={key}")
        for verb in ("update", "rename", "delete"):
            assert client.post(f"/rollouts/views/{key}/{verb}/", {"name": "x"}).status_code == 404
    assert only().name == "short"


@pytest.mark.feature(52)
def test_a_shared_view_is_opened_by_the_team_and_changed_by_its_owner(as_owner: Client, as_teammate: Client, as_stranger: Client) -> None:
    save(as_owner, shared="1")
    key = only().pk
    assert as_teammate.get(f"/rollouts/views/{key}/").status_code == 302
    assert f"/rollouts/views/{key}/rename/" not in menu(as_teammate, f"?view={key}")
    assert f"/rollouts/views/{key}/rename/" in menu(as_owner, f"?view={key}")
    for verb in ("update", "rename", "delete"):
        assert as_teammate.post(f"/rollouts/views/{key}/{verb}/", {"name": "x"}).status_code == 404
    assert as_stranger.get(f"/rollouts/views/{key}/").status_code == 404
    save(as_teammate)  # the same name is another person's view
    assert SavedView.across_teams.count() == 2


def test_deleting_can_be_undone_under_the_same_address(as_owner: Client, as_teammate: Client) -> None:
    save(as_owner, shared="1")
    key = only().pk
    page = as_owner.post(f"/rollouts/views/{key}/delete/", follow=True)
    assert not SavedView.across_teams.exists()
    banner = page.context["deleted_view"]
    assert "The view “<bdi>short</bdi>” was deleted." in page.content.decode()
    assert as_teammate.post("/rollouts/views/restore/", {"token": banner["token"]}).status_code == 404
    as_owner.post("/rollouts/views/restore/", {"token": banner["token"]})
    view = only()
    assert (view.pk, view.name, view.query, view.shared) == (key, "short", QUERY[1:], True)
    as_owner.post("/rollouts/views/restore/", {"token": banner["token"]})
    assert only().pk == key
    assert "The view “" not in menu(as_owner)


@pytest.mark.parametrize("token", ["", "x", "a:b:c", "é\0"])
def test_a_forged_way_back_brings_nothing(token: str, as_owner: Client) -> None:
    assert "can no longer be restored" in as_owner.post("/rollouts/views/restore/", {"token": token}, follow=True).content.decode()
    assert not SavedView.across_teams.exists()


@pytest.mark.parametrize("query", ["?f=run__team:eq:1&q=\0", "?" + "x" * 30_000, "%%%", "?re=("])
def test_any_address_can_be_sent(query: str, as_owner: Client) -> None:
    save(as_owner, query=query)
    assert as_owner.get(f"/rollouts/views/{only().pk}/", follow=True).status_code == 200


def test_ids_that_fit_no_database_are_not_found(as_owner: Client) -> None:
    assert as_owner.get(f"/rollouts/views/{2**63}/").status_code == 404
    assert as_owner.post(f"/rollouts/views/{2**70}/delete/").status_code == 404
