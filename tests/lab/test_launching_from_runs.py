"""Launching from runs: clones, next stages, checkpoints, other teams' runs, and forms that are sent twice."""

import threading

import pytest
from django.db import connection
from django.test import Client

from lab.data.loop.checkpoints import list_policy_candidates
from lab.edges.api.launch_bodies import of_clone
from lab.edges.api.problems import ApiProblem
from lab.teams.accounts.models import Team, User
from lab.training.catalog.catalog import load_catalog
from lab.training.runs import drafts, references
from lab.training.runs.forms import LaunchForm
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Checkpoint, Run, Status
from tests.lab.html_forms import error_of, filled, send
from trainers.contract.spec import SpecError

GRPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo", "max_steps": 77}, "recipe": "grpo"}


@pytest.fixture
def parent(team: Team, owner: User) -> Run:
    run = launch_run(team, owner, GRPO, "parent")
    (run.folder / "final").mkdir(parents=True)
    (run.folder / "final/config.json").write_text("{}")
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED)
    run.refresh_from_db()
    return run


def test_sending_the_form_twice_launches_once(as_owner: Client, team: Team) -> None:
    data = filled(as_owner, "/launch/grpo/")
    first, second = as_owner.post("/launch/grpo/", data), as_owner.post("/launch/grpo/", data)
    assert first.headers["Location"] == second.headers["Location"]
    assert Run.objects.of(team).count() == 1
    assert send(as_owner, "/launch/grpo/").status_code == 302  # a form opened anew is another launch
    assert Run.objects.of(team).count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_clicks_at_the_same_moment_launch_once(as_owner: Client, team: Team) -> None:
    data = filled(as_owner, "/launch/grpo/")
    gate, places = threading.Barrier(4), []

    def click() -> None:
        client = Client()
        client.cookies = as_owner.cookies
        gate.wait()
        places.append(client.post("/launch/grpo/", data).headers["Location"])
        connection.close()

    clicks = [threading.Thread(target=click) for _ in range(4)]
    for thread in clicks:
        thread.start()
    for thread in clicks:
        thread.join()
    assert len(set(places)) == 1
    assert len(places) == 4
    assert Run.objects.of(team).count() == 1


def test_the_demo_button_launches_the_chain_once(as_owner: Client, team: Team) -> None:
    for _ in range(2):
        assert as_owner.post("/demo/", {"token": "abc"}).status_code == 302
    assert [run.recipe for run in Run.objects.of(team)] == ["demo"] * 3
    assert as_owner.get("/demo/").status_code == 405


@pytest.mark.feature(10)
def test_a_clone_starts_with_the_launched_settings(as_owner: Client, team: Team, parent: Run) -> None:
    assert as_owner.get(f"/launch/?clone={parent.pk}").headers["Location"] == f"/launch/grpo/?clone={parent.pk}"
    url = f"/launch/grpo/?clone={parent.pk}"
    assert filled(as_owner, url)["stages.0.training.max_steps"] == "77"
    send(as_owner, url, **{"stages.0.training.max_steps": "88"})
    clone = Run.objects.of(team).get(number=2)
    assert clone.cloned_from == parent
    assert clone.name == "parent"
    expected = {**parent.spec, "output": clone.spec["output"], "training": {**parent.spec["training"], "max_steps": 88}}
    assert clone.spec == expected


def test_the_clone_of_a_recipe_that_is_gone_still_opens(as_owner: Client, team: Team, owner: User) -> None:
    run = launch_run(team, owner, {**GRPO, "recipe": "Very Own/Recipe"})
    target = as_owner.get(f"/launch/?clone={run.pk}").headers["Location"]
    assert send(as_owner, target).status_code == 302
    assert Run.objects.of(team).get(number=2).recipe == "Very Own/Recipe"


@pytest.mark.feature(10)
def test_a_clone_says_what_was_changed(as_owner: Client, parent: Run) -> None:
    data = filled(as_owner, f"/launch/grpo/?clone={parent.pk}", **{"stages.0.training.max_steps": "88"})
    page = as_owner.post("/preflight/", data).content.decode()
    assert "Changed from #1" in page
    assert "<del>77</del> <ins>88</ins>" in page


def test_a_next_stage_starts_from_the_runs_policy_on_its_task(as_owner: Client, team: Team, owner: User) -> None:
    training = launch_run(team, owner, {**GRPO, "task": {"name": "calendar", "difficulty": "hard"}}, "still training")
    Run.across_teams.filter(pk=training.pk).update(status=Status.RUNNING)
    page = as_owner.get(f"/launch/?after={training.pk}").content.decode()
    assert f'href="/launch/dpo/?after={training.pk}"' in page
    assert 'href="/launch/demo/' not in page  # a chain starts from its own policy
    assert send(as_owner, f"/launch/dpo/?after={training.pk}").status_code == 302
    child = Run.objects.of(team).get(number=2)
    assert child.parent == training
    assert child.spec["policy"] == {"kind": "run", "folder": str(training.folder), "checkpoint": "final"}
    assert child.spec["task"]["name"] == "calendar"
    assert child.spec["task"]["difficulty"] == "hard"


def test_a_run_from_a_checkpoint_waits_for_nobody(as_owner: Client, team: Team, parent: Run) -> None:
    folder = parent.folder / "checkpoints/checkpoint-40"
    folder.mkdir(parents=True)
    Checkpoint.objects.create(run=parent, attempt=1, step=40, path="checkpoints/checkpoint-40", bytes=1, created_at=parent.created_at)
    url = f"/launch/dpo/?after={parent.pk}&checkpoint=40"
    data = filled(as_owner, url)
    assert data["policy.run"] == f"{parent.pk}:40"
    draft = drafts.of_next_stage(load_catalog(), "dpo", parent, "40")
    form = LaunchForm(team, load_catalog(), draft, data)
    assert form.parent is None
    assert form.specs()[0]["policy"] == {"kind": "run", "run": str(parent.pk), "checkpoint": 40}


@pytest.mark.parametrize("url", ["/launch/?clone={}", "/launch/?after={}", "/launch/grpo/?clone={}", "/launch/dpo/?after={}"])
def test_another_teams_run_is_not_found(url: str, as_stranger: Client, parent: Run) -> None:
    assert as_stranger.get(url.format(parent.pk)).status_code == 404
    assert as_stranger.get(url.format("not-a-run")).status_code == 404


def test_another_teams_policy_is_refused_even_if_its_id_is_known(as_stranger: Client, parent: Run) -> None:
    response = send(as_stranger, "/launch/grpo/", **{"policy": "run", "policy.run": f"{parent.pk}:final"})
    assert response.status_code == 422
    assert "no such run" in error_of(response.content.decode(), "policy.run")
    clone = filled(as_stranger, "/launch/grpo/", clone=str(parent.pk))
    assert as_stranger.post("/launch/grpo/", clone).status_code == 404
    assert as_stranger.post("/preflight/", clone).status_code == 404


def test_a_run_of_a_script_elsewhere_is_no_policy_and_no_template(as_owner: Client, team: Team, parent: Run) -> None:
    """It is not offered, and who names it all the same is told why, on the page and over the API's way in."""
    spec = {"outside": {"seed": 1}, "training": {"trainer": "grpo", "max_steps": 10}}
    elsewhere = Run.objects.create(
        team=team,
        number=77,
        name="mine",
        outside=True,
        status=Status.FINISHED,
        step=10,
        spec=spec,
        recipe="outside",
        trainer="grpo",
        task="t",
        policy="p",
    )
    assert not any(value.startswith(str(elsewhere.pk)) for value, _ in drafts.runs_with_policies(team, also=elsewhere))
    assert list_policy_candidates(elsewhere) == []
    for address in (f"/launch/?clone={elsewhere.pk}", f"/launch/?after={elsewhere.pk}", f"/launch/dpo/?after={elsewhere.pk}"):
        answer = as_owner.get(address, follow=True)
        assert answer.redirect_chain == [(f"/runs/{elsewhere.pk}/", 302)]
        assert "was trained by an external script, which has the policy" in answer.content.decode()
    with pytest.raises(SpecError) as refusal:
        references.resolve_references(team, {**GRPO, "policy": {"kind": "run", "run": str(elsewhere.pk), "checkpoint": "final"}})
    assert [(one.field, one.message) for one in refusal.value.problems] == [("policy.run", references.OUTSIDE)]
    with pytest.raises(ApiProblem, match="cannot launch it again"):
        of_clone(elsewhere, {}, "again")
