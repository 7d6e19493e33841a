"""What the API shows of a run: metrics, rollouts, tokens, groups, prompts, and what people said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.edges.api import tokens
from lab.rollouts.annotations.models import Comment
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from tests.conftest import make_member
from tests.lab.api.conftest import ApiClient, client_of
from tests.lab.cast import Cast, make_cast
from tests.lab.supervisor.spools import alternatives, measured, rollout, store


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "mark")


def test_metrics_are_named_and_read(api: ApiClient, cast: Cast) -> None:
    run = cast.run.pk
    assert "reward" in api.ask(f"runs/{run}/metrics").json()
    [series] = api.ask(f"runs/{run}/series", name="reward").json()["series"]
    assert series == {"name": "reward", "steps": [1], "values": [0.5]}
    assert api.ask(f"runs/{run}/series", name=["metric mark", "reward", "none"], points=0).json()["series"][0]["name"] == "metric mark"
    assert api.ask(f"runs/{run}/series").json()["errors"][0]["field"] == "name"


def test_a_run_is_followed_by_the_cursor_of_the_last_answer(api: ApiClient, cast: Cast) -> None:
    path = f"runs/{cast.run.pk}/series"
    whole = api.ask(path, since=0).json()
    assert {"reward", "metric mark", "@time"} <= {curve["name"] for curve in whole["series"]}
    assert api.ask(path, since=whole["cursor"]).json() == {"series": [], "cursor": whole["cursor"]}
    store(cast.run, measured(step=2))
    more = api.ask(path, since=whole["cursor"]).json()
    assert {curve["name"]: curve["steps"] for curve in more["series"]} == {"@time": [2], "@tokens": [2], "loss": [2], "reward": [2]}
    assert api.ask(path, since=whole["cursor"], name="loss").json()["series"][0]["steps"] == [2]
    assert more["cursor"] > whole["cursor"]
    assert api.ask(path, since="x").status_code == 422


def test_rollouts_come_in_pages_with_the_browsers_filters(api: ApiClient, cast: Cast) -> None:
    first = api.ask("rollouts", limit=1).json()
    second = api.ask("rollouts", limit=1, after=first["next"]).json()
    assert {first["items"][0]["id"], second["items"][0]["id"]} == {cast.rollout.pk, cast.other_rollout.pk}
    assert first["items"][0]["completion"] == "completion mark"
    [best] = api.ask("rollouts", f="reward:ge:1").json()["items"]
    assert (best["reward"], best["prompt"]) == (1.0, [{"role": "user", "content": "prompt mark"}])
    assert api.ask("rollouts", run=cast.run.number, f=["reward:lt:1", "tag:has:tag mark"]).json()["items"][0]["id"] == cast.rollout.pk
    wrong = api.ask("rollouts", f=["user__password:is:x", "reward:about:1"], sort="odd", run="x")
    assert wrong.status_code == 422
    assert api.ask("rollouts", re="(").json()["errors"][0]["field"] == "re"


def test_an_export_is_a_line_a_rollout_and_audited(api: ApiClient, cast: Cast) -> None:
    response = api.ask("rollouts/export", sort="-reward", tokens="true")
    lines = [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]
    assert response.headers["Content-Type"] == "application/x-ndjson"
    assert [line["reward"] for line in lines] == [1.0, 0.0]
    assert "token_ids" in lines[0]
    assert Entry.across_teams.filter(action="rollouts.export", via="api").count() == 1


def test_one_rollout_its_tokens_its_group_and_its_prompt(api: ApiClient, cast: Cast) -> None:
    one = api.ask(f"rollouts/{cast.rollout.pk}").json()
    assert (one["id"], one["tags"], one["comments"]) == (cast.rollout.pk, ["tag mark"], 1)
    found = api.ask(f"rollouts/{cast.rollout.pk}/tokens").json()
    assert found["total"] == len(found["ids"]) == len(found["logprobs"])
    assert "".join(unit["text"] for unit in found["units"] if not unit["special"]) == "completion mark"
    assert api.ask(f"runs/{cast.run.pk}/steps").json() == [1]
    [group] = api.ask(f"runs/{cast.run.pk}/groups", step=1).json()
    assert (group["mean"], [member["id"] for member in group["members"]]) == (0.5, [cast.rollout.pk, cast.other_rollout.pk])
    prompt = api.ask(f"prompts/{group['prompt']}").json()
    assert (prompt["messages"], prompt["series"][0]["visits"][0]["count"]) == ([{"role": "user", "content": "prompt mark"}], 2)
    assert [row["id"] for row in api.ask(f"prompts/{cast.prompt.pk}/rollouts", limit=1).json()["items"]] == [cast.other_rollout.pk]
    assert api.ask("prompts", q="nowhere").json()["items"] == []


@pytest.mark.feature(41)
@pytest.mark.feature(42)
def test_tokens_come_with_their_alternatives_and_the_samplers_word(api: ApiClient, cast: Cast) -> None:
    assert api.ask(f"rollouts/{cast.rollout.pk}/tokens").json()["alternatives"] is None
    store(cast.run, rollout(7, **alternatives()))
    [row] = api.ask("rollouts", f="step:eq:7").json()["items"]
    found = api.ask(f"rollouts/{row['id']}/tokens").json()
    assert found["sampler"] == [-0.75] * 4
    assert (found["alternatives"]["k"], found["alternatives"]["ids"]) == (2, [[1, 3], [1, 3], [1, 3], [1, 2]])
    assert found["alternatives"]["logprobs"][0] == pytest.approx([-0.6931, -1.3863], abs=1e-3)
    assert (found["alternatives"]["ranks"], found["alternatives"]["texts"]) == ([1, 2, 5, 5], {"1": "the", "2": "\n", "3": "a"})


def test_people_say_things_and_take_them_back(api: ApiClient, cast: Cast, team: Team, owner: User) -> None:
    at = f"rollouts/{cast.other_rollout.pk}"
    assert [tag["name"] for tag in api.send(f"{at}/tags", {"name": "loops"}).json()["tags"]] == ["loops"]
    [tag] = api.send(f"{at}/tags", {"name": "Loops"}).json()["tags"]
    assert api.delete(f"/api/v1/{at}/tags/{tag['id']}").json()["tags"] == []
    assert api.send(f"{at}/rating", {"value": 4}, method="put").json()["ratings"][0]["value"] == 4
    assert api.delete(f"/api/v1/{at}/rating").json()["ratings"] == []
    key = {"Idempotency-Key": "said"}
    said = [api.send(f"{at}/comments", {"text": "no"}, **key).json()["id"] for _ in range(2)]
    assert said[0] == said[1]
    answer = api.send(f"comments/{said[0]}/answers", {"text": "yes"}).json()
    assert (answer["parent"], answer["by"]["email"]) == (said[0], owner.email)
    assert api.send(f"comments/{said[0]}/resolve").json()["resolved_at"]
    assert [one["id"] for one in api.ask("comments", show="resolved").json()["items"]] == [said[0]]
    other = client_of(team, make_member("other@here.example.org", team, Role.RESEARCHER))
    assert other.delete(f"/api/v1/comments/{said[0]}").status_code == 403
    assert api.delete(f"/api/v1/comments/{said[0]}").status_code == 204
    assert Comment.across_teams.get(pk=said[0]).deleted_at
    assert api.delete(f"/api/v1/comments/{said[0]}").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("tags", {"name": " "}, "name"),
        ("tags", {}, "name"),
        ("tags", {"name": "x" * 60}, "name"),
        ("comments", {"text": ""}, "text"),
        ("comments", {"text": "x", "start": 1}, "end"),
        ("comments", {"text": "x", "start": 5, "end": 10_000}, "start"),
    ],
)
def test_what_cannot_be_said_names_its_field(path: str, body: dict[str, Any], field: str, api: ApiClient, cast: Cast) -> None:
    response = api.send(f"rollouts/{cast.rollout.pk}/{path}", body)
    assert (response.status_code, [one["field"] for one in response.json()["errors"]]) == (422, [field])


def test_a_service_token_says_nothing(team: Team, owner: User, cast: Cast) -> None:
    _, secret = tokens.create_access_token(team, None, "bot", ["rollouts.annotate", "runs.read"], None, role="researcher", by=owner)
    response = ApiClient(secret).send(f"rollouts/{cast.rollout.pk}/tags", {"name": "loops"})
    assert response.status_code == 403
    assert "Use a personal token" in response.json()["detail"]


def test_the_catalogue_and_the_workers(api: ApiClient) -> None:
    assert "grpo" in {one["name"] for one in api.ask("recipes").json()}
    assert api.ask("recipes/grpo").json()["stages"][0]["spec"]["training"]
    assert api.ask("methods/dr-grpo").json()["details"]["arxiv"] == "2503.20783"
    for path in ("recipes/none", "methods/none"):
        assert api.ask(path).status_code == 404
    assert api.ask("recipes/saved").json() == []
    assert api.ask("workers").json() == []


def test_the_map_of_systems(api: ApiClient) -> None:
    systems = {one["id"]: one for one in api.ask("systems").json()}
    assert len(systems) == 162
    assert (systems["rs-grpo"]["state"], systems["rs-grpo"]["methods"], systems["rs-grpo"]["worlds"]) == ("here", ["rs-grpo"], ["any"])
    assert systems["zerosearch"]["search"] == {"role": "control", "how": ["cold-start", "simulated", "curriculum"], "scope": "agent"}
    bandits = systems["sparse-misspecified-bandits"]
    assert (bandits["state"], bandits["outside"], bandits["methods"]) == ("listed", True, [])
