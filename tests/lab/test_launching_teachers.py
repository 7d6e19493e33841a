"""The teacher of a distillation: chosen in the launch form like a policy, found in the team alone, and there again in a clone."""

from pathlib import Path

import pytest
from django.test import Client

from lab.teams.accounts.models import Team, User
from lab.training.runs.forms import read_teacher, write_teacher_inputs
from lab.training.runs.launch import check_launch_spec
from lab.training.runs.models import Run
from lab.training.runs.references import restore_reference_names
from tests.lab.html_forms import filled, send
from tests.lab.loop.making import finished_run
from trainers.contract.spec import SpecError

TEACHERS = (
    {"kind": "tiny"},
    {"kind": "hub", "name": "a/b", "revision": "main"},
    {"kind": "hub", "name": "a/b", "revision": "v2"},
    {"kind": "folder", "folder": "mine"},
    {"kind": "run", "run": "0b5e", "checkpoint": "final"},
    {"kind": "run", "run": "0b5e", "checkpoint": 40},
)


@pytest.mark.parametrize("teacher", TEACHERS, ids=str)
def test_every_teacher_comes_back_from_its_inputs(teacher: dict[str, str | int]) -> None:
    typed = write_teacher_inputs(teacher)
    assert read_teacher(typed["teacher"], typed["teacher_hub"]) == teacher


def test_a_run_of_the_team_is_chosen_and_still_there_in_a_clone(as_owner: Client, team: Team, owner: User) -> None:
    teacher = finished_run(team, owner)
    send(as_owner, "/launch/gkd/", teacher=f"run:{teacher.pk}:final")
    run = Run.objects.of(team).latest("number")
    assert run.spec["teacher"] == {"kind": "run", "folder": str(teacher.folder), "checkpoint": "final"}
    assert run.spec["policy"]["kind"] == "tiny"
    values = filled(as_owner, f"/launch/gkd/?clone={run.pk}")
    assert values["teacher"] == f"run:{teacher.pk}:final"
    assert restore_reference_names(team, run.spec)["teacher"] == {"kind": "run", "run": str(teacher.pk), "checkpoint": "final"}
    assert "Teacher" in as_owner.get(f"/runs/{run.pk}/config/").content.decode()


def test_a_model_of_the_hub_goes_before_the_list(as_owner: Client, team: Team) -> None:
    send(as_owner, "/launch/gkd/", teacher_hub="Qwen/Qwen2.5-1.5B-Instruct@abc")
    assert Run.objects.of(team).get().spec["teacher"] == {"kind": "hub", "name": "Qwen/Qwen2.5-1.5B-Instruct", "revision": "abc"}


def test_other_trainers_have_no_teacher(as_owner: Client, team: Team) -> None:
    assert 'name="teacher"' not in as_owner.get("/launch/grpo/").content.decode()
    send(as_owner, "/launch/grpo/", teacher="tiny")
    assert Run.objects.of(team).get().spec["teacher"] is None


def test_another_teams_run_is_no_teacher(team: Team, stranger: User, tmp_path: Path) -> None:
    foreign = finished_run(stranger.memberships.get().team, stranger)
    for teacher, field in (
        ({"kind": "run", "run": str(foreign.pk)}, "teacher.run"),
        ({"kind": "run", "folder": str(foreign.folder)}, "teacher.run"),
        ({"kind": "folder", "path": str(tmp_path)}, "teacher.path"),
        ({"kind": "folder", "folder": "../x"}, "teacher.folder"),
    ):
        spec = {"task": {"name": "mini_gsm"}, "training": {"trainer": "gkd"}, "teacher": teacher, "output": "x"}
        with pytest.raises(SpecError) as caught:
            check_launch_spec(team, spec)
        assert [problem.field for problem in caught.value.problems] == [field]
