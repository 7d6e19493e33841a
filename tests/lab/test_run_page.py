"""One run's pages and actions: whose it is, what it says in each state, its numbers, its log, its spec."""

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team, User
from lab.training.runs import spec_reading
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Attempt, Checkpoint, LogChunk, Run, Status
from lab.training.runs.snapshot import count_samples_per_step
from lab.training.workers.models import Worker
from tests.lab.supervisor.spools import finished, measured, started, steps, write
from trainers.contract.batches import compute_batch_figures
from trainers.contract.events import Checkpoint as CheckpointEvent
from trainers.contract.hyperparameters import TRAINERS
from trainers.contract.spec import parse_spec

GRPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}, "recipe": "grpo"}
PAGES = ["", "rollouts/", "logs/", "config/", "metrics.json", "metrics.csv", "tokens.json"]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"

MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(team: Team, owner: User) -> MakeRun:
    def make(name: str = "a run", spec: dict[str, Any] | None = None, parent: Run | None = None, **fields: Any) -> Run:
        run = launch_run(team, owner, spec or GRPO, name, parent=parent)
        Run.across_teams.filter(pk=run.pk).update(**fields)
        run.refresh_from_db()
        return run

    return make


def training(run: Run) -> Run:
    """A run that a worker holds."""
    Run.across_teams.filter(pk=run.pk).update(
        status=Status.RUNNING, owner="w/1", lease_until=timezone.now() + timedelta(minutes=5), started_at=timezone.now()
    )
    run.refresh_from_db()
    return run


def logged(run: Run, *texts: str, attempt: int = 1) -> None:
    offset = 0
    for text in texts:
        LogChunk.objects.create(run=run, attempt=attempt, offset=offset, text=text)
        offset += len(text.encode())


def shown(client: Client, run: Run, page: str = "", **query: Any) -> str:
    response = client.get(f"/runs/{run.pk}/{page}", query)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("part", PAGES)
def test_every_part_needs_a_login_and_hides_another_teams_run(part: str, client: Client, as_stranger: Client, make_run: MakeRun) -> None:
    run = make_run()
    assert client.get(f"/runs/{run.pk}/{part}").headers["Location"].startswith("/accounts/login/")
    assert as_stranger.get(f"/runs/{run.pk}/{part}").status_code == 404


@pytest.mark.parametrize("verb", ["stop", "kill", "resume"])
def test_a_stranger_cannot_act_and_nobody_acts_by_following_a_link(verb: str, as_owner: Client, as_stranger: Client, make_run: MakeRun) -> None:
    run = make_run()
    assert as_stranger.post(f"/runs/{run.pk}/{verb}/").status_code == 404
    assert as_owner.get(f"/runs/{run.pk}/{verb}/").status_code == 405
    run.refresh_from_db()
    assert run.status == Status.QUEUED


def test_an_action_without_the_protection_token_is_refused(owner: User, make_run: MakeRun) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    assert client.post(f"/runs/{make_run().pk}/stop/").status_code == 403


def test_stopping_twice_stops_once_and_says_so(as_owner: Client, make_run: MakeRun) -> None:
    run = training(make_run())
    first = as_owner.post(f"/runs/{run.pk}/stop/", headers={"HX-Request": "true"})
    again = as_owner.post(f"/runs/{run.pk}/stop/", headers={"HX-Request": "true"})
    assert "Stopping" in json.loads(first.headers["HX-Trigger"])["lab:said"]["text"]
    assert "Nothing was changed" in json.loads(again.headers["HX-Trigger"])["lab:said"]["text"]
    assert 'data-status="stopping"' in first.content.decode()
    run.refresh_from_db()
    assert (run.status, run.kill_requested) == (Status.STOPPING, False)


def test_a_run_that_is_stopping_can_still_be_killed(as_owner: Client, make_run: MakeRun) -> None:
    run = training(make_run())
    as_owner.post(f"/runs/{run.pk}/stop/")
    as_owner.post(f"/runs/{run.pk}/kill/")
    run.refresh_from_db()
    assert run.kill_requested


def test_killing_what_nobody_trains_changes_nothing(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run()
    response = as_owner.post(f"/runs/{run.pk}/kill/", follow=True)
    assert "Nothing was changed" in response.content.decode()
    run.refresh_from_db()
    assert run.status == Status.QUEUED


def test_without_javascript_an_action_leads_back_to_the_page_with_a_message(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run(status=Status.FAILED)
    response = as_owner.post(f"/runs/{run.pk}/resume/", follow=True)
    assert response.redirect_chain == [(f"/runs/{run.pk}/", 302)]
    assert "Queued again" in response.content.decode()
    run.refresh_from_db()
    assert run.status == Status.QUEUED


@pytest.mark.parametrize(
    ("status", "able"),
    [
        (Status.QUEUED, {"stop"}),
        (Status.RUNNING, {"stop", "kill"}),
        (Status.STOPPING, {"kill"}),
        (Status.STOPPED, {"resume"}),
        (Status.FINISHED, set()),
        (Status.FAILED, {"resume"}),
        (Status.LOST, {"stop", "resume"}),
    ],
)
def test_each_state_offers_what_is_possible_and_says_why_not(status: Status, able: set[str], as_owner: Client, make_run: MakeRun) -> None:
    run = make_run(status=status)
    page = shown(as_owner, run)
    for verb in ("stop", "kill", "resume"):
        assert (f'action="/runs/{run.pk}/{verb}/"' in page) == (verb in able)
        assert (f'id="why-{verb}"' in page) == (verb not in able)


def test_the_header_shows_what_can_be_done_and_keeps_the_rest_in_its_menu(as_owner: Client, make_run: MakeRun) -> None:
    run = training(make_run())
    shown_first, menu = shown(as_owner, run).split('<details class="menu run-more"')
    for label in ("Stop and save", "Clone and edit", "Kill"):
        assert f"<span>{label}</span>" in shown_first
    assert "Resume" not in shown_first
    assert re.search(r'aria-disabled="true"[^>]*>Resume</button><small[^>]*>It is still training\.', menu)
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED)
    assert "<span>Launch next stage</span>" in shown(as_owner, run).split('<details class="menu run-more"')[0]


def test_a_failed_run_says_why_what_to_do_and_where_the_log_is(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run(status=Status.FAILED, reason="CUDA out of memory")
    page = shown(as_owner, run)
    assert "This run failed." in page
    assert "CUDA out of memory" in page
    assert f"/runs/{run.pk}/logs/" in page


def test_a_queued_run_says_what_it_waits_for(as_owner: Client, make_run: MakeRun) -> None:
    parent = make_run("first stage")
    assert "No worker is on the queue" in shown(as_owner, parent)
    Worker.objects.create(name="w", host="h", pid=1, queues=["gpu"])
    assert "Queue position 1." in shown(as_owner, parent)
    spec = {**GRPO, "policy": {"kind": "run", "run": str(parent.pk), "checkpoint": "final"}}
    child = make_run("second stage", spec, parent=parent)
    assert "It starts from the policy of #1 first stage, which is queued." in shown(as_owner, child)
    Run.across_teams.filter(pk=parent.pk).update(status=Status.FAILED)
    assert "Resume that run" in shown(as_owner, child)


def test_a_chain_is_shown_on_each_of_its_stages(as_owner: Client, make_run: MakeRun) -> None:
    first = make_run("cold start stage", status=Status.FINISHED)
    second = make_run("reinforcement stage", parent=first)
    for run in (first, second):
        page = shown(as_owner, run)
        assert "cold start stage" in page
        assert "reinforcement stage" in page


def test_hostile_names_and_reasons_are_text(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run(HOSTILE, status=Status.FAILED, reason=HOSTILE, policy=HOSTILE, task=HOSTILE, recipe=HOSTILE)
    logged(run, HOSTILE + "\n")
    Attempt.objects.create(
        run=run,
        number=1,
        from_step=0,
        host=HOSTILE,
        device=HOSTILE,
        started_at=timezone.now(),
        command=[HOSTILE],
        versions={HOSTILE: HOSTILE},
        error=HOSTILE,
    )
    for part in ("", "logs/", "config/", "rollouts/"):
        page = shown(as_owner, run, part)
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("part", ["", "rollouts/", "logs/", "config/"])
def test_no_page_has_inline_scripts_styles_or_handlers(part: str, as_owner: Client, make_run: MakeRun) -> None:
    run = make_run(status=Status.FAILED)
    write(run.folder, [started(), *steps(1, 2)])
    ingest_spool(run)
    page = shown(as_owner, run, part)
    assert "<script>" not in page
    assert " style=" not in page
    assert " onclick=" not in page


# Metrics


def test_an_attempt_says_when_it_started_and_how_long_it_took(as_owner: Client, make_run: MakeRun) -> None:
    """“Attempt 1: 6 min” could be either."""
    began = timezone.now() - timedelta(hours=2)
    run = make_run(status=Status.FINISHED, started_at=began, finished_at=began + timedelta(minutes=30))
    write(run.folder, [started(), *steps(1, 90), started(attempt=2, from_step=90)])
    ingest_spool(run)
    Attempt.objects.filter(run=run, number=2).update(started_at=began + timedelta(minutes=10))
    page = " ".join(re.sub(r"<[^>]*>", "", shown(as_owner, run, "config/")).split())
    assert re.search(r"Attempt 1 started \d+ d ago · took 1 min 30 s · from step 0", page)
    assert "Attempt 2 started 1 h ago · took 20 min · from step 90" in page


def test_the_reward_chart_knows_the_weights_of_the_runs_task(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run(spec={**GRPO, "task": {"name": "mini_gsm", "rewards": {"working": 0.5}}})
    values = {"reward": 0.5, **{f"rewards/{name}/mean": 0.5 for name in ("correct", "format", "working")}}
    write(run.folder, [started(), measured(1, values=values)])
    ingest_spool(run)
    panels = {panel["id"]: panel for panel in as_owner.get(f"/runs/{run.pk}/metrics.json").json()["panels"]}
    off = {trace["label"]: trace["off"] for trace in panels["reward"]["traces"]}
    assert off == {"total": False, "correct": False, "working": False, "format (weight 0)": True}


@pytest.mark.feature(21)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_samples_of_a_step_are_those_that_the_trainers_count(trainer: str, team: Team) -> None:
    accumulated = {} if trainer == "procedure" else {"gradient_accumulation_steps": 3}  # it has no gradient
    training = {"trainer": trainer, "per_device_train_batch_size": 16, **accumulated}
    teacher = {"kind": "tiny"} if trainer == "gkd" else None
    spec = parse_spec({"policy": {"kind": "tiny"}, "teacher": teacher, "task": {"name": "mini_gsm"}, "training": training, "output": "."})
    samples = count_samples_per_step(Run(spec=spec.model_dump(mode="json"), trainer=trainer))
    assert samples is not None
    assert samples["per_step"] == compute_batch_figures(spec)[f"{samples['name']}_per_step"] == (48 if accumulated else 16)
    assert count_samples_per_step(Run(spec={"recipe": "outside"}, trainer=trainer)) is None


@pytest.mark.feature(29)
def test_the_snapshot_has_the_points_the_panels_and_the_cursor_of_one_moment(as_owner: Client, make_run: MakeRun) -> None:
    run = training(make_run())
    write(run.folder, [started(), *steps(1, 5), CheckpointEvent(attempt=1, time=1.7e9, step=4, path="checkpoints/checkpoint-4", bytes=10)])
    ingest_spool(run)
    data = json.loads(shown(as_owner, run, "metrics.json"))
    assert data["cursor"] == (run.folder / "events.jsonl").stat().st_size
    assert data["series"]["reward"]["steps"] == [1, 2, 3, 4, 5]
    assert data["axes"]["tokens"] == [100, 200, 300, 400, 500]
    assert [trace["metric"] for panel in data["panels"] for trace in panel["traces"]] == ["reward", "loss"]
    assert data["marks"] == [{"step": 4, "kind": "checkpoint", "label": "checkpoint at step 4"}]
    assert data["samples"] == {"name": "completions", "per_step": 64}
    assert data["state"]["step"] == 5
    assert json.loads(shown(as_owner, run, "metrics.json", part="marks")) == {"marks": data["marks"]}


def test_values_that_are_not_finite_travel_by_name_and_are_counted(as_owner: Client, make_run: MakeRun) -> None:
    run = training(make_run())
    write(
        run.folder,
        [started(), measured(1), measured(2, values={"reward": 1.0}, nonfinite={"loss": "nan"}), measured(3, values={}, nonfinite={"loss": "-inf"})],
    )
    ingest_spool(run)
    data = json.loads(shown(as_owner, run, "metrics.json"))
    assert data["series"]["loss"]["values"] == [0.5, "nan", "-inf"]
    assert data["nonfinite"] == {"loss": 2}


@pytest.mark.feature(29)
def test_replayed_steps_are_not_in_the_snapshot(as_owner: Client, make_run: MakeRun) -> None:
    run = training(make_run())
    write(run.folder, [started(), *steps(1, 6), started(attempt=2, from_step=3), *steps(4, 5, attempt=2)])
    while ingest_spool(run):
        pass
    data = json.loads(shown(as_owner, run, "metrics.json"))
    assert data["series"]["loss"]["steps"] == [1, 2, 3, 4, 5]
    assert {"step": 3, "kind": "resume", "label": "attempt 2 resumes from step 3"} in data["marks"]


def test_the_csv_has_every_step_and_no_formula(as_owner: Client, make_run: MakeRun) -> None:
    run = training(make_run())
    write(run.folder, [started(), measured(1, values={"=cmd|' /C calc'!A0": -1.5, "loss": 0.25}), measured(2, values={"loss": 0.125}, tokens=7)])
    ingest_spool(run)
    response = as_owner.get(f"/runs/{run.pk}/metrics.csv")
    assert response.headers["Content-Disposition"] == 'attachment; filename="run-1-metrics.csv"'
    rows = list(csv.reader(io.StringIO(b"".join(response.streaming_content).decode())))  # type: ignore[attr-defined]
    assert rows[0] == ["step", "time", "tokens", "'=cmd|' /C calc'!A0", "loss"]
    assert [row[0] for row in rows[1:]] == ["1", "2"]
    assert rows[1][3:] == ["-1.5", "0.25"]
    assert rows[2][3:] == ["", "0.125"]


def test_the_csv_can_be_of_some_metrics_only(as_owner: Client, make_run: MakeRun) -> None:
    run = training(make_run())
    write(run.folder, [started(), measured(1)])
    ingest_spool(run)
    response = as_owner.get(f"/runs/{run.pk}/metrics.csv?name=loss&name=no-such-metric")
    assert b"".join(response.streaming_content).splitlines()[0] == b"step,time,tokens,loss"  # type: ignore[attr-defined]


# Config


def test_what_differs_from_the_recipe_is_marked_and_comes_first(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run(spec={**GRPO, "training": {"trainer": "grpo", "learning_rate": 0.001}})
    usual, problem = spec_reading.find_usual_values(run)
    assert problem == ""
    training_values = dict(spec_reading.group_spec_values(run.spec, usual))["Training"]
    assert (training_values[0].name, training_values[0].text, training_values[0].differs) == ("learning_rate", "0.001", True)
    assert [value.name for _, values in spec_reading.group_spec_values(run.spec, usual) for value in values if value.differs] == ["learning_rate"]
    assert "default 0.0003" in shown(as_owner, run, "config/")


def test_a_clone_shows_what_was_changed(as_owner: Client, make_run: MakeRun, team: Team, owner: User) -> None:
    first = make_run("first")
    clone = launch_run(team, owner, {**GRPO, "seed": 7}, "second", cloned_from=first)
    assert [(change.path, change.before, change.after) for change in spec_reading.diff_launched_specs(first.spec, clone.spec)] == [("seed", "0", "7")]
    assert "Changed from" in shown(as_owner, clone, "config/")


def test_the_spec_can_be_taken_away_as_json_and_yaml(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run()
    assert json.loads(shown(as_owner, run, "config/", format="json")) == run.spec
    assert "trainer: grpo" in shown(as_owner, run, "config/", format="yaml")


def test_a_checkpoint_offers_to_start_a_run_from_it(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run()
    Checkpoint.objects.create(run=run, attempt=1, step=20, path="checkpoints/checkpoint-20", bytes=6_300_000, created_at=timezone.now())
    page = shown(as_owner, run, "config/")
    assert f"after={run.pk}&amp;checkpoint=20" in page
    assert "6.0 MiB" in page


def test_a_page_costs_the_same_however_long_the_run(as_owner: Client, make_run: MakeRun) -> None:
    def queries(run: Run, part: str) -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            shown(as_owner, run, part)
        return len(captured)

    short, long = training(make_run("short")), training(make_run("long"))
    write(short.folder, [started(), *steps(1, 3), finished()])
    write(long.folder, [started(total_steps=60), *steps(1, 60), finished(step=60)])
    for run in (short, long):
        while ingest_spool(run):
            pass
        logged(run, "x\n" * run.step)
    shown(as_owner, short, "")  # the first request of a session is entered in the person's list of sessions
    for part in ("", "metrics.json", "rollouts/", "logs/", "config/"):
        assert queries(short, part) == queries(long, part) <= 25
