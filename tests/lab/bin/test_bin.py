"""The bin: runs go there with what hangs on them, come back whole, or are deleted for good; nothing that others depend on goes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from lab.data.datasets.models import Row, Version
from lab.edges.api.tokens import create_access_token
from lab.labelling.labels.models import Item, Judgement, QueueStatus
from lab.lib.refusals import Refusal
from lab.models.bin import chores, verbs
from lab.models.bin.hindrances import find_bin_objections
from lab.models.policies.models import Alias, Proposal, ProposalState, Push
from lab.rollouts.annotations.models import Comment
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.supervision.outside.received_spools import RunOpening, open_run
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.ablations.models import AblationRun
from lab.training.runs.models import Checkpoint, MetricChunk, Run, Status
from tests.conftest import make_member
from tests.lab.cast import Cast, make_cast

SAID = (Rollout, RolloutTokens, Comment, Item, Judgement, Checkpoint, MetricChunk)


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "bin")


@pytest.fixture
def loose(cast: Cast) -> Run:
    """The cast's run, after everything that depends on it was taken away."""
    cast.queue.status = QueueStatus.CLOSED
    cast.queue.save()
    Row.objects.filter(version=cast.version).delete()
    AblationRun.objects.filter(run=cast.run).delete()
    Alias.objects.filter(team=cast.team).update(checkpoint=None)
    Proposal.objects.filter(team=cast.team).update(state=ProposalState.WITHDRAWN)
    Push.objects.filter(team=cast.team).update(state="finished")
    return cast.run


@pytest.fixture
def make_run(team: Team) -> Callable[..., Run]:
    def make(**fields: Any) -> Run:
        given = {"spec": {}, "recipe": "r", "trainer": "sft", "task": "t", "policy": "p", "status": Status.FINISHED, "name": "one", **fields}
        return Run.objects.create(team=team, number=Run.objects.next_number(team), **given)

    return make


def actions() -> list[str]:
    return list(
        Entry.across_teams.filter(action__in=("run.bin", "run.restore", "run.purge", "run.delete")).order_by("pk").values_list("action", flat=True)
    )


def test_what_others_depend_on_stays_and_is_named(team: Team, owner: User, cast: Cast) -> None:
    outcome = verbs.put_runs_in_bin(team, owner, [cast.run.number])
    assert not outcome.changed
    for words in (
        "the dataset version “dataset bin” v1",
        "the labelling queue “queue bin” asks about its rollouts: close it first",
        "the ablation “ablation bin” counts it",
        "alias",
    ):
        assert words in outcome.left[cast.run.number]


def test_a_run_stays_while_it_is_open_or_another_started_from_it(team: Team, owner: User, make_run: Callable[..., Run]) -> None:
    first = make_run()
    second = make_run(parent=first)
    by_policy = make_run(spec={"policy": {"kind": "run", "folder": str(second.folder), "checkpoint": "final"}})
    waiting = make_run(status=Status.QUEUED, parent=by_policy)
    every = [first, second, by_policy, waiting]
    assert find_bin_objections(team, every) == {
        waiting.pk: "queued, stop it first",
        by_policy.pk: f"#{waiting.number} started from it or waits for it",
        second.pk: f"#{by_policy.number} started from it or waits for it",
        first.pk: f"#{second.number} started from it or waits for it",
    }
    Run.objects.filter(team=team).update(status=Status.STOPPED)
    assert len(verbs.put_runs_in_bin(team, owner, [run.number for run in every]).changed) == 4  # a whole chain goes
    alone = verbs.restore_runs(team, [second.number])
    assert alone.left == {second.number: f"it started from #{first.number}, which is in the bin: restore that first"}
    assert len(verbs.restore_runs(team, [run.number for run in every]).changed) == 4


@pytest.mark.feature(6)
def test_in_the_bin_a_run_is_nowhere_and_it_comes_back_whole(team: Team, owner: User, as_owner: Client, loose: Run, cast: Cast) -> None:
    counts = {model: model.across_teams.count() for model in SAID}
    lists = (
        "/runs/?archived=any",
        "/rollouts/",
        "/rollouts/?q=completion",
        f"/compare/?run={loose.number}",
        "/policies/",
        "/palette/?q=run+bin",
        f"/prompts/{cast.prompt.pk}/",
    )
    for page in lists:
        assert loose.name in as_owner.get(page).content.decode(), page
    asked = as_owner.get(f"/bin/put/?run={loose.number}").content.decode()
    assert "2 rollouts" in asked
    assert "1 comment," in asked
    assert "1 label" in asked
    toast = as_owner.post("/bin/put/", {"run": loose.number}, follow=True).content.decode()
    assert f'<input type="hidden" name="run" value="{loose.number}"><button class="button small">Undo</button>' in toast
    for page in (f"/runs/{loose.pk}/", f"/rollouts/{cast.rollout.pk}/", f"/policies/{cast.checkpoint.pk}/"):
        assert as_owner.get(page).status_code == 404, page
    for page in lists:
        assert loose.name not in as_owner.get(page).content.decode(), page
    assert loose.name in as_owner.get("/bin/").content.decode()
    assert as_owner.post("/bin/restore/", {"run": loose.number}).status_code == 302
    loose.refresh_from_db()
    assert (loose.binned_at, loose.binned_by, loose.purge_at) == (None, None, None)
    assert counts == {model: model.across_teams.count() for model in SAID}
    for page in (f"/runs/{loose.pk}/", f"/rollouts/{cast.rollout.pk}/", f"/policies/{cast.checkpoint.pk}/"):
        assert as_owner.get(page).status_code == 200, page
    assert actions() == ["run.bin", "run.restore"]


def test_what_is_due_is_deleted_with_its_rows_and_files(team: Team, owner: User, loose: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "BATCH", 1)
    assert loose.folder.is_dir()
    verbs.put_runs_in_bin(team, owner, [loose.number])
    chores.sweep_bin()
    assert Run.across_teams.filter(pk=loose.pk).exists()  # its time has not come
    Run.across_teams.filter(pk=loose.pk).update(purge_at=timezone.now() - timedelta(seconds=1))
    chores.sweep_bin()
    assert {model.__name__: model.across_teams.count() for model in SAID} == dict.fromkeys((model.__name__ for model in SAID), 0)
    assert not Run.across_teams.filter(pk=loose.pk).exists()
    assert not loose.folder.exists()
    assert Version.across_teams.count() == 1  # what was frozen stays
    assert Run.objects.next_number(team) == loose.number + 1  # nobody gets its number
    assert actions() == ["run.bin", "run.delete"]
    chores.sweep_bin()  # nothing is left to do


def test_a_deletion_that_broke_off_goes_on_and_is_not_taken_back(team: Team, owner: User, loose: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs.put_runs_in_bin(team, owner, [loose.number])
    assert verbs.order_purge(team, [loose.number]).changed

    def crash(*given: Any) -> int:
        raise OSError("power cut")

    with monkeypatch.context() as broken:
        broken.setattr(chores, "delete_batch", crash)
        with pytest.raises(OSError, match="power cut"):
            chores.sweep_bin()
    assert verbs.restore_runs(team, [loose.number]).left == {loose.number: "its deletion has begun"}
    chores.sweep_bin()
    assert not Run.across_teams.filter(pk=loose.pk).exists()


def test_what_came_to_depend_on_it_meanwhile_keeps_it(team: Team, owner: User, loose: Run, cast: Cast, as_owner: Client) -> None:
    verbs.put_runs_in_bin(team, owner, [loose.number])
    Row.objects.create(version=cast.version, place=0, split="train", row={}, digest="0" * 64, rollouts=[cast.rollout.pk])
    Run.across_teams.filter(pk=loose.pk).update(purge_at=timezone.now() - timedelta(seconds=1))
    chores.sweep_bin()
    run = Run.across_teams.get(pk=loose.pk)
    assert not run.purging
    assert run.purge_at is not None
    assert run.purge_at > timezone.now()
    assert "the dataset version “dataset bin” v1" in as_owner.get("/bin/").content.decode()
    assert "dataset bin" in verbs.order_purge(team, [loose.number]).left[loose.number]


def test_roles_and_other_teams(team: Team, owner: User, make_run: Callable[..., Run], as_stranger: Client) -> None:
    one, other = make_run(), make_run()
    viewer, researcher = Client(), Client()
    viewer.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    researcher.force_login(make_member("researcher@example.org", team, Role.RESEARCHER))
    assert viewer.post("/bin/put/", {"run": one.number}).status_code == 403
    assert as_stranger.post("/bin/put/", {"run": one.number}).status_code == 404
    assert researcher.post("/bin/put/", {"run": [one.number, other.number]}).status_code == 302
    assert viewer.get("/bin/").status_code == 200
    assert researcher.post("/bin/delete/", {"run": one.number}).status_code == 403
    for address in ("/bin/restore/", "/bin/delete/"):
        assert as_stranger.post(address, {"run": one.number}).status_code == 404
    with pytest.raises(Refusal, match="None of these runs is in the bin"):
        verbs.restore_runs(team, [other.number + 1])
    assert Run.objects.in_bin(team).count() == 2
    assert researcher.post("/bin/put/", {}).status_code == 422


def test_the_api_puts_lists_restores_and_deletes(team: Team, owner: User, make_run: Callable[..., Run], client: Client) -> None:
    run, open_run = make_run(), make_run(status=Status.QUEUED)
    scopes = ["runs.read", "runs.launch", "runs.delete"]

    def send(path: str, user: User, given: list[str] = scopes) -> Any:
        headers = {"Authorization": f"Bearer {create_access_token(team, user, 't', given, None)[1]}"}
        return client.post(f"/api/v1/bin{path}", {"runs": [run.number, open_run.number]}, content_type="application/json", headers=headers)

    put = send("", owner).json()
    assert put == {"changed": [run.number], "unchanged": [{"run": open_run.number, "reason": "queued, stop it first"}]}
    headers = {"Authorization": f"Bearer {create_access_token(team, owner, 't', ['runs.read'], None)[1]}"}
    [listed] = client.get("/api/v1/bin", headers=headers).json()["items"]
    assert (listed["number"], listed["binned_by"]["email"], listed["frees"]["rollouts"]) == (run.number, owner.email, 0)
    assert [one["number"] for one in client.get("/api/v1/runs?archived=any", headers=headers).json()["items"]] == [open_run.number]
    assert client.get(f"/api/v1/runs/{run.pk}", headers=headers).status_code == 404
    assert send("/delete", owner, ["runs.launch"]).status_code == 403
    assert send("/restore", owner).json()["changed"] == [run.number]
    send("", owner)
    assert send("/delete", owner).json()["changed"] == [run.number]
    chores.sweep_bin()
    assert [one.number for one in Run.objects.filter(team=team)] == [open_run.number]
    assert actions() == ["run.bin", "run.restore", "run.bin", "run.purge", "run.delete"]


def test_a_script_does_not_write_to_its_run_in_the_bin(team: Team, owner: User) -> None:
    opening = RunOpening(uuid.uuid4(), "outside", "grpo", "p", "t", 1, {})
    run, _ = open_run(team, owner, opening)
    Run.objects.filter(team=team).update(status=Status.FINISHED)
    assert verbs.put_runs_in_bin(team, owner, [run.number]).changed
    with pytest.raises(Refusal, match="Run #1 is in the bin"):
        open_run(team, owner, opening)
