"""The broker is not believed: tasks are known by name, take one id, look it up, and do nothing with anything else."""

from __future__ import annotations

import logging
import uuid
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from django.apps import apps

from lab.celery import app
from lab.data.datasets.models import Version
from lab.models.policies.models import Push
from lab.rollouts.replay.models import Replay
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import make_run

GARBAGE: list[Any] = [None, "", "x", 0, -1, 2**63, 1e300, True, [], {}, ["1"], {"pk": 1}, "1 OR 1=1", "../../etc/passwd", "\0", "a" * 100_000]
UNKNOWN: list[Any] = [str(uuid.UUID(int=7)), 2**40]


def own_tasks() -> dict[str, Any]:
    for config in apps.get_app_configs():
        if config.name.startswith("lab.") and find_spec(f"{config.name}.tasks"):
            import_module(f"{config.name}.tasks")
    return {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}


def test_messages_are_json_and_nothing_else() -> None:
    """Celery CVE-2021-23727, and pickles before it: what lies in the broker must not choose what runs."""
    assert app.conf.accept_content == ["json"]
    assert app.conf.task_serializer == "json"
    assert app.conf.task_ignore_result
    assert app.conf.result_backend in (None, "disabled")
    assert set(app.conf.result_accept_content or ["json"]) == {"json"}


def test_every_task_is_known_by_a_name_of_its_own_and_takes_one_id() -> None:
    found = own_tasks()
    assert {"supervise", "replay"} <= set(found)
    for name, task in found.items():
        code = task.run.__code__
        assert "." not in name, f"{name}: give the task a name, so that a message cannot name a function"
        assert code.co_argcount == 1, f"{name}: a task takes the id of a row, everything else it reads from the row"
        assert code.co_varnames[0].endswith("_id"), name


@pytest.mark.django_db
@pytest.mark.parametrize("task", sorted(own_tasks()))
def test_a_task_drops_what_names_no_row(task: str, team: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    run = make_run(team, status=Status.QUEUED)
    for value in [*GARBAGE, *UNKNOWN]:
        assert own_tasks()[task].run(value) is None
    assert "names no row" in caplog.text
    assert "etc/passwd" not in caplog.text
    run.refresh_from_db()
    assert (run.status, run.attempt) == (Status.QUEUED, 0)
    assert [model.across_teams.count() for model in (Run, Version, Replay, Push)] == [1, 0, 0, 0]


@pytest.mark.django_db
@pytest.mark.parametrize("status", [Status.FINISHED, Status.FAILED, Status.STOPPED, Status.RUNNING])
def test_a_run_that_is_not_waiting_is_not_trained_whoever_asks(status: Status, team: Any) -> None:
    run = make_run(team, status=status)
    own_tasks()["supervise"].run(str(run.pk))
    run.refresh_from_db()
    assert (run.status, run.attempt) == (status, 0)
    assert not run.folder.exists()
