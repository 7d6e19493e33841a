"""What stays on the disk: rules, their preview, deleting and taking it back, and that nothing outside a checkpoint's folder is ever touched."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from lab.lib.refusals import Refusal
from lab.models.policies import checkpoint_paths, chores, promotion, removal, retention
from lab.models.policies.models import Removal, Retention
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Checkpoint, Run, Status
from lab.training.runs.stored_checkpoints import find_local_folder
from tests.conftest import make_member
from tests.lab.loop.making import SPEC, frozen, labelled_queue, sampled
from tests.lab.policies.making import at, final_of, matched, place, trained
from trainers.contract.spec import SpecError

STEPS = (50, 100, 150, 200, 250)


@pytest.fixture
def admin(team: Team) -> User:
    return make_member("admin@example.org", team, Role.ADMIN)


def rules(team: Team, **changes: object) -> Retention:
    usual = {"keep_last": 1, "keep_best": 0, "keep_every": 0, "keep_final": True, "after_hours": 0, "active": True}
    return Retention(team=team, **{**usual, **changes})


def dropped(team: Team, **changes: object) -> list[int]:
    return sorted(one.checkpoint.step for one in retention.plan_retention(team, rules(team, **changes)).drop)


def age(hours: int) -> None:
    Checkpoint.across_teams.update(created_at=timezone.now() - timedelta(hours=hours))


def due(minutes: int = 1) -> None:
    Removal.across_teams.update(due_at=timezone.now() - timedelta(minutes=minutes))


@pytest.mark.feature(73)
def test_each_rule_keeps_what_it_says(team: Team, owner: User) -> None:
    trained(team, owner, steps=STEPS)
    assert dropped(team) == [50, 100, 150, 200]
    assert dropped(team, keep_last=3) == [50, 100]
    assert dropped(team, keep_every=100) == [50, 150]
    assert dropped(team, keep_best=1, metric="reward") == [50, 100, 150, 200]  # the best is the newest
    assert dropped(team, keep_best=2, metric="reward", smallest=True) == [150, 200]
    assert dropped(team, keep_best=1, metric="no such metric") == [50, 100, 150, 200]
    assert dropped(team, keep_final=False) == [50, 100, 150, 200, 250]  # the final policy, whose step is 250
    assert dropped(team, after_hours=1) == []
    age(2)
    assert dropped(team, after_hours=1) == [50, 100, 150, 200]


def test_what_somebody_relies_on_stays_whatever_the_rules(team: Team, admin: User) -> None:
    source = trained(team, admin, *sampled(101, 102), steps=STEPS)
    frozen(team, admin, labelled_queue(team, admin, source))  # its answers are nearest to step 100
    trained(team, admin, steps=(50, 60), name="child", policy={"kind": "run", "run": str(source.pk), "checkpoint": 50})
    promotion.assign_alias(team, admin, at(source, 150), "candidate")
    plan = retention.plan_retention(team, rules(team, keep_final=False))
    reasons = {one.checkpoint.step: " ".join(one.reasons) for one in plan.keep if one.checkpoint.run_id == source.pk}
    assert "#2 started from it" in reasons[50]
    assert "dataset version" in reasons[100]
    assert "alias candidate" in reasons[150]
    assert 200 in {one.checkpoint.step for one in plan.drop}


def test_runs_that_are_not_over_and_what_a_stopped_one_resumes_from_stay(team: Team, owner: User) -> None:
    run = trained(team, owner, steps=STEPS)
    run.checkpoints.filter(final=True).delete()
    for status in (Status.QUEUED, Status.RUNNING, Status.STOPPING, Status.LOST):
        Run.across_teams.filter(pk=run.pk).update(status=status)
        assert dropped(team) == []
    Run.across_teams.filter(pk=run.pk).update(status=Status.STOPPED)
    with pytest.raises(Refusal, match="resumed from it"):
        removal.request_removal(team, owner, at(run, 250))


def test_what_people_were_asked_about_stays(team: Team, owner: User) -> None:
    run, _ = matched(team, owner, prompts=4)
    assert dropped(team, keep_final=False) == [50]
    with pytest.raises(Refusal, match="in a match"):
        removal.request_removal(team, owner, final_of(run))


def test_the_rules_delete_after_the_time_to_take_it_back(team: Team, admin: User, client: Client) -> None:
    run = trained(team, admin, steps=STEPS)
    age(48)
    retention.save_retention_rules(team, admin, rules(team))
    chores.sweep_policies()
    assert Removal.across_teams.filter(by=None, deleted_at=None).count() == 4
    assert all(checkpoint_paths.has_checkpoint_files(one) for one in run.checkpoints.all())
    removal.cancel_removal(team, admin, at(run, 100))
    due()
    chores.sweep_policies()
    assert [one.step for one in run.checkpoints.filter(final=False) if checkpoint_paths.has_checkpoint_files(one)] == [250, 100]
    assert Removal.across_teams.exclude(deleted_at=None).count() == 3
    assert {entry.details["by"] for entry in Entry.across_teams.filter(action="policy.delete")} == {"the team's rules"}
    assert run.checkpoints.count() == 6  # the rows stay
    Retention.across_teams.update(looked_at=None)
    chores.sweep_policies()
    assert not Removal.across_teams.filter(deleted_at=None, kept_at=None).exists()  # what somebody kept is left alone
    client.force_login(admin)
    assert "the rules" in client.get("/policies/retention/").content.decode()
    assert "retention rules" in client.get(f"/policies/{at(run, 50).pk}/").content.decode()


def test_a_deletion_that_is_no_longer_right_does_not_happen(team: Team, admin: User) -> None:
    run = trained(team, admin, steps=STEPS)
    removal.request_removal(team, admin, at(run, 50))
    Run.across_teams.filter(pk=run.pk).update(status=Status.QUEUED)
    due()
    chores.sweep_policies()
    assert checkpoint_paths.has_checkpoint_files(at(run, 50))
    assert "queued" in Removal.across_teams.get().problem
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED)
    due()
    chores.sweep_policies()
    assert not checkpoint_paths.has_checkpoint_files(at(run, 50))
    with pytest.raises(Refusal, match="Too late"):
        removal.cancel_removal(team, admin, at(run, 50))


def test_links_are_neither_followed_nor_deleted(team: Team, admin: User, tmp_path: Path) -> None:
    run = trained(team, admin, steps=STEPS)
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "model.safetensors").write_bytes(b"precious")
    (run.folder / "checkpoints/checkpoint-50/inside").symlink_to(outside)
    removal.request_removal(team, admin, at(run, 50))
    removal.request_removal(team, admin, at(run, 100))
    folder = run.folder / "checkpoints/checkpoint-100"
    folder.rename(tmp_path / "moved")
    folder.symlink_to(outside)
    due()
    chores.sweep_policies()
    assert not checkpoint_paths.has_checkpoint_files(at(run, 50))
    assert (outside / "model.safetensors").read_bytes() == b"precious"
    assert folder.is_symlink()
    assert find_local_folder(at(run, 100)) is None
    with pytest.raises(checkpoint_paths.FilesMissing):
        checkpoint_paths.files_of(at(run, 100))


FOREIGN = ["../other", "checkpoints/../../x", "/etc", "final/../..", "checkpoints/checkpoint-1/../../..", "", "final\n", "events.jsonl"]


@pytest.mark.parametrize("path", FOREIGN)
def test_a_path_that_is_not_ours_is_no_folder(team: Team, owner: User, path: str) -> None:
    run = trained(team, owner)
    row = Checkpoint.objects.create(run=run, attempt=1, step=7, path=path, bytes=1, created_at=run.created_at)
    assert find_local_folder(row) is None


def test_a_worker_that_died_in_the_middle_leaves_it_to_the_next(team: Team, admin: User) -> None:
    run = trained(team, admin, steps=STEPS)
    made = removal.request_removal(team, admin, at(run, 50))
    os.rename(run.folder / "checkpoints/checkpoint-50", run.folder / f".removed-{made.pk}")  # renamed, then killed
    due()
    chores.sweep_policies()
    assert not list(run.folder.glob(".removed-*"))
    assert Removal.across_teams.exclude(deleted_at=None).count() == 1


@pytest.mark.django_db(transaction=True)
def test_several_workers_delete_once(team: Team, admin: User) -> None:
    run = trained(team, admin, steps=STEPS)
    for step in STEPS[:3]:
        removal.request_removal(team, admin, at(run, step))
    due()

    def work(_: int) -> int:
        try:
            return removal.carry_out()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 3
    assert Entry.across_teams.filter(action="policy.delete", details__by=str(admin)).count() == 3


def test_a_run_whose_checkpoints_were_deleted_is_not_resumed_from_nothing(client: Client, team: Team, admin: User) -> None:
    run = trained(team, admin, steps=(50,))
    for one in run.checkpoints.all():
        removal.request_removal(team, admin, one)
    due()
    chores.sweep_policies()
    Run.across_teams.filter(pk=run.pk).update(status=Status.STOPPED)
    run.refresh_from_db()
    assert not run.resume()
    client.force_login(admin)
    page = client.post(f"/runs/{run.pk}/resume/", follow=True).content.decode()
    assert "Its checkpoints were deleted" in page
    run.refresh_from_db()
    assert run.status == Status.STOPPED


def test_a_deleted_policy_is_refused_at_launch_with_words(team: Team, admin: User) -> None:
    run = trained(team, admin, steps=(50, 100))
    removal.request_removal(team, admin, at(run, 50))
    due()
    chores.sweep_policies()
    with pytest.raises(SpecError, match="no such checkpoint"):
        launch_run(team, admin, {**SPEC, "policy": {"kind": "run", "run": str(run.pk), "checkpoint": 50}})


def test_saving_rules_names_the_field_and_keeps_what_was_typed(client: Client, team: Team, admin: User) -> None:
    client.force_login(admin)
    typed = {"keep_last": "0", "keep_best": "2", "metric": "heldout/reward", "keep_every": "7", "after_hours": "5", "active": "on"}
    answer = client.post("/policies/retention/", typed)
    assert answer.status_code == 422
    assert "Newest checkpoints per run: enter a whole number from 1" in answer.content.decode()
    assert 'value="7"' in answer.content.decode()
    assert not Retention.across_teams.exists()
    assert client.post("/policies/retention/", {**typed, "keep_last": "3"}).status_code == 302
    saved = Retention.across_teams.get()
    assert (saved.keep_last, saved.keep_every, saved.active, saved.keep_final) == (3, 7, True, False)
    assert Entry.across_teams.get(action="policy.retention").details["keep_every"] == [None, 7]
    client.force_login(make_member("r@example.org", team))
    assert client.get("/policies/retention/").status_code == 200
    assert client.post("/policies/retention/", typed).status_code == 403


def test_a_resumed_attempt_writes_the_same_checkpoint_once(client: Client, team: Team, owner: User) -> None:
    run = trained(team, owner, steps=(50, 100))
    place(run, 100, attempt=2)
    client.force_login(owner)
    page = client.get("/policies/?twins=1").content.decode()
    assert page.count("· step 100") == 1
    assert json.loads((run.folder / "final/config.json").read_text())["model_type"] == "llama"
