"""A worker whose shared folders are mounted under another name trains the run that was launched, in the folder that the lab looks into."""

from pathlib import Path
from typing import Any

import pytest

from lab.supervision.supervisor.local_paths import localize_spec_paths
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run

pytestmark = pytest.mark.django_db
ROOTS = ("runs", "policies", "datasets")


@pytest.fixture
def spec(team: Team, tmp_path: Path, settings: Any) -> dict[str, Any]:
    """Launched on a machine that has everything below /launcher; here it lies below ``tmp_path``."""
    for name in ROOTS:
        setattr(settings, f"{name.upper()}_ROOT", tmp_path / name)
    for name in ("runs/parent", "policies/small", f"datasets/{team.pk}/tasks"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("pairs.jsonl", "tasks/own.task.jsonl"):
        (tmp_path / f"datasets/{team.pk}" / name).touch()
    return {
        "output": "/launcher/runs/own",
        "policy": {"kind": "run", "folder": "/launcher/runs/parent", "checkpoint": 50},
        "teacher": {"kind": "folder", "path": "/launcher/policies/small"},
        "dataset": {"path": f"/launcher/datasets/{team.pk}/pairs.jsonl", "sha256": "0"},
        "task": {"name": "own", "file": {"path": f"/launcher/datasets/{team.pk}/tasks/own.task.jsonl", "sha256": "0"}},
    }


def test_paths_of_the_launching_machine_become_this_ones(team: Team, tmp_path: Path, spec: dict[str, Any]) -> None:
    run = Run.objects.create(team=team, number=1, name="own", spec=spec)
    assert localize_spec_paths(run) == {
        "output": str(run.folder),
        "policy": {"kind": "run", "folder": str(tmp_path / "runs/parent"), "checkpoint": 50},
        "teacher": {"kind": "folder", "path": str(tmp_path / "policies/small")},
        "dataset": {"path": str(tmp_path / f"datasets/{team.pk}/pairs.jsonl"), "sha256": "0"},
        "task": {"name": "own", "file": {"path": str(tmp_path / f"datasets/{team.pk}/tasks/own.task.jsonl"), "sha256": "0"}},
    }
    assert run.spec == spec  # what was launched stays as it was launched


def test_what_exists_stays_and_what_is_nowhere_keeps_its_name(team: Team, tmp_path: Path, spec: dict[str, Any]) -> None:
    elsewhere = tmp_path / "elsewhere/small"
    elsewhere.mkdir(parents=True)
    spec["teacher"]["path"] = str(elsewhere)  # although policies/small is there too
    spec["dataset"]["path"] = f"/launcher/datasets/{team.pk}/gone.jsonl"
    found = localize_spec_paths(Run.objects.create(team=team, number=1, name="own", spec=spec))
    assert (found["teacher"]["path"], found["dataset"]["path"]) == (str(elsewhere), f"/launcher/datasets/{team.pk}/gone.jsonl")
    bare = {"task": {"name": "mini_gsm"}, "policy": {"kind": "tiny"}}
    assert localize_spec_paths(Run.objects.create(team=team, number=2, name="bare", spec=bare)) == bare
