"""Quotas hold runs back where they are claimed, say why, and let them go on by themselves."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from lab.supervision.supervisor.sweeper import OVERDUE, select_unheld_runs
from lab.teams.accounts.models import Team
from lab.training.runs import wait_reasons
from lab.training.runs.header import build_run_header
from lab.training.runs.models import Run, Status
from lab.watching.usage import ledger, quotas
from lab.watching.usage.models import Lease, Quota, Storage
from lab.watching.usage.months import Month
from tests.lab.supervisor.claiming import claim_run
from tests.lab.supervisor.spools import make_run
from tests.lab.usage.conftest import MakeLease, MakeWorker

NOVEMBER = Month(2026, 11)


def again(run: Run) -> Run:
    return Run.across_teams.get(pk=run.pk)


def test_without_limits_a_claim_opens_a_lease(team: Team, make_worker: MakeWorker) -> None:
    make_worker("a:1")
    run = make_run(team)
    assert claim_run(run, "a:1/x", "a:1")
    lease = Lease.across_teams.get()
    assert (lease.run, lease.gpus, lease.owner, lease.ended_at) == (run, 1, "a:1/x", None)


def test_a_run_waits_for_the_end_of_another_and_is_then_claimed(team: Team, quota: Quota, make_worker: MakeWorker) -> None:
    Quota.across_teams.update(concurrent_runs=1)
    first, second = make_run(team), make_run(team)
    assert claim_run(first, "a:1/x", "a:1")
    assert not claim_run(second, "b:1/y", "b:1")
    second = again(second)
    assert (second.status, second.reason) == ("queued", "Waiting: team Reasoning already has 1 of 1 concurrent runs.")
    assert wait_reasons.find_waiting_reasons([second])[second.pk].kind == "held"
    assert first.end("a:1/x", Status.FINISHED)
    assert select_unheld_runs([second]) == [second]
    assert again(second).reason == ""
    assert claim_run(second, "b:1/y", "b:1")


def test_a_run_that_is_claimed_while_somebody_asks_does_not_wait_for_itself(team: Team, quota: Quota, make_worker: MakeWorker) -> None:
    Quota.across_teams.update(concurrent_runs=1)
    make_worker("a:1")
    run = make_run(team)
    asked = again(run)
    assert claim_run(run, "a:1/x", "a:1")
    assert asked.status == "queued"
    assert wait_reasons.find_waiting_reasons([asked])[asked.pk].kind == "position"


def test_a_lost_run_keeps_its_place(team: Team, quota: Quota) -> None:
    Quota.across_teams.update(concurrent_runs=1)
    lost, other = make_run(team), make_run(team)
    assert claim_run(lost, "a:1/x", "a:1")
    Run.across_teams.filter(pk=lost.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert again(lost).lose()
    assert not claim_run(other, "b:1/y", "b:1")
    assert claim_run(again(lost), "c:1/z", "c:1")
    assert Lease.objects.filter(run=lost).count() == 2


def test_another_team_is_not_held(team: Team, quota: Quota) -> None:
    Quota.across_teams.update(concurrent_runs=0)
    elsewhere = make_run(Team.objects.create(name="Other", slug="other"))
    assert claim_run(elsewhere, "a:1/x", "a:1")
    assert not claim_run(make_run(team), "b:1/x", "b:1")


def test_gpu_hours_hold_gpu_workers_only(team: Team, quota: Quota, make_worker: MakeWorker, make_lease: MakeLease) -> None:
    make_worker("gpu:1")
    make_worker("cpu:1", gpu="")
    Quota.across_teams.update(gpu_hours=2)
    make_lease(Month.now().start, 2.5)
    run = make_run(team)
    assert not claim_run(run, "gpu:1/x", "gpu:1")
    following = Month.now().next.start
    assert again(run).reason == f"Waiting: the month's 2 h on GPUs are used up; they reset on {following:%-d %B}."
    assert quotas.explain_held_run(again(run)) == ""  # a worker without a GPU could take it
    assert claim_run(run, "cpu:1/x", "cpu:1")
    assert Lease.across_teams.get(owner="cpu:1/x").gpus == 0


def test_full_storage_and_a_forbidden_queue_hold(team: Team, quota: Quota) -> None:
    run = make_run(team)
    Storage.objects.create(team=team, checkpoints=3 << 30, spools=1 << 30)
    Quota.across_teams.update(storage_bytes=4 << 30)
    assert quotas.explain_held_run(run) == (
        "Waiting: storage is full (4.0 GiB of 4.0 GiB): delete checkpoints you no longer need, or ask an admin for more."
    )
    Quota.across_teams.update(storage_bytes=5 << 30, queues=["small"])
    assert "may not use the queue gpu (only small)" in quotas.explain_held_run(run)
    assert quotas.explain_held_run(make_run(team, queue="small")) == ""


def test_what_runs_is_not_held(team: Team, quota: Quota) -> None:
    run = make_run(team)
    assert claim_run(run, "a:1/x", "a:1")
    Quota.across_teams.update(concurrent_runs=0, gpu_hours=0, storage_bytes=0, queues=[])
    assert quotas.explain_held_run(again(run)) == ""
    assert run.renew("a:1/x")


def test_the_header_says_what_it_waits_for(team: Team, quota: Quota) -> None:
    Quota.across_teams.update(concurrent_runs=0)
    notice = build_run_header(make_run(team), "overview")["notice"]
    assert notice.title == "Waiting in the queue."
    assert notice.text == "Team Reasoning already has 0 of 0 concurrent runs."


@pytest.mark.django_db(transaction=True)
def test_workers_that_claim_at_once_keep_the_limit(team: Team) -> None:
    Quota.objects.create(team=team, concurrent_runs=2)
    runs = [make_run(team) for _ in range(8)]
    start, claimed = threading.Barrier(len(runs)), []

    def work(run: Run) -> None:
        start.wait()
        if claim_run(run, f"w:{run.number}/x", f"w:{run.number}"):
            claimed.append(run.pk)
        connection.close()

    threads = [threading.Thread(target=work, args=[run]) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == 2
    assert Run.across_teams.filter(status="starting").count() == Lease.across_teams.count() == 2
    assert Run.across_teams.filter(status="queued", reason__startswith=quotas.WAITING).count() == 6


def test_hours_are_cut_at_the_ends_of_a_month(team: Team, make_lease: MakeLease) -> None:
    make_lease(datetime(2026, 10, 31, 22, tzinfo=UTC), 5)  # 3 of them in November
    make_lease(datetime(2026, 11, 30, 23, tzinfo=UTC), 4, gpus=2)  # 1 of them, on two GPUs
    make_lease(datetime(2026, 11, 10, tzinfo=UTC), 1.5, gpus=0)
    make_lease(datetime(2026, 12, 1, tzinfo=UTC), 7)
    assert ledger.sum_month_hours(team, NOVEMBER) == (pytest.approx(3 + 2), pytest.approx(1.5))
    assert ledger.sum_month_hours(team, NOVEMBER.before) == (pytest.approx(2), 0.0)
    assert ledger.sum_month_hours(team, NOVEMBER.next) == (pytest.approx(6 + 7), 0.0)


def test_a_killed_worker_counts_to_its_last_sign_of_life(team: Team, make_worker: MakeWorker) -> None:
    make_worker("a:1")
    assert claim_run(make_run(team), "a:1/x", "a:1")
    Lease.across_teams.update(started_at=timezone.now() - timedelta(hours=3))
    ledger.refresh_leases("a:1/x")
    Lease.across_teams.update(seen_at=timezone.now() - timedelta(hours=2))
    assert ledger.sum_month_hours(team, Month.now())[0] + ledger.sum_month_hours(team, Month.now().before)[0] == pytest.approx(1, abs=0.01)
    ledger.close_leases("a:1/x")
    ledger.refresh_leases("a:1/x")  # too late: it has ended
    assert Lease.across_teams.get().ended_at is not None


@pytest.mark.parametrize(("text", "month"), [("2026-11", NOVEMBER), ("2026-13", None), ("26-1", None), ("٢٠٢٦-11", None), ("", None)])
def test_months_are_read_from_addresses(text: str, month: Month | None) -> None:
    assert Month.read(text) == month


def test_months_follow_each_other_over_the_year() -> None:
    assert Month(2026, 12).next == Month(2027, 1)
    assert Month(2027, 1).before == Month(2026, 12)
    assert Month.of(datetime(2026, 12, 31, 23, 59, tzinfo=UTC)).end == datetime(2027, 1, 1, tzinfo=UTC)


def test_near_is_from_the_warning_share_on(team: Team, quota: Quota) -> None:
    Quota.across_teams.update(storage_bytes=100)
    Storage.objects.create(team=team, spools=79)
    assert quotas.list_near_quotas(team) == []
    Storage.across_teams.update(spools=80)
    assert [use.name for use in quotas.list_near_quotas(team)] == ["storage"]


def test_held_runs_are_not_sent_again(team: Team, quota: Quota) -> None:
    Quota.across_teams.update(concurrent_runs=0)
    run = make_run(team, queued_at=timezone.now() - 2 * OVERDUE)
    assert select_unheld_runs([run]) == []
    assert again(run).reason.startswith(quotas.WAITING)
