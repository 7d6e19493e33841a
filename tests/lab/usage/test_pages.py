"""The usage page, the form of quotas, the export, what launching shows, and the chore that weighs files."""

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from lab.data.loop.models import Match
from lab.data.loop.win_rate import MatchTally, WinRate, WinRecord, tally_match
from lab.labelling.labels.models import Item, Judgement, Kind, Verdict
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.teams.accounts.models import Project, Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.catalog.catalog import load_catalog
from lab.training.runs import drafts
from lab.training.runs.form_checks import Examination, examine_place
from lab.training.runs.forms import LaunchForm
from lab.training.runs.models import Run
from lab.training.runs.placement import Place
from lab.watching.usage import figures, storage_use
from lab.watching.usage.models import Quota, RunStorage, Storage
from lab.watching.usage.months import Month
from lab.watching.usage.win_costs import WinCost, compute_win_cost, total_by_recipe
from tests.conftest import make_member
from tests.lab.supervisor.spools import make_run
from tests.lab.usage.conftest import MakeLease, MakeWorker

NOVEMBER = Month(2026, 11)
FORM = {"concurrent_runs": "2", "gpu_hours": "40.5", "storage": "10", "queues": "gpu, small", "warn_percent": "80", "currency": "eur"}


def texts(response: Any) -> str:
    return str(response.content.decode())


@pytest.fixture
def november(team: Team, owner: User, teammate: User, make_lease: MakeLease) -> Project:
    """Six GPU-hours of a run in a project over a midnight, and half a compute hour of another's."""
    project = Project.objects.create(team=team, name="Sums")
    make_lease(datetime(2026, 11, 4, 22, tzinfo=UTC), 6, run=make_run(team, name="=long", project=project), user=owner)
    make_lease(datetime(2026, 11, 5, 12, tzinfo=UTC), 0.5, gpus=0, run=make_run(team, name="short"), user=teammate)
    return project


def test_hours_fall_on_their_days(team: Team, november: Project) -> None:
    days = {day.day: (gpu, compute) for day, gpu, compute in figures.sum_hours_by_day(figures.clip_leases_to_month(team, NOVEMBER), NOVEMBER)}
    assert len(days) == 30
    assert days[4] == (pytest.approx(2), 0)
    assert days[5] == (pytest.approx(4), pytest.approx(0.5))
    assert sum(gpu for gpu, _ in days.values()) == pytest.approx(6)


@pytest.mark.parametrize(
    ("by", "first", "second"),
    [("person", "owner@example.org", "teammate@example.org"), ("project", "Sums", "no project"), ("run", "#1 =long", "#2 short")],
)
def test_hours_are_broken_down(by: str, first: str, second: str, team: Team, november: Project) -> None:
    lines = figures.build_usage_breakdown(team, NOVEMBER, figures.clip_leases_to_month(team, NOVEMBER), by)
    assert [(line.title, round(line.gpu_hours, 3), round(line.compute_hours, 3)) for line in lines] == [(first, 6, 0), (second, 0, 0.5)]


def test_label_minutes_count_and_an_open_page_does_not(team: Team, owner: User, november: Project) -> None:
    queue = make_queue(team, owner, name="q", kind=Kind.SINGLE, items=[NewItem(1, (1,)), NewItem(1, (2,))], project=november)
    for item, seconds in zip(Item.objects.filter(queue=queue), (90.0, 40_000.0), strict=True):
        key = f"00000000-0000-0000-0000-{item.pk:012}"
        Judgement.objects.create(item=item, queue=queue, user=owner, key=key, verdict=Verdict.GOOD, order=[0], seconds=seconds)
    month = Month.now()
    [line] = figures.build_usage_breakdown(team, month, [], "project")
    assert (line.title, line.project, line.label_minutes) == ("Sums", november.pk, pytest.approx(11.5))
    assert line.cost(Quota(label_minute_price=2)) == pytest.approx(23)


def test_the_page_shows_a_month_with_its_cost(as_owner: Client, team: Team, november: Project) -> None:
    Quota.objects.create(team=team, gpu_hours=5, gpu_hour_price=2.5, compute_hour_price=1)
    page = texts(as_owner.get(reverse("usage") + "?month=2026-11&by=project"))
    assert all(words in page for words in ("November 2026", "Sums", "15.00 EUR", "15.50 EUR", "0.50 EUR", "Hours per day"))
    empty = texts(as_owner.get(reverse("usage") + "?month=2025-01"))
    assert "No usage in January 2025" in empty
    assert as_owner.get(reverse("usage") + "?month=nonsense&by=nonsense").status_code == 200


def test_the_export_has_every_run_and_no_formula(as_owner: Client, team: Team, november: Project) -> None:
    response = as_owner.get(reverse("usage-csv") + "?month=2026-11")
    assert response.headers["Content-Disposition"] == 'attachment; filename="usage-2026-11.csv"'
    rows = list(csv.DictReader(io.StringIO(b"".join(response.streaming_content).decode())))  # type: ignore[attr-defined]
    assert [(row["run"], row["name"], row["project"], float(row["gpu_hours"]), float(row["compute_hours"])) for row in rows] == [
        ("1", "'=long", "Sums", 6.0, 0.0),
        ("2", "short", "", 0.0, 0.5),
    ]
    assert Entry.across_teams.filter(action="usage.export").count() == 1


def test_an_admin_sets_quotas_and_the_change_is_audited(as_owner: Client, team: Team) -> None:
    assert as_owner.post(reverse("usage-limits"), FORM).status_code == 302
    quota = Quota.objects.get(team=team)
    assert (quota.concurrent_runs, quota.gpu_hours, quota.storage_bytes, quota.queues) == (2, 40.5, 10 << 30, ["gpu", "small"])
    assert quota.currency == "EUR"
    as_owner.post(reverse("usage-limits"), FORM | {"concurrent_runs": "3"})
    assert Entry.across_teams.filter(action="quota.change").latest("pk").details == {"changed": {"concurrent_runs": [2, 3]}}
    as_owner.post(reverse("usage-limits"), FORM | {"concurrent_runs": "3"})
    assert Entry.across_teams.filter(action="quota.change").count() == 2
    shown = texts(as_owner.get(reverse("usage-limits")))
    assert all(f'value="{value}"' in shown for value in ("3", "40.5", "10", "gpu, small"))
    as_owner.post(reverse("usage-limits"), {"warn_percent": "80", "currency": "EUR"})
    quota.refresh_from_db()
    assert (quota.concurrent_runs, quota.gpu_hours, quota.storage_bytes, quota.queues) == (None, None, None, None)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("concurrent_runs", "-1", "Enter 0 or more"),
        ("concurrent_runs", "two", "Enter a whole number"),
        ("gpu_hours", "nan", "or leave empty"),
        ("gpu_hours", "1e300", "At most"),
        ("storage", "lots", "or leave empty"),
        ("queues", "gpu, no good!", "not a queue name"),
        ("warn_percent", "", "from 1 to 100"),
        ("currency", "euros", "three letters"),
    ],
)
def test_what_cannot_be_a_quota_is_refused_at_its_field(field: str, value: str, words: str, as_owner: Client, team: Team) -> None:
    response = as_owner.post(reverse("usage-limits"), FORM | {field: value})
    assert response.status_code == 422
    assert words in texts(response)
    assert f'value="{value}"' in texts(response) or not value
    assert not Quota.across_teams.exists()


def test_researchers_see_usage_and_do_not_set_it(team: Team, teammate: User) -> None:
    client = Client()
    client.force_login(teammate)
    page = texts(client.get(reverse("usage")))
    assert reverse("usage-limits") not in page
    assert client.post(reverse("usage-limits"), FORM).status_code == 403
    annotator = Client()
    annotator.force_login(make_member("annotator@example.org", team, Role.ANNOTATOR))
    assert annotator.get(reverse("usage")).status_code == 403


def test_launching_shows_what_is_left_and_what_would_hold_it(as_owner: Client, team: Team) -> None:
    assert "Concurrent runs" not in texts(as_owner.get(reverse("usage-left")))
    Quota.objects.create(team=team, concurrent_runs=4)
    assert "0 of 4" in texts(as_owner.get(reverse("usage-left")))
    Quota.across_teams.update(concurrent_runs=0)
    assert "A run launched now will wait: Team Reasoning already has 0 of 0 concurrent runs." in texts(as_owner.get(reverse("usage-left")))
    beside_form = f"{reverse('usage-left')}?checked=1"
    assert f'hx-get="{beside_form}"' in texts(as_owner.get(reverse("launch-recipe", args=["grpo"])))
    assert "will wait" not in texts(as_owner.get(beside_form))  # the form's check says it


def test_a_queue_the_team_may_not_use_is_refused_at_launch(as_owner: Client, team: Team) -> None:
    Quota.objects.create(team=team, queues=["small"])
    response = as_owner.post(reverse("launch-recipe", args=["grpo"]), {"queue": "gpu"})
    assert response.status_code == 422
    assert "may not use the queue gpu (only small)" in texts(response)
    demo = as_owner.post(reverse("launch-demo"), follow=True)
    assert "The demo was not launched" in texts(demo)
    assert not Run.across_teams.exists()


@pytest.fixture
def fresh_files(run_folders: Path, settings: Any, tmp_path: Path) -> Path:
    settings.DATASETS_ROOT = tmp_path / "datasets"
    return run_folders


def put(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_the_chore_weighs_run_folders_and_datasets(team: Team, fresh_files: Path, tmp_path: Path) -> None:
    run = make_run(team)
    put(run.folder / "checkpoints" / "checkpoint-5" / "model.safetensors", 3000)
    put(run.folder / "final" / "model.safetensors", 2000)
    put(run.folder / "events.jsonl", 700)
    (run.folder / "outside").symlink_to(tmp_path)
    put(tmp_path / "datasets" / str(team.pk) / "d.jsonl", 110)
    assert storage_use.weigh_storage()
    stored = Storage.objects.get(team=team)
    assert (stored.checkpoints, stored.spools, stored.datasets) == (5000, 700, 110)  # nothing behind a link counts
    assert RunStorage.across_teams.get().checkpoints == 5000


def test_only_what_may_have_changed_is_weighed_again(team: Team, fresh_files: Path) -> None:
    now = timezone.now()
    ended, alive, old = (make_run(team, status=status) for status in ("finished", "running", "finished"))
    Run.across_teams.filter(status="finished").update(finished_at=now - timedelta(days=3))
    assert set(storage_use.due_runs()) == {ended, alive, old}
    storage_use.weigh_storage()
    assert storage_use.due_runs() == []
    RunStorage.across_teams.update(measured_at=now - timedelta(hours=1))
    assert storage_use.due_runs() == [alive]
    Run.across_teams.filter(pk=ended.pk).update(finished_at=now)
    RunStorage.objects.filter(run=old).update(measured_at=now - timedelta(days=2))
    assert set(storage_use.due_runs()) == {ended, alive, old}


def test_a_team_without_runs_is_weighed_too(team: Team, fresh_files: Path) -> None:
    assert storage_use.weigh_storage()
    assert Storage.objects.get(team=team).checkpoints == 0
    assert storage_use.due_teams() == []


def test_the_preflight_names_the_quota_that_would_hold_the_run(team: Team) -> None:
    Quota.objects.create(team=team, concurrent_runs=0)
    form = LaunchForm(team, load_catalog(), drafts.of_recipe(load_catalog(), "grpo"))
    found = Examination()
    examine_place(form, found)
    assert found.problems == []
    assert [warning.text for warning in found.warnings] == [
        "It will wait: team Reasoning already has 0 of 0 concurrent runs. It starts automatically when there is room."
    ]


def test_a_team_that_may_not_use_the_usual_queue_starts_with_one_that_it_may(team: Team, make_worker: MakeWorker) -> None:
    make_worker("a:1", queues=("gpu", "small"))
    assert LaunchForm(team, load_catalog(), drafts.of_recipe(load_catalog(), "grpo")).values["queue"] == "gpu"
    Quota.objects.create(team=team, queues=["small"])
    form = LaunchForm(team, load_catalog(), drafts.of_recipe(load_catalog(), "grpo"))
    assert (form.values["queue"], form.queue_choices, form.place) == ("small", ["small"], Place(None, "small"))


@pytest.mark.feature(109)
def test_a_win_costs_what_was_trained_and_labelled(team: Team, owner: User, make_lease: MakeLease) -> None:
    run = make_run(team)
    make_lease(datetime(2026, 11, 4, tzinfo=UTC), 4, run=run)
    make_lease(datetime(2026, 11, 5, tzinfo=UTC), 0.5, gpus=0, run=run)
    queue = make_queue(team, owner, name="match", kind=Kind.PAIR, items=[NewItem(1, (1, 2))])
    key = "00000000-0000-0000-0000-000000000001"
    Judgement.objects.create(item=Item.objects.get(queue=queue), queue=queue, user=owner, key=key, verdict=Verdict.A, order=[0, 1], seconds=120)
    match = Match.objects.create(team=team, child=run, queue=queue)
    quota = Quota(gpu_hour_price=2, compute_hour_price=1, label_minute_price=0.5)
    counted = replace(tally_match(match), rate=WinRate(0.6, 0.5, 0.7, "test"))
    found = compute_win_cost(match, counted, quota)
    assert (found.spent.gpu_hours, found.spent.compute_hours, found.judged_minutes, found.trained_minutes) == (4, 0.5, 2, 0)
    assert found.points == pytest.approx(10)
    assert found.cost == pytest.approx(4 * 2 + 0.5 + 2 * 0.5)
    assert found.cost_each == pytest.approx(0.95)
    assert found.gpu_hours_each == pytest.approx(0.4)
    assert compute_win_cost(match, replace(counted, rate=WinRate(0.5, 0.4, 0.6, "test")), quota).cost_each is None


@pytest.mark.feature(109)
def test_a_recipe_costs_what_all_its_compared_runs_took_per_point_of_those_that_won(
    team: Team, as_owner: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = Quota(gpu_hour_price=2, label_minute_price=1)

    def compared(recipe: str, rate: float, hours: float, votes: int = 40, run: Run | None = None) -> WinCost:
        match = Match(team=team, child=run or make_run(team, recipe=recipe), version_id=7 if recipe == "dpo" else None)
        tally = MatchTally(WinRecord(votes, 0, 0), WinRate(rate, rate - 0.1, rate + 0.1, "test"), votes, votes, votes, 0, 0, {}, None, 0)
        spent = figures.UsageLine("", gpu_hours=hours, label_minutes=8)
        return WinCost(spent, spent.cost(quota), (rate - 0.5) * 100 if rate > 0.5 else None, match, tally, 5.0 if recipe == "dpo" else 0.0, 3.0)

    won, again = compared("dpo", 0.7, 3), compared("dpo", 0.6, 1)
    wins = [
        won,
        compared("dpo", 0.9, 3, run=won.match.child),
        again,
        compared("dpo", 0.4, 2),
        compared("grpo", 0.45, 4),
        compared("grpo", 0.9, 9, votes=1),
    ]
    dpo, grpo, whole = total_by_recipe(wins, quota)
    assert (dpo.spent.title, dpo.won, len(dpo.spent.runs), dpo.spent.gpu_hours) == ("dpo", 2, 3, 6), "each run by its newest comparison"
    assert dpo.spent.label_minutes == 5 + 3 * 3, "labels they share count once"
    assert dpo.points == pytest.approx(30)
    assert dpo.cost_each == pytest.approx((6 * 2 + 14) / 30)
    assert (grpo.won, grpo.points, grpo.cost_each) == (0, None, None)
    assert (whole.won, len(whole.spent.runs), whole.spent.gpu_hours) == (2, 4, 10), "what has too few votes is left out"
    assert whole.cost_each == pytest.approx((10 * 2 + 17) / 30)
    assert total_by_recipe([], quota) == []
    monkeypatch.setattr("lab.watching.usage.pages.list_win_costs", lambda team, quota: wins)
    page = as_owner.get("/usage/").content.decode()
    assert "2 of 3</td>" in page
    assert "no win: not above 50 %" in page
