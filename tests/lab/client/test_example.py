"""docs/examples/client.py, run as it stands against a real lab."""

from __future__ import annotations

from typing import Any

import pytest

from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.lab.cast import make_cast
from tests.lab.test_imports import ROOT

EXAMPLE = ROOT / "docs/examples/client.py"


@pytest.mark.feature(80)
@pytest.mark.timeout(60, func_only=True)
@pytest.mark.django_db(transaction=True)
def test_the_example_reads_launches_and_follows(live_server: Any, secret: str, team: Team, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    cast = make_cast(team, owner, "mark")
    monkeypatch.setenv("LAB_URL", live_server.url)
    monkeypatch.setenv("LAB_TOKEN", secret)
    shown: dict[str, Any] = {}
    exec(compile(EXAMPLE.read_text(), str(EXAMPLE), "exec"), shown)
    stored = Rollout.objects.filter(run=cast.run).current()
    assert shown["read"].id == str(cast.run.pk)
    assert shown["table"]["reward"].to_dict() == {1: 0.5}
    assert {row.id for row in shown["rest"]} | {shown["newest"].id} == set(stored.values_list("pk", flat=True))
    assert set(shown["frame"]["id"]) == set(stored.filter(reward__gte=0.5).values_list("pk", flat=True))
    assert list(shown["agreement"]) == [cast.queue.name]
    assert [problem.field for problem in shown["problems"]] == ["overrides.training.max_steps"]
    assert Run.objects.of(team).get(name="from a notebook").status == Status.STOPPED
    assert shown["launched"].total_steps == 5
