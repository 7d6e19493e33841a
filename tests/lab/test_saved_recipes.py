"""Recipes a team saves from the launch form: versions, what differs, launching from one, deleting and restoring, and that they stay in the team."""

from typing import Any

import pytest
from django.test import Client

from lab.teams.accounts.models import Team, User
from lab.training.catalog.models import RecipeVersion, SavedRecipe
from lab.training.runs.models import Run
from tests.lab.html_forms import error_of, filled, form_values, send


def save(client: Client, url: str = "/launch/grpo/?add=rs-grpo", **changes: str) -> Any:
    return client.post(f"{url.partition('?')[0]}save/", filled(client, url, **{"save.name": "Risky", **changes}))


def test_a_form_is_saved_as_it_stands_and_opened_again(as_owner: Client, team: Team, owner: User) -> None:
    response = save(as_owner, **{"stages.0.method.rs-grpo.risk": "3", "stages.0.training.max_steps": "33", "save.note": "first try", "seed": "4"})
    version = RecipeVersion.objects.of(team).get()
    assert (version.recipe.name, version.number, version.note, version.created_by, version.origin) == ("Risky", 1, "first try", owner, "grpo")
    assert "output" not in version.stages[0]["spec"]
    url = response.headers["Location"]
    assert url == f"/launch/grpo/?saved={version.pk}"
    page = as_owner.get(url).content.decode()
    values = form_values(page, "data-launch")
    assert values["stages.0.methods"].split() == ["rs-grpo"]
    assert (values["stages.0.method.rs-grpo.risk"], values["stages.0.training.max_steps"], values["seed"], values["name"]) == (
        "3",
        "33",
        "4",
        "Risky",
    )
    assert "Risky, version 1" in page
    send(as_owner, url)
    run = Run.objects.of(team).get()
    assert (run.name, run.recipe, run.total_steps, run.spec["methods"]) == ("Risky", "grpo", 33, [{"name": "rs-grpo", "config": {"risk": 3.0}}])


def test_a_form_that_is_sent_twice_makes_one_version(as_owner: Client, team: Team) -> None:
    first, again = save(as_owner), save(as_owner)
    assert [version.number for version in RecipeVersion.objects.of(team)] == [1]
    assert again.headers["Location"] == first.headers["Location"]
    assert "No changes since “Risky”, version 1." in as_owner.get(again.headers["Location"]).content.decode()
    save(as_owner, **{"save.note": "the same with a word"})
    assert [version.number for version in RecipeVersion.objects.of(team)] == [2, 1]


def test_the_same_name_makes_the_next_version_and_two_of_them_are_compared(as_owner: Client, team: Team) -> None:
    save(as_owner, **{"stages.0.method.rs-grpo.risk": "3"})
    save(as_owner, "/launch/grpo/?add=rs-grpo&add=siren", **{"stages.0.method.rs-grpo.risk": "4", "stages.0.base": "gspo"})
    save(as_owner, "/launch/grpo/", **{"save.name": "  Other  one ", "stages.0.training.max_steps": "20"})
    assert sorted(map(str, RecipeVersion.objects.of(team))) == ["Other one v1", "Risky v1", "Risky v2"]
    assert sorted(map(str, RecipeVersion.objects.of(team).newest())) == ["Other one v1", "Risky v2"]
    recipe = SavedRecipe.across_teams.get(name="Risky")
    page = as_owner.get(f"/saved/{recipe.pk}/").content.decode()
    assert "From version 1 to 2" in page
    for text in ("method.rs-grpo.risk", "<del>3.0</del>", "<ins>4.0</ins>", "<ins>rs-grpo, siren</ins>", "<del>dapo</del>", "<ins>gspo</ins>"):
        assert text in page
    assert "max_steps" not in page.split("From version")[1]
    back = as_owner.get(f"/saved/{recipe.pk}/?old=2&new=1").content.decode()
    assert "From version 2 to 1" in back
    assert "<del>4.0</del>" in back
    assert "No differences" in as_owner.get(f"/saved/{recipe.pk}/?old=1&new=1").content.decode()
    assert "From version 1 to 2" in as_owner.get(f"/saved/{recipe.pk}/?old=x&new=99").content.decode()


def test_saved_recipes_stand_on_the_launch_page_with_author_and_methods(as_owner: Client, team: Team) -> None:
    assert "Saved by your team" not in as_owner.get("/launch/").content.decode()
    save(as_owner, **{"save.name": "<b>bold</b>", "save.note": "look at entropy"})
    page = as_owner.get("/launch/").content.decode()
    version = RecipeVersion.objects.of(team).get()
    for text in ("Saved by your team", "&lt;b&gt;bold&lt;/b&gt;", "look at entropy", "owner@example.org", f'href="/launch/grpo/?saved={version.pk}"'):
        assert text in page
    assert ">rs-grpo</span>" in page


def test_a_chain_is_saved_with_its_stages(as_owner: Client, team: Team) -> None:
    url = save(as_owner, "/launch/demo/?add=rs-grpo", **{"stages.1.training.max_steps": "11"}).headers["Location"]
    send(as_owner, url)
    runs = Run.objects.of(team).order_by("number")
    assert [run.trainer for run in runs] == ["sft", "grpo", "dpo"]
    assert (runs[1].total_steps, runs[1].spec["methods"][0]["name"], runs[1].parent) == (11, "rs-grpo", runs[0])


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"save.name": "  "}, "save.name", "Give it a name"),
        ({"save.name": "x" * 81}, "save.name", "At most 80 characters"),
        ({"save.note": "x" * 301}, "save.name", "300 for the note"),
        ({"stages.0.method.rs-grpo.risk": "-1"}, "stages.0.method.rs-grpo.risk", "Must be at least 0 (default"),
    ],
)
def test_what_could_not_be_launched_or_has_no_name_is_not_saved_and_not_lost(
    changes: dict[str, str], name: str, words: str, as_owner: Client, team: Team
) -> None:
    response = save(as_owner, **{**changes, "stages.0.training.max_steps": "44"})
    page = response.content.decode()
    assert response.status_code == 422
    assert words in error_of(page, name)
    assert form_values(page, "data-launch")["stages.0.training.max_steps"] == "44"
    assert not SavedRecipe.across_teams.exists()


def test_deleting_can_be_undone(as_owner: Client, team: Team) -> None:
    save(as_owner)
    version = RecipeVersion.objects.of(team).get()
    key = version.recipe_id
    page = as_owner.post(f"/saved/{key}/delete/", follow=True).content.decode()
    assert "Saved by your team" not in page
    assert "Recently deleted" in page
    assert as_owner.get(f"/launch/grpo/?saved={version.pk}").status_code == 404
    assert "Restore" in as_owner.get(f"/saved/{key}/").content.decode()
    page = as_owner.post(f"/saved/{key}/restore/", follow=True).content.decode()
    assert "was restored" in page
    assert as_owner.get(f"/launch/grpo/?saved={version.pk}").status_code == 200


def test_saving_under_a_deleted_name_brings_its_versions_back(as_owner: Client, team: Team) -> None:
    save(as_owner)
    SavedRecipe.across_teams.get().delete_softly()
    save(as_owner, **{"save.note": "once more"})
    assert [version.number for version in RecipeVersion.objects.of(team)] == [2, 1]


def test_recipes_stay_in_their_team(as_owner: Client, as_stranger: Client, stranger: User, team: Team) -> None:
    save(as_owner)
    version = RecipeVersion.objects.of(team).get()
    assert "Risky" not in as_stranger.get("/launch/").content.decode()
    for url in (f"/saved/{version.recipe_id}/", f"/launch/grpo/?saved={version.pk}"):
        assert as_stranger.get(url).status_code == 404
    for url in (f"/saved/{version.recipe_id}/delete/", f"/saved/{version.recipe_id}/restore/"):
        assert as_stranger.post(url).status_code == 404
    data = {**filled(as_stranger, "/launch/grpo/"), "saved": str(version.pk)}
    for url in ("/launch/grpo/", "/launch/grpo/save/", "/preflight/", "/compose/"):
        assert as_stranger.post(url, {**data, "act": "0:base"} if url == "/compose/" else data).status_code == 404
    save(as_stranger)  # the same name in another team is another recipe
    assert RecipeVersion.objects.of(stranger.memberships.get().team).get().number == 1
    assert version.recipe.versions.count() == 1


@pytest.mark.parametrize("key", ["x", "-1", "9" * 30, "1 OR 1=1", "999999"])
def test_a_version_that_does_not_exist_is_not_found(key: str, as_owner: Client) -> None:
    assert as_owner.get("/launch/grpo/", {"saved": key}).status_code == 404


def test_the_pages_need_a_login_and_changes_a_post(client: Client, as_owner: Client, db: None) -> None:
    assert Client().get("/saved/1/").headers["Location"].startswith("/accounts/login/")
    for url in ("/saved/1/delete/", "/saved/1/restore/", "/launch/grpo/save/", "/compose/"):
        assert as_owner.get(url).status_code == 405
