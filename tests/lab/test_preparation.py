"""What a run does before its first step: kept while its events come, shown with times until the step is there."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team
from lab.training.runs import preparation
from lab.training.runs.models import LogChunk, Run, Status
from lab.training.runs.views import page as page_views
from tests.hostile import PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, measured, started, write
from trainers.contract.events import COLD_START, Metrics, Phase


def phase(name: str, at: float, done: int = 0, total: int = 0, attempt: int = 1) -> Phase:
    return Phase(attempt=attempt, time=at, name=name, done=done, total=total)


def note(*events: Phase | Metrics) -> dict[str, Any]:
    latest: dict[str, Any] = {}
    for event in events:
        latest |= preparation.note_phase(latest, event) if isinstance(event, Phase) else preparation.note_first_step(latest, event)
    return latest


def read(run: Run, at: float) -> list[tuple[str, str, float | None]]:
    stages = preparation.list_stages(run, datetime.fromtimestamp(at, UTC))
    return [(stage.label, stage.state, None if stage.seconds is None else round(stage.seconds, 3)) for stage in stages]


def make_starting(**fields: Any) -> Run:
    times = {"queued_at": datetime.fromtimestamp(1000, UTC), "started_at": datetime.fromtimestamp(1003, UTC)}
    return Run(**{"status": Status.RUNNING, "attempt": 1, **times, **fields})


def test_stages_follow_each_other_with_the_seconds_each_took() -> None:
    run = make_starting()
    assert read(run, 1005) == [
        ("Wait for a worker", "done", 3),
        ("Start the trainer", "now", 2),
        ("Load the policy", "next", None),
        ("First step", "next", None),
    ]
    run.latest = note(phase("loading", 1008), phase(COLD_START, 1010, 0, 600), phase(COLD_START, 1040, 150, 600))
    stages = preparation.list_stages(run, datetime.fromtimestamp(1040, UTC))
    assert [(stage.label, stage.state, stage.seconds) for stage in stages[1:4]] == [
        ("Start the trainer", "done", 5),
        ("Load the policy", "done", 2),
        ("Train the cold start", "now", 30),
    ]
    assert (stages[3].done, stages[3].total, stages[3].left) == (150, 600, 90)


def test_the_first_step_ends_it_and_nothing_is_noted_after() -> None:
    step = Metrics(attempt=1, time=1025, step=1, values={"loss": 1.0})
    latest = note(phase("loading", 1008), phase("training", 1020, 0, 40), step, phase("saving", 1030), phase("training", 1031), step)
    assert [(stage["name"], stage["from"], stage["to"]) for stage in latest["preparation"]["stages"]] == [
        ("loading", 1008, 1020),
        ("training", 1020, 1025),
    ]


def test_another_attempt_begins_anew_and_reports_without_end_are_few() -> None:
    latest = note(phase("loading", 1), phase("training", 2), phase("loading", 9, attempt=2))
    assert latest["preparation"] == {"attempt": 2, "stages": [{"name": "loading", "from": 9, "to": 9, "done": 0, "total": 0}]}
    latest = note(*(phase(f"{number} " + "x" * 90, number) for number in range(100)))
    assert len(latest["preparation"]["stages"]) == preparation.MOST_STAGES
    assert max(len(stage["name"]) for stage in latest["preparation"]["stages"]) == 50


def test_a_waiting_run_has_everything_before_it() -> None:
    run = make_starting(status=Status.QUEUED, started_at=None, attempt=0)
    assert [state for _, state, _ in read(run, 1060)] == ["now", "next", "next", "next"]
    assert read(run, 1060)[0] == ("Wait for a worker", "now", 60)


def test_a_clock_that_runs_ahead_makes_no_time_negative() -> None:
    run = make_starting(latest=note(phase("loading", 2000)))
    assert all(seconds is None or seconds >= 0 for _, _, seconds in read(run, 1001))


def test_the_page_shows_the_stages_until_the_first_step(as_owner: Client, team: Team) -> None:
    run = make_run(team, status=Status.RUNNING, attempt=1, started_at=timezone.now() - timedelta(seconds=9))
    LogChunk.objects.create(run=run, attempt=1, offset=0, text="\n".join(map(stored, PAYLOADS)) + "\nlast line\n")
    write(run.folder, [phase("loading", time.time()), started(), phase(COLD_START, time.time(), 30, 600)])
    ingest_spool(run)
    page = as_owner.get(f"/runs/{run.pk}/").content.decode()
    assert "part=preparation" in page
    part = as_owner.get(f"/runs/{run.pk}/?part=preparation").content.decode()
    assert "Train the cold start" in part
    assert "30 of 600" in part
    assert "last line" in part
    assert "<script>" not in part
    write(run.folder, [phase("training", time.time()), measured(1)])
    ingest_spool(run)
    assert "part=preparation" not in as_owner.get(f"/runs/{run.pk}/").content.decode()
    over = as_owner.get(f"/runs/{run.pk}/?part=preparation")
    assert (over.status_code, over.content) == (286, b"")  # htmx asks no more


def test_prompts_are_shown_as_text_and_not_whole(as_owner: Client, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(team, status=Status.QUEUED)
    texts = [*map(stored, PAYLOADS), "x" * 5000]
    samples = [{"prompt": [{"role": "user", "content": text}], "reference": text} for text in texts]
    monkeypatch.setattr(page_views, "run_preflight", lambda spec, policy_pending, owner: {"samples": samples})
    shown = as_owner.get(f"/runs/{run.pk}/?part=prompts").content.decode()
    assert shown.count("<li>") == len(texts)
    assert "<script" not in shown
    assert "<img" not in shown
    assert "\u202e" not in shown
    assert "x" * 1000 + "…" in shown
    assert "x" * 1001 not in shown
    monkeypatch.setattr(page_views, "run_preflight", None)  # not asked again
    assert as_owner.get(f"/runs/{run.pk}/?part=prompts").content.decode() == shown


@pytest.mark.parametrize("spec", [{"task": {"name": "none"}}, {}])
def test_prompts_that_cannot_be_listed_leave_the_card_out(as_owner: Client, team: Team, spec: dict[str, Any]) -> None:
    run = make_run(team, status=Status.QUEUED, spec=spec)
    assert as_owner.get(f"/runs/{run.pk}/?part=prompts").content.decode().strip() == ""
