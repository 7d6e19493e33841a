"""Edits of a running run in the lab: who may, what is refused beside which input, the way to the trainer and back, and the fork without one."""

import json
from typing import Any

import pytest
from django.test import Client

from lab.rollouts.comparison.configs import EDITS, build_settings_table
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.edits.delivery import close_run_edits, send_run_edits
from lab.training.edits.forking import plan_fork
from lab.training.edits.models import EditState, RunEdit
from lab.training.edits.verbs import request_run_edit, withdraw_run_edit
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Run, Status
from lab.training.sweeps.models import Sweep, Trial
from tests.conftest import make_member
from tests.lab.supervisor.spools import measured, started, write
from trainers.contract.edits import APPLIED, REQUESTS
from trainers.contract.events import Edited

pytestmark = pytest.mark.feature(104)

SPEC = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo", "max_steps": 20, "beta": 0.05}, "recipe": "grpo"}
RATE, BETA, HEAT = "training.learning_rate", "training.beta", "training.temperature"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def run(team: Team, owner: User) -> Run:
    return train(launch_run(team, owner, SPEC, "a run"))


def train(run: Run) -> Run:
    Run.objects.same_row(run).update(status=Status.RUNNING)
    run.refresh_from_db()
    write(run.folder, [started(total_steps=20), *(measured(step) for step in range(1, 5))])
    report(run)
    return run


def report(run: Run, *events: Any) -> None:
    """What the trainer says next, ingested."""
    write(run.folder, list(events))
    run.refresh_from_db()
    while ingest_spool(run):
        pass


def applied(edit: RunEdit, step: int, **more: Any) -> Edited:
    return Edited(attempt=1, time=1.7e9, key=edit.key, step=step, **{"changes": edit.changes, "before": edit.before, **more})


def filled(client: Client, run: Run, **changed: str) -> dict[str, str]:
    """What the form holds, with some of it changed."""
    form = client.get(f"/runs/{run.pk}/edits/new/").context["form"]
    values = {name: form[name].value() for name in form.fields}
    return {**values, **{name.replace("__", "."): value for name, value in changed.items()}}


@pytest.mark.feature(29)
def test_an_edit_goes_to_the_trainer_and_is_marked_where_it_began_to_hold(as_owner: Client, run: Run, owner: User) -> None:
    sent = filled(as_owner, run, training__learning_rate="1e-5", training__temperature="0.8", reason=f"loss spikes {HOSTILE}")
    assert (sent[RATE], sent["task.rewards.correct"], sent["task.mix.easy"]) == ("1e-5", "1", "1")
    assert as_owner.post(f"/runs/{run.pk}/edits/new/", sent).status_code == 302
    assert as_owner.post(f"/runs/{run.pk}/edits/new/", sent).status_code in (302, 422)  # the same form again is the same edit
    edit = RunEdit.objects.get(run=run)
    assert (edit.author, edit.changes, edit.before) == (owner, {RATE: 1e-5, HEAT: 0.8}, {RATE: 3e-4, HEAT: 1.0})
    pending = as_owner.get(f"/runs/{run.pk}/edits/?part=pending").content.decode()
    assert "pending, applies at the next step" in pending
    assert HOSTILE not in pending

    assert [send_run_edits(run), send_run_edits(run)] == [1, 0]
    [line] = (run.folder / REQUESTS).read_text().splitlines()
    assert json.loads(line) == {"key": edit.key, "changes": {RATE: 1e-5, HEAT: 0.8}, "withdrawn": False}
    report(run, applied(edit, 5, changes={RATE: 1e-5}, before={RATE: 3e-4}))
    edit.refresh_from_db()
    assert (edit.state, edit.steps) == (EditState.PENDING, {RATE: 5})
    report(run, applied(edit, 6, changes={HEAT: 0.8}, before={HEAT: 1.0}), measured(5))
    edit.refresh_from_db()
    assert (edit.state, edit.steps) == (EditState.APPLIED, {RATE: 5, HEAT: 6})
    assert run.latest["edits"] == 2  # open pages ask for the marks anew
    assert run.spec["training"]["learning_rate"] == 3e-4

    marks = [mark for mark in as_owner.get(f"/runs/{run.pk}/metrics.json?part=marks").json()["marks"] if mark["kind"] == "edit"]
    assert [mark["step"] for mark in marks] == [5, 6]
    assert marks[0]["label"].startswith(f"edit by {owner} from step 5: learning rate 0.0003 → 1e-05 (loss spikes")
    listed = as_owner.get(f"/runs/{run.pk}/edits/?part=list").content.decode()
    assert "learning rate 0.0003 → 1e-05" in listed
    assert "Fork without the edit" in listed
    assert HOSTILE not in listed
    assert filled(as_owner, run)[HEAT] == "0.8"  # the next edit starts from what holds


def test_what_is_wrong_stands_beside_its_input(as_owner: Client, run: Run) -> None:
    cases = {
        RATE: {"training__learning_rate": "2"},
        HEAT: {"training__temperature": "warm"},
        "task.mix.easy": {"task__mix__easy": "0"},
        "reason": {"training__learning_rate": "1e-5", "reason": " "},
    }
    for field, changed in cases.items():
        response = as_owner.post(f"/runs/{run.pk}/edits/new/", filled(as_owner, run, **{"reason": "why", **changed}))
        assert (response.status_code, list(response.context["form"].errors)) == (422, [field])
        assert 'aria-invalid="true"' in response.content.decode()
    response = as_owner.post(f"/runs/{run.pk}/edits/new/", filled(as_owner, run, reason="why"))
    assert response.context["form"].non_field_errors() == ["Nothing would change: these are the current values."]
    assert not RunEdit.objects.filter(run=run).exists()


def test_a_form_that_was_open_during_another_edit_neither_undoes_nor_hides_it(as_owner: Client, run: Run, owner: User) -> None:
    address = f"/runs/{run.pk}/edits/new/"
    opened = filled(as_owner, run, reason="why")
    request_run_edit(run, owner, {HEAT: 0.8}, "cooler")
    assert as_owner.post(address, {**opened, RATE: "1e-5"}).status_code == 302
    assert RunEdit.objects.filter(run=run).last().changes == {RATE: 1e-5}  # the temperature of the open form was nobody's wish

    answer = as_owner.post(address, {**opened, HEAT: "0.5", "token": "another-form"})
    assert (answer.status_code, dict(answer.context["form"].errors)) == (
        422,
        {HEAT: ["An edit changed it to 0.8 while this form was open. Apply again to replace that."]},
    )
    shown = {name: answer.context["form"][name].value() for name in opened}
    assert (shown[HEAT], shown[RATE]) == ("0.5", "1e-05")
    assert as_owner.post(address, shown).status_code == 302
    assert RunEdit.objects.filter(run=run).last().changes == {HEAT: 0.5}
    for seen in ("[" * 100_000, "[1]", '{"training.temperature": "warm"}'):
        assert as_owner.post(address, {**filled(as_owner, run, reason="why"), "seen": seen}).status_code == 422  # nothing would change


@pytest.mark.parametrize("token", ["with space", "x" * 65, "<b>", "é"])
def test_a_token_that_no_form_has_asks_for_nothing(as_owner: Client, run: Run, token: str) -> None:
    sent = filled(as_owner, run, training__learning_rate="1e-5", reason="why")
    answer = as_owner.post(f"/runs/{run.pk}/edits/new/", {**sent, "token": token})
    assert answer.status_code == 422
    assert not RunEdit.objects.filter(run=run).exists()


def test_only_a_run_that_trains_by_itself_can_be_edited(as_owner: Client, run: Run, owner: User) -> None:
    sweep = Sweep.objects.create(team=run.team, name="space", spec=SPEC, sampler="grid", metric="reward", most_runs=1, parallel=1)
    trial = Trial.objects.create(sweep=sweep, run=run, number=2, values={})
    page = as_owner.get(f"/runs/{run.pk}/edits/new/").content.decode()
    assert "It is trial 3 of the sweep “space”: an edit would make its score incomparable." in page
    assert as_owner.post(f"/runs/{run.pk}/edits/new/", {RATE: "1e-5", "reason": "why"}).status_code == 409
    trial.delete()
    for status in (Status.QUEUED, Status.STOPPING, Status.FINISHED):
        Run.objects.same_row(run).update(status=status)
        assert f"It is {status}. Only a run that is training can be edited." in as_owner.get(f"/runs/{run.pk}/edits/new/").content.decode()
    assert not RunEdit.objects.filter(run=run).exists()


def test_who_may_only_read_sees_edits_and_makes_none(client: Client, as_stranger: Client, team: Team, run: Run, owner: User) -> None:
    edit = request_run_edit(run, owner, {RATE: 1e-5}, "why")
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    shown = client.get(f"/runs/{run.pk}/edits/").content.decode()
    assert "Withdraw" not in shown
    assert client.get(f"/runs/{run.pk}/edits/new/").status_code == 403
    for path in (f"/runs/{run.pk}/edits/new/", f"/edits/{edit.pk}/withdraw/", f"/edits/{edit.pk}/fork/"):
        assert client.post(path).status_code == 403
        assert as_stranger.post(path).status_code == 404


def test_the_trainer_has_the_last_word_on_what_is_withdrawn(run: Run, owner: User) -> None:
    unsent, sent, late = (request_run_edit(run, owner, {RATE: value}, "why") for value in (1e-5, 2e-5, 3e-5))
    assert withdraw_run_edit(unsent).state == EditState.WITHDRAWN
    send_run_edits(run)
    assert withdraw_run_edit(sent).state == EditState.PENDING
    assert withdraw_run_edit(late).state == EditState.PENDING
    assert send_run_edits(run) == 2
    report(run, Edited(attempt=1, time=1.7e9, key=sent.key, step=5, refused="withdrawn"), applied(late, 5))
    assert [(edit.state, edit.refusal) for edit in run.edits.all()] == [("withdrawn", ""), ("withdrawn", ""), ("applied", "")]
    report(run, Edited(attempt=1, time=1.7e9, key="by-hand", step=7, changes={RATE: 9e-5}, before={RATE: 3e-5}))
    waiting = request_run_edit(run, owner, {RATE: 1e-4}, "why")
    assert waiting.before == {RATE: 9e-5}  # also what was written into the folder by hand counts
    close_run_edits(run)
    waiting.refresh_from_db()
    assert waiting.state == EditState.MISSED
    assert next(entry.details["changed"][RATE] for entry in Entry.across_teams.filter(action="run.edit").order_by("pk")) == ["0.0003", "1e-05"]


def test_a_fork_begins_with_the_last_checkpoint_before_the_edit_and_keeps_what_was_edited_earlier(as_owner: Client, run: Run, owner: User) -> None:
    first = request_run_edit(run, owner, {RATE: 1e-4}, "first")
    second = request_run_edit(run, owner, {HEAT: 0.5, BETA: 0.2}, "second")
    third = request_run_edit(run, owner, {HEAT: 0.6}, "third")
    report(run, applied(first, 4), applied(second, 9), applied(third, 12))
    for step in (3, 6, 9):
        folder = run.folder / f"checkpoints/checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights %d" % step)
        if step != 9:
            (folder / "counters.json").write_text("{}")  # the other is half written
    second.refresh_from_db()
    plan = plan_fork(second)
    assert plan is not None
    assert (plan.from_step, plan.until_step, plan.repeated) == (6, 8, 2)
    assert "steps 7 to 8 are trained again" in plan.words

    response = as_owner.post(f"/edits/{second.pk}/fork/")
    fork = Run.objects.filter(team=run.team).latest("number")
    assert response["Location"].endswith(f"/runs/{fork.pk}/")
    assert {**fork.spec, "output": ""} == {**run.spec, "output": ""}
    assert (fork.status, fork.cloned_from, fork.name) == (Status.QUEUED, run, "a run without edit")
    assert [path.name for path in (fork.folder / "checkpoints").iterdir()] == ["checkpoint-6"]
    assert (fork.folder / "checkpoints/checkpoint-6/model.safetensors").read_bytes() == b"weights 6"
    assert [json.loads(line) for line in (fork.folder / APPLIED).read_text().splitlines()] == [
        {"key": first.key, "step": 4, "changes": {RATE: 1e-4}, "refused": ""}
    ]
    assert [(edit.reason, edit.steps, edit.state) for edit in fork.edits.all()] == [("first", {RATE: 4}, "applied")]
    page = as_owner.get(f"/runs/{fork.pk}/edits/").content.decode()
    assert "continues from checkpoint 6 and trains the same steps as that run up to step 8" in page

    table = {row.key: row.values for row in build_settings_table([run, fork])}
    assert table[EDITS] == [
        "learning rate 0.0003 → 0.0001 from step 4; KL coefficient (beta) 0.05 → 0.2 from step 9; temperature 1 → 0.5 from step 9;"
        " temperature 0.5 → 0.6 from step 12",
        "learning rate 0.0003 → 0.0001 from step 4",
    ]
    assert EDITS not in {row.key for row in build_settings_table([launch_run(run.team, owner, SPEC, "unedited")])}


def test_without_a_checkpoint_a_fork_starts_over_and_an_edit_that_never_held_has_none(as_owner: Client, run: Run, owner: User) -> None:
    edit = request_run_edit(run, owner, {RATE: 1e-4}, "why")
    as_owner.post(f"/edits/{edit.pk}/fork/")
    assert Run.objects.filter(team=run.team).count() == 1
    report(run, applied(edit, 5))
    as_owner.post(f"/edits/{edit.pk}/fork/")
    fork = Run.objects.filter(team=run.team).latest("number")
    assert (fork.fork.from_step, fork.fork.until_step) == (0, 4)
    assert not (fork.folder / APPLIED).exists()


@pytest.mark.feature(95)
def test_the_form_offers_a_shadow_s_weight_which_promotes_it(as_owner: Client, team: Team, owner: User) -> None:
    column = {"name": "odd", "definition": {"kind": "library", "function": "tags"}, "shadow": True}
    run = train(launch_run(team, owner, {**SPEC, "rewards": [column, {**column, "name": "even", "shadow": False, "weight": 0.25}]}, "shadowed"))
    values = filled(as_owner, run)
    assert "odd (shadow)" in as_owner.get(f"/runs/{run.pk}/edits/new/").content.decode()
    assert (float(values["task.rewards.odd"]), float(values["task.rewards.even"])) == (0.0, 0.25)
    sent = filled(as_owner, run, task__rewards__odd="0.5", reason="it measures what we want")
    assert as_owner.post(f"/runs/{run.pk}/edits/new/", sent).status_code == 302
    [edit] = run.edits.all()
    assert edit.changes == {"task.rewards.odd": 0.5}
    report(run, applied(edit, 6, before={"task.rewards.odd": 0.0}))
    assert run.latest["edited_weights"] == {"odd": 0.5}
