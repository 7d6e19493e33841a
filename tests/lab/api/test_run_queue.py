"""The queue over the API: what waits and until when, its order, priorities, and workers that are drained."""

from collections.abc import Callable

import pytest

from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from lab.training.workers.models import Worker
from tests.lab.api.conftest import ApiClient
from tests.lab.queue.test_page import finish_run, queue_run


@pytest.fixture
def worker(db: None) -> Worker:
    return Worker.objects.create(name="box:1", host="h", pid=1, queues=["gpu", "big"])


@pytest.mark.feature(4, 5)
def test_the_queue_is_read_and_put_in_order(api: ApiClient, team: Team, worker: Worker) -> None:
    finish_run(team, 100)
    runs = [queue_run(team, name=name) for name in "abc"]
    [first, *_] = api.ask("queue").json()["waiting"]
    assert (first["name"], first["position"], first["waits"], first["expected_start_seconds"]) == ("a", 1, "queue position 1", 0.0)
    assert first["expected_end_seconds"] == pytest.approx(200)
    assert api.send(f"queue/{runs[2].pk}/move", {"to": "before", "before": str(runs[0].pk)}).json()["changed"]
    assert api.send(f"queue/{runs[1].pk}", {"priority": "low", "queue": "big"}, "patch").json()["changed"]
    waiting = api.ask("queue").json()["waiting"]
    assert [(one["name"], one["queue"], one["priority"]) for one in waiting] == [("b", "big", "low"), ("c", "gpu", "normal"), ("a", "gpu", "normal")]
    Run.across_teams.filter(pk=runs[0].pk).update(status=Status.RUNNING, owner="box:1/a")
    late = api.send(f"queue/{runs[0].pk}/move", {"to": "top"})
    assert (late.status_code, late.json()["detail"]) == (
        409,
        "#2 waits no longer: the worker box:1 has taken it. Nothing was changed.",
    )
    assert [one["name"] for one in api.ask("queue").json()["training"]] == ["a"]


@pytest.mark.parametrize(
    ("path", "body", "method", "field"),
    [("/move", {"to": "before"}, "post", "before"), ("", {}, "patch", "priority"), ("", {"queue": "typo"}, "patch", "queue")],
)
def test_what_cannot_be_said_names_its_field(path: str, body: dict[str, str], method: str, field: str, api: ApiClient, team: Team) -> None:
    response = api.send(f"queue/{queue_run(team).pk}{path}", body, method)
    assert (response.status_code, [one["field"] for one in response.json()["errors"]]) == (422, [field])


@pytest.mark.feature(8)
def test_admins_drain_a_worker_while_no_other_team_is_served(api: ApiClient, as_role: Callable[[str], ApiClient], worker: Worker, team: Team) -> None:
    assert as_role("researcher").send("workers/box:1", {"takes_runs": False}, "patch").status_code == 403
    assert api.send("workers/box:1", {"takes_runs": False}, "patch").json() == {"name": "box:1", "takes_runs": False, "changed": True}
    assert [one["takes_runs"] for one in api.ask("workers").json()] == [False]
    assert api.send("workers/nobody", {"takes_runs": False}, "patch").status_code == 404
    Team.objects.create(name="Other", slug="other")
    assert "only operators" in api.send("workers/box:1", {"takes_runs": True}, "patch").json()["detail"]
