"""Grids over the API: checked, launched once, read as a matrix, resumed."""

from typing import Any

import pytest

from lab.teams.accounts.models import Team, User
from lab.training.ablations.models import Ablation
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Run, Status
from tests.lab.api.conftest import ApiClient
from tests.lab.test_grids import MEASURED, RATE, SPEC, TRAINED, TRAINER, finish


def fields(response: Any) -> list[str]:
    assert response.status_code == 422, response.content
    return [error["field"] for error in response.json()["errors"]]


def test_a_grid_is_checked_launched_once_and_read_as_a_matrix(api: ApiClient, team: Team, owner: User) -> None:
    source = launch_run(team, owner, SPEC, "source")
    body = {"run": str(source.pk), "factors": [TRAINED, MEASURED], "seeds": 2, "check": False, "budget": {"kind": "steps", "value": 12}}
    plan = api.send("grids/check", body).json()
    assert (plan["runs"], plan["cells"], plan["estimate"]["runs"]) == (4, ["easy", "hard"], 4)
    made = [api.send("grids", body, **{"Idempotency-Key": "one"}) for _ in range(2)]
    assert [one.status_code for one in made] == [201, 200], made[0].content
    grid = Ablation.across_teams.get()
    for member in grid.in_order():
        gains = {"easy": 0.4, "hard": 0.2} if member.variant == "easy" else {"easy": 0.1, "hard": 0.4}
        finish(member, **{f"heldout_{name}": [(0, 0.1), (12, 0.1 + gain)] for name, gain in gains.items()})
    found = api.ask(f"grids/{grid.pk}").json()
    assert (found["kind"], found["name"], found["run"], found["budget"]) == ("grid", "Grid of #1 source", str(source.pk), body["budget"])
    assert [cell["levels"] for cell in found["cells"]] == [["easy", "easy"], ["easy", "hard"], ["hard", "easy"], ["hard", "hard"]]
    assert [cell["mean"]["mean"] for cell in found["cells"]] == [pytest.approx(value) for value in (0.5, 0.3, 0.2, 0.5)]
    assert found["cells"][1]["seeds"][0] | {"run": "", "number": 0} == {
        "seed": 3,
        "run": "",
        "number": 0,
        "status": "finished",
        "value": pytest.approx(0.3),
        "before": pytest.approx(0.1),
        "short": False,
    }
    assert [(one["level"], one["ratio"]) for one in found["transfers"]] == [("easy", pytest.approx(0.5)), ("hard", pytest.approx(0.25))]
    assert found["factors"] == [
        {"name": factor["name"], "levels": [{"changes": {}, "metric": "", **level} for level in factor["levels"]]} for factor in (TRAINED, MEASURED)
    ]
    listed = api.ask("ablations").json()["items"]
    assert [(one["id"], one["kind"], one["runs"]) for one in listed] == [(str(grid.pk), "grid", 4)]
    variants = api.ask(f"ablations/{grid.pk}").json()["variants"]
    assert [one["name"] for one in variants] == ["easy", "hard"]


def test_another_quantity_is_read_on_demand(api: ApiClient) -> None:
    made = api.send("grids", {"spec": SPEC, "factors": [RATE], "seeds": 1, "check": False}).json()
    for member in Ablation.across_teams.get().in_order():
        finish(member, heldout_accuracy=[(0, 0.1), (20, 0.5)], heldout_reward=[(20, 2.0)])
    assert api.ask(f"grids/{made['id']}").json()["cells"][0]["mean"] == {"mean": 0.5, "low": None, "high": None, "count": 1}
    found = api.ask(f"grids/{made['id']}", quantity="heldout-reward").json()
    assert (found["quantity"], found["cells"][0]["mean"]["mean"]) == ("heldout-reward", 2.0)


def test_stopped_runs_are_resumed_and_an_ablation_is_read_as_a_grid(api: ApiClient) -> None:
    made = api.send("grids", {"spec": SPEC, "factors": [TRAINER, RATE], "seeds": 1, "check": False}).json()
    assert api.send(f"ablations/{made['id']}/resume").status_code == 409
    assert api.send(f"ablations/{made['id']}/stop").json() == {"stopped": 4}
    assert api.send(f"ablations/{made['id']}/resume").json() == {"resumed": 4}
    assert Run.across_teams.filter(status=Status.QUEUED).count() == 4
    stacked = {**SPEC, "methods": [{"name": "rs-grpo"}]}
    ablation = api.send("ablations", {"spec": stacked, "seeds": 1, "check": False}).json()
    found = api.ask(f"grids/{ablation['id']}").json()
    assert (found["kind"], [cell["levels"] for cell in found["cells"]]) == ("ablation", [["full"], ["base"]])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"factors": []}, ["factors"]),
        ({"factors": [RATE] * 4}, ["factors"]),
        ({"factors": [{**RATE, "levels": [{"name": "a", "changes": {"training.beta": 0.1}, "metric": "heldout/a"}]}]}, ["factors.0.levels.0.metric"]),
        ({"factors": [{"name": "Bad", "levels": [{"name": "a", "changes": {"training.beta": -1}}, {"name": "b"}]}]}, ["factors.0.levels"]),
        ({"seeds": 61}, ["seeds"]),
        ({"budget": {"kind": "reached", "value": 0.5}}, ["budget.metric"]),
        ({"budget": {"kind": "tokens", "value": 10**400}}, ["budget.value"]),
        ({"spec": {**SPEC, "evaluation": {"every": -1}}}, ["spec.evaluation.every"]),
        ({"spec": {**SPEC, "task": {"name": "none"}}, "check": True}, ["spec.task.name"]),
        ({"spec": None}, ["run"]),
    ],
)
def test_what_is_refused_names_its_field_and_queues_nothing(changes: dict[str, Any], expected: list[str], api: ApiClient) -> None:
    body = {"spec": SPEC, "factors": [RATE], "check": False, **changes}
    for path in ("grids/check", "grids"):
        assert fields(api.send(path, body)) == expected
    assert not Run.across_teams.exists()
