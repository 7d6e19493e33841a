"""Training on a version from the built-in policy, from a folder and from a model of the hub; nothing is preselected where no run sampled the rows."""

from typing import Any

import pytest
from django.test import Client

from lab.data.datasets.models import Row, Version
from lab.data.loop.models import Match
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.lab.html_forms import form_values
from tests.lab.loop.making import finished_run, frozen, labelled_queue, place_folder, sampled


@pytest.fixture
def version(team: Team, owner: User, settings: Any, tmp_path: Any) -> Version:
    settings.DATASETS_ROOT, settings.POLICIES_ROOT = tmp_path / "datasets", tmp_path / "policies"
    place_folder(tmp_path / "policies/small-qwen")
    run = finished_run(team, owner, *sampled(50, 56), kept=(50, 90))
    return frozen(team, owner, labelled_queue(team, owner, run))


@pytest.fixture
def imported(version: Version) -> Version:
    """As an import is: nothing says who sampled its rows."""
    Row.objects.filter(version=version).update(rollouts=[])
    return version


def send(client: Client, version: Version, **changed: str) -> Any:
    at = f"/datasets/versions/{version.pk}/train/"
    text = client.get(at).content.decode()
    return client.post(at, {**form_values(text, "novalidate"), "name": "Taught", **changed})


def test_where_no_run_sampled_the_rows_nothing_is_preselected_and_nothing_is_launched(as_owner: Client, imported: Version) -> None:
    text = as_owner.get(f"/datasets/versions/{imported.pk}/train/").content.decode()
    values = form_values(text, "novalidate")
    assert "policy" not in values
    assert values["elsewhere"] == values["folder"] == values["hub"] == values["learning_rate"] == ""
    for changed in ({}, {"policy": "elsewhere"}):
        response = send(as_owner, imported, **changed)
        assert response.status_code == 422
        assert "Choose a policy to start from." in response.content.decode()
    assert not Run.across_teams.filter(name="Taught").exists()


def test_a_folder_is_trained_from_and_matched_against_itself_before(as_owner: Client, imported: Version) -> None:
    response = send(as_owner, imported, policy="folder", folder="small-qwen", task="calendar:easy")
    assert response.status_code == 302, response.content.decode()
    run = Run.across_teams.get(name="Taught")
    assert run.spec["policy"]["kind"] == "folder"
    assert run.spec["policy"]["path"].endswith("/policies/small-qwen")
    assert (run.parent, run.spec["task"]["name"], run.spec["training"]["learning_rate"]) == (None, "calendar", 1e-6)
    assert run.spec["evaluation"]["prompts"] > 0, "the other side of the match is its own measurement before the first step"
    assert (Match.across_teams.get().child, Match.across_teams.get().against) == (run, None)


def test_a_model_of_the_hub_is_trained_from(as_owner: Client, imported: Version) -> None:
    assert send(as_owner, imported, policy="hub", hub="Qwen/Qwen2.5-0.5B-Instruct", revision="abc").status_code == 302
    assert Run.across_teams.get(name="Taught").spec["policy"] == {"kind": "hub", "name": "Qwen/Qwen2.5-0.5B-Instruct", "revision": "abc"}


def test_the_built_in_policy_is_trained_from_on_a_chosen_task(as_owner: Client, imported: Version) -> None:
    response = send(as_owner, imported, policy="tiny", task="calendar:easy")
    assert response.status_code == 302, response.content.decode()
    run = Run.across_teams.get(name="Taught")
    assert run.spec["policy"] == {"kind": "tiny", "cold_start": True}
    assert (run.parent, run.spec["task"]["name"], run.spec["training"]["learning_rate"]) == (None, "calendar", 5e-5)


def test_the_built_in_policy_is_given_no_longer_sequences_than_it_reads(as_owner: Client, version: Version) -> None:
    source = Run.across_teams.get(name="source")
    Run.across_teams.filter(pk=source.pk).update(spec={**source.spec, "training": {**source.spec["training"], "max_completion_length": 200}})
    assert send(as_owner, version, policy="tiny").status_code == 302
    assert Run.across_teams.get(name="Taught").spec["training"]["max_length"] == 256


def test_a_folder_shares_task_rewards_and_seed_with_the_run_that_sampled_the_rows(as_owner: Client, version: Version) -> None:
    source = Run.across_teams.get(name="source")
    Run.across_teams.filter(pk=source.pk).update(spec={**source.spec, "seed": 7, "task": {**source.spec["task"], "rewards": {"correct": 3.0}}})
    assert send(as_owner, version, policy="folder", folder="small-qwen").status_code == 302
    spec = Run.across_teams.get(name="Taught").spec
    assert (spec["seed"], spec["task"]["name"], spec["task"]["rewards"]) == (7, "mini_gsm", {"correct": 3.0})


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"policy": "folder", "folder": ""}, "folder", "Choose a folder. Available: small-qwen."),
        ({"policy": "folder", "folder": "../../etc"}, "folder", "There is no folder “../../etc”. Available: small-qwen."),
        ({"policy": "hub", "hub": ""}, "hub", "No model entered"),
        ({"policy": "hub", "hub": "../policy"}, "hub", "is not the id of a model on the hub"),
        ({"policy": "folder", "folder": "small-qwen", "task": "chess:hard"}, "task", "There is no task “chess:hard”"),
        ({"policy": "tiny", "task": "chess:hard"}, "task", "There is no task “chess:hard”"),
        ({"policy": "folder", "folder": "small-qwen", "evaluation": "0"}, "evaluation", "turn the blind A/B off"),
    ],
)
def test_what_cannot_be_started_from_is_refused_at_its_field(
    as_owner: Client, imported: Version, changed: dict[str, str], field: str, words: str
) -> None:
    response = send(as_owner, imported, **changed)
    assert response.status_code == 422
    assert words in response.content.decode().split(f'id="error-{field}">')[1].split("</p>")[0]
    assert not Run.across_teams.filter(name="Taught").exists()


def test_what_is_broken_in_a_folder_stands_at_the_folder(as_owner: Client, imported: Version, settings: Any) -> None:
    (settings.POLICIES_ROOT / "small-qwen/model.safetensors").unlink()
    response = send(as_owner, imported, policy="folder", folder="small-qwen")
    assert response.status_code == 422
    assert response.content.decode().split('id="error-folder">')[1].split("</p>")[0]
    assert 'value="folder" checked' in response.content.decode()
