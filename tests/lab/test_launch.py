"""From a recipe or a spec to queued runs."""

import threading
import uuid
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from lab.teams.accounts.models import Team, User
from lab.training.runs import launch as launching
from lab.training.runs import preflight
from lab.training.runs.launch import PENDING, launch_recipe, launch_run, plan_recipe
from lab.training.runs.models import Checkpoint, Run, Status
from lab.training.runs.preflight import PreflightError, run_preflight
from lab.training.runs.references import restore_reference_names
from lab.training.runs.stages import from_assignments
from trainers.contract.spec import SpecError, parse_spec

SPEC: dict[str, Any] = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, UUID, str]]:
    messages: list[tuple[str, UUID, str]] = []
    monkeypatch.setattr(launching, "send_task_message", lambda task, run_id, queue: messages.append((task, run_id, queue)))
    return messages


def problems(caught: pytest.ExceptionInfo[SpecError]) -> dict[str, str]:
    return {problem.field: str(problem) for problem in caught.value.problems}


def test_a_run_is_queued_with_what_lists_show(team: Team, owner: User) -> None:
    run = launch_run(team, owner, SPEC, "first try")
    run.refresh_from_db()
    assert (run.number, run.name, run.status, run.trainer, run.task, run.policy) == (1, "first try", "queued", "grpo", "mini_gsm", "tiny")
    assert (run.recipe, run.queue, run.total_steps, run.created_by) == ("custom", "gpu", 150, owner)
    assert parse_spec(run.spec).output == str(run.folder)


def test_the_message_is_sent_once_the_run_is_committed(
    team: Team, sent: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        run = launch_run(team, None, SPEC)
        assert sent == []
    assert sent == [("supervise", run.pk, "gpu")]


def test_a_refused_spec_leaves_nothing_behind(team: Team) -> None:
    with pytest.raises(SpecError) as caught:
        launch_run(team, None, {**SPEC, "training": {"trainer": "grpo", "num_generations": 7, "max_stepz": 3}})
    assert set(problems(caught)) >= {"training.max_stepz"}
    assert not Run.across_teams.exists()


def test_a_chain_goes_on_from_the_stage_before(team: Team, owner: User, sent: list[Any]) -> None:
    cold, grpo, dpo = launch_recipe(team, owner, "demo", {"training": {"max_steps": 20}, "seed": 7})
    assert [run.trainer for run in (cold, grpo, dpo)] == ["sft", "grpo", "dpo"]
    assert [run.parent for run in (cold, grpo, dpo)] == [None, cold, grpo]
    assert [run.number for run in (cold, grpo, dpo)] == [1, 2, 3]
    assert grpo.spec["policy"] == {"kind": "run", "folder": str(cold.folder), "checkpoint": "final"}
    assert (cold.policy, grpo.policy, dpo.policy) == ("tiny, untrained", "#1", "#2")
    for run in (cold, grpo, dpo):
        assert (run.spec["training"]["max_steps"], run.spec["seed"], run.recipe) == (20, 7, "demo")


def test_only_the_first_stage_of_a_chain_is_sent(
    team: Team, sent: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        first, *_ = launch_recipe(team, None, "demo")
    assert sent == [("supervise", first.pk, "gpu")]


def test_a_change_reaches_the_stages_it_fits(team: Team) -> None:
    cold, grpo, dpo = launch_recipe(team, None, "demo", {"training": {"num_generations": 4, "beta": 0.2}})
    assert grpo.spec["training"]["num_generations"] == 4
    assert grpo.spec["training"]["beta"] == dpo.spec["training"]["beta"] == 0.2
    assert "beta" not in cold.spec["training"]


def test_a_change_can_name_the_trainer_it_is_for(team: Team) -> None:
    _, grpo, dpo = launch_recipe(team, None, "demo", {"training": {"trainer": "dpo", "beta": 0.3}})
    assert (grpo.spec["training"]["beta"], dpo.spec["training"]["beta"]) == (0.0, 0.3)


def test_a_single_stage_can_be_changed(team: Team) -> None:
    runs = launch_recipe(team, None, "demo", {"stages": [{}, {"training": {"max_steps": 11}}, {"evaluation": {"every": 3}}]})
    assert [run.spec["training"]["max_steps"] for run in runs][1] == 11
    assert [run.spec["evaluation"]["every"] for run in runs] == [200, 50, 3]


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"training": {"max_stepz": 3}}, "stages.0.training.max_stepz"),
        ({"stages": [{}, {"training": {"num_generations": 7}}, {}]}, "stages.1.training.num_generations"),
        ({"stages": [{}]}, "stages"),
        ({"stages": "all"}, "stages"),
        ({"stages": [{}, {"policy": {"kind": "tiny"}}, {}]}, "stages.1.policy"),
        ({"dataset": {"file": "rows.jsonl"}}, "dataset"),
    ],
)
def test_a_chain_with_one_bad_stage_launches_none(team: Team, overrides: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        launch_recipe(team, None, "demo", overrides)
    assert list(problems(caught)) == [field]
    assert not Run.across_teams.exists()


def test_an_unknown_recipe_lists_the_names(team: Team) -> None:
    with pytest.raises(SpecError, match=r"there are: .*calendar.*grpo"):
        launch_recipe(team, None, "gppo")


def test_another_policy_kind_replaces_the_recipes(team: Team) -> None:
    (run,) = launch_recipe(team, None, "grpo", {"policy": {"kind": "hub", "name": "Qwen/Qwen2.5-0.5B-Instruct"}})
    assert run.policy == "Qwen/Qwen2.5-0.5B-Instruct"
    assert "cold_start" not in run.spec["policy"]


def test_what_would_be_launched_can_be_seen_first(team: Team) -> None:
    specs = plan_recipe(team, "demo", {"seed": 3})
    assert [spec.seed for spec in specs] == [3, 3, 3]
    assert {spec.output for spec in specs} == {PENDING}
    assert not Run.across_teams.exists()


@pytest.mark.django_db(transaction=True)
def test_numbers_have_neither_gaps_nor_repeats_when_many_launch_at_once(team: Team) -> None:
    together, errors = threading.Barrier(6), []

    def go() -> None:
        try:
            together.wait()
            for _ in range(4):
                launch_run(team, None, SPEC)
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=go) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(Run.across_teams.values_list("number", flat=True)) == list(range(1, 25))


def finished(team: Team) -> Run:
    run = launch_run(team, None, SPEC)
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED)
    run.refresh_from_db()
    return run


def test_a_policy_of_a_run_becomes_its_folder(team: Team) -> None:
    before = finished(team)
    run = launch_run(team, None, {**SPEC, "policy": {"kind": "run", "run": str(before.pk)}})
    assert run.spec["policy"] == {"kind": "run", "folder": str(before.folder), "checkpoint": "final"}
    assert run.policy == "#1"
    assert restore_reference_names(team, run.spec)["policy"] == {"kind": "run", "run": str(before.pk), "checkpoint": "final"}


def test_a_checkpoint_must_be_there(team: Team) -> None:
    before = launch_run(team, None, SPEC)
    spec = {**SPEC, "policy": {"kind": "run", "run": str(before.pk), "checkpoint": 50}}
    with pytest.raises(SpecError, match="no such checkpoint"):
        launch_run(team, None, spec)
    (before.folder / "checkpoints/checkpoint-50").mkdir(parents=True)
    Checkpoint.objects.create(run=before, attempt=1, step=50, path="checkpoints/checkpoint-50", bytes=1, created_at=timezone.now())
    run = launch_run(team, None, spec)
    assert run.policy == "#1 at step 50"
    with pytest.raises(SpecError, match="checkpoints at steps 50"):
        launch_run(team, None, {**SPEC, "policy": {"kind": "run", "run": str(before.pk), "checkpoint": 51}})


def test_an_unfinished_run_has_no_final_policy(team: Team) -> None:
    before = launch_run(team, None, SPEC)
    with pytest.raises(SpecError, match="queued and has no final policy yet") as caught:
        launch_run(team, None, {**SPEC, "policy": {"kind": "run", "run": str(before.pk)}})
    assert list(problems(caught)) == ["policy.run"]


def test_another_teams_run_does_not_exist(team: Team, stranger: User) -> None:
    theirs = finished(stranger.memberships.get().team)
    for name in (str(theirs.pk), str(uuid.uuid4()), "1", "", None, {"a": 1}):
        with pytest.raises(SpecError, match="your team has no such run"):
            launch_run(team, None, {**SPEC, "policy": {"kind": "run", "run": name}})
    with pytest.raises(SpecError, match="your team has no such run"):
        launch_run(team, None, SPEC, parent=theirs)


@pytest.mark.parametrize("path", ["/etc", "../secrets", "..", "a/b", "", "\0", None, 7])
def test_no_path_comes_from_a_browser(team: Team, settings: Settings, tmp_path: Path, path: object) -> None:
    settings.POLICIES_ROOT = settings.DATASETS_ROOT = tmp_path
    for part in ({"policy": {"kind": "folder", "path": path}}, {"policy": {"kind": "folder", "folder": path}}, {"dataset": {"file": path}}):
        with pytest.raises(SpecError) as caught:
            launch_run(team, None, {**SPEC, **part})
        assert next(iter(problems(caught))).split(".")[0] in part
    with pytest.raises(SpecError, match="no run is chosen"):
        launch_run(team, None, {**SPEC, "policy": {"kind": "run", "folder": path}})


def test_a_folder_and_a_file_are_found_by_name(team: Team, settings: Settings, tmp_path: Path) -> None:
    settings.POLICIES_ROOT, settings.DATASETS_ROOT = tmp_path / "policies", tmp_path / "datasets"
    (tmp_path / "policies/mine").mkdir(parents=True)
    (tmp_path / f"datasets/{team.pk}").mkdir(parents=True)
    (tmp_path / f"datasets/{team.pk}/rows.jsonl").write_text("{}")
    asked = {**SPEC, "policy": {"kind": "folder", "folder": "mine"}, "dataset": {"file": "rows.jsonl"}}
    run = launch_run(team, None, asked)
    assert run.spec["policy"]["path"] == str(tmp_path / "policies/mine")
    assert run.spec["dataset"]["path"] == str(tmp_path / f"datasets/{team.pk}/rows.jsonl")
    assert run.policy == "mine"
    again = restore_reference_names(team, run.spec)
    assert (again["policy"], again["dataset"]) == (asked["policy"], asked["dataset"])
    with pytest.raises(SpecError, match=r"there are: mine"):
        launch_run(team, None, {**SPEC, "policy": {"kind": "folder", "folder": "yours"}})


def test_another_teams_dataset_is_not_found(team: Team, stranger: User, settings: Settings, tmp_path: Path) -> None:
    settings.DATASETS_ROOT = tmp_path
    theirs = tmp_path / str(stranger.memberships.get().team.pk)
    theirs.mkdir()
    (theirs / "rows.jsonl").write_text("{}")
    with pytest.raises(SpecError, match="not found"):
        launch_run(team, None, {**SPEC, "dataset": {"file": "rows.jsonl"}})


def test_the_command_line_may_give_paths(team: Team, tmp_path: Path) -> None:
    run = launch_run(
        team, None, {**SPEC, "policy": {"kind": "folder", "path": str(tmp_path)}, "dataset": {"path": str(tmp_path / "x.jsonl")}}, paths=True
    )
    assert (run.spec["policy"]["path"], run.spec["dataset"]["path"]) == (str(tmp_path), str(tmp_path / "x.jsonl"))


def test_assignments_become_overrides() -> None:
    given = ["training.max_steps=20", "task.difficulty=medium", "lora=null", "name=true story", "seed=3", "stages.1.training.beta=0.5"]
    assert from_assignments(given) == {
        "training": {"max_steps": 20},
        "task": {"difficulty": "medium"},
        "lora": None,
        "name": "true story",
        "seed": 3,
        "stages": [{}, {"training": {"beta": 0.5}}],
    }


@pytest.mark.parametrize("text", ["training", "=3", "a..b=1", ".=1", "stages.x.seed=1", "stages.1=2", "stages.100.seed=1"])
def test_a_malformed_assignment_is_named(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        from_assignments([text])
    assert text.partition("=")[0] in str(caught.value)


def test_two_assignments_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(SpecError, match="seed already has the value 3"):
        from_assignments(["seed=3", "seed.deep=4"])


def test_preflight_reports_problems_and_samples(team: Team) -> None:
    spec = plan_recipe(team, "grpo")[0].model_dump(mode="json")
    report = run_preflight(spec)
    assert report["problems"] == []
    assert report["samples"]
    assert report["gold"]
    bad = run_preflight({**spec, "task": {"name": "mini_gsm", "difficulty": "nightmare"}})
    assert [problem["field"] for problem in bad["problems"]] == ["task.difficulty"]


def test_preflight_leaves_a_pending_policy_alone(team: Team) -> None:
    spec = plan_recipe(team, "demo")[1].model_dump(mode="json")
    assert run_preflight(spec, policy_pending=True)["problems"] == []
    assert [problem["field"].split(".")[0] for problem in run_preflight(spec)["problems"]] == ["policy"]


def test_a_preflight_that_dies_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "CHECK", "trainers.checks.nowhere:answer_preflight")
    with pytest.raises(PreflightError, match=r"the check failed: ModuleNotFoundError: No module named"):
        run_preflight({})


def test_a_child_of_the_preflight_learns_a_variable_that_is_set_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """And keeps nothing of it: every check is a process of its own."""
    monkeypatch.setattr(preflight, "CHECK", "tests.lab.test_bounded_process:tell_environment_of_preflight")
    assert "HF_ENDPOINT" not in run_preflight({})
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example.org")
    assert run_preflight({})["HF_ENDPOINT"] == "http://hub.example.org"
