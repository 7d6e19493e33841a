"""What an operator looks for first. Every part says what it saw, and a service that is away is a line of the page, not an error of it."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import django
import redis
from django.conf import settings
from django.db.models import Count
from django.urls import reverse
from django.utils import timezone

from lab.edges.operations.machine_figures import list_disk_folders, measure_database, measure_disk, measure_redis, measure_spool_size
from lab.lib.numbers import format_byte_size
from lab.lib.timeago import format_age
from lab.teams.audit.models import Entry
from lab.training.runs.models import ACTIVE, Run, Status
from lab.training.runs.wait_reasons import find_waiting_reasons
from lab.training.workers.models import Worker
from lab.watching.alerts.models import Delivery, DeliveryState

LISTED = 12
DAY = timedelta(days=1)
LITTLE_DISK = 0.1  # share left, from which on it is said in colour
BEHIND = 32 << 20  # bytes of a spool that are not stored yet
MANY_FAILURES = 20  # sign-ins a day


@dataclass(frozen=True)
class CardLine:
    """``url`` leads to the object in /admin/."""

    words: str
    note: str = ""
    url: str = ""


@dataclass(frozen=True)
class DashboardCard:
    """``tone``: good, warn or bad, said in words by ``state`` too."""

    title: str
    state: str
    tone: str = "good"
    lines: list[CardLine] = field(default_factory=list)
    more: str = ""  # address of the whole list
    empty: str = ""


def build_dashboard() -> dict[str, Any]:
    return {
        "cards": [
            build_workers_card(),
            build_waiting_card(),
            build_failures_card(),
            build_training_card(),
            build_disk_card(),
            build_services_card(),
            build_deliveries_card(),
            sign_ins(),
        ],
        "release": describe_release(),
    }


def describe_release() -> str:
    """The newest heading of the change log, and what the lab runs on."""
    match = (
        re.search(r"^## (.+)$", (settings.BASE / "CHANGELOG.md").read_text(), re.MULTILINE) if (settings.BASE / "CHANGELOG.md").is_file() else None
    )
    return f"{match[1] if match else 'of unknown version'} · Django {django.get_version()} · Python {platform.python_version()}"


def build_changelist_url(model: str, query: str = "") -> str:
    return reverse(f"admin:{model}_changelist") + query


def make_run_line(run: Run, note: str) -> CardLine:
    return CardLine(f"{run.team} {run}", note, reverse("admin:runs_run_change", args=[run.pk]))


def describe_worker_state(worker: Worker) -> str:
    if worker.draining:
        return "leaving"
    return ", ".join([*worker.queues, *([] if worker.takes_runs else ["drained"])])


def build_workers_card() -> DashboardCard:
    rows = list(Worker.objects.judged().order_by("-seen_at")[: LISTED * 4])
    alive = [worker for worker in rows if worker.is_alive]
    gone = [worker for worker in rows if not worker.is_alive]
    lines = [CardLine(worker.name, f"{worker.gpu or f'{worker.cpus} CPU cores'}, {describe_worker_state(worker)}") for worker in alive]
    lines += [
        CardLine(worker.name, f"lost: seen {format_age(worker.seen_at)} ago", reverse("admin:workers_worker_change", args=[worker.pk]))
        for worker in gone
    ]
    tone = "bad" if not alive else "warn" if gone else "good"
    state = f"{len(alive)} alive" + (f", {len(gone)} lost" if gone else "")
    return DashboardCard(
        "Workers", state, tone, lines[:LISTED], build_changelist_url("workers_worker"), "No worker has been started yet: run manage.py worker."
    )


def build_waiting_card() -> DashboardCard:
    rows = Run.across_teams.filter(status__in=(Status.QUEUED, Status.LOST)).select_related("team", "parent").defer("spec").order_by("queued_at")
    runs = list(rows[:LISTED])
    why = find_waiting_reasons(runs)
    lines = [make_run_line(run, f"{why[run.pk].why if run.pk in why else run.status}, since {format_age(run.queued_at)}") for run in runs]
    count = rows.count()
    return DashboardCard(
        "Waiting runs",
        f"{count} queued",
        "warn" if count else "good",
        lines,
        build_changelist_url("runs_run", "?status__exact=queued"),
        "No queued runs.",
    )


def build_failures_card() -> DashboardCard:
    since = timezone.now() - DAY
    failed = Run.across_teams.filter(status=Status.FAILED, finished_at__gte=since)
    rows = (failed | Run.across_teams.filter(status=Status.LOST)).select_related("team").defer("spec").order_by("-finished_at")
    lines = [make_run_line(run, f"{run.status}: {run.reason[:160] or 'no reason was given'}") for run in rows[:LISTED]]
    count = rows.count()
    state = f"{count} in the last day"
    return DashboardCard(
        "Failed and lost runs",
        state,
        "bad" if count else "good",
        lines,
        build_changelist_url("runs_run", "?status__exact=failed"),
        "None in the last day.",
    )


def build_training_card() -> DashboardCard:
    """Runs that train, and how far the database is behind what they wrote."""
    rows = list(Run.across_teams.filter(status__in=ACTIVE).select_related("team").defer("spec").order_by("started_at")[: LISTED * 2])
    behind = [(measure_spool_size(run) - run.ingested, run) for run in rows]
    late = sum(left > BEHIND for left, _ in behind)
    lines = [make_run_line(run, f"{run.status}, step {run.step}, {format_byte_size(max(0, left))} not stored yet") for left, run in behind]
    state = f"{len(rows)} training" + (f", {late} far behind" if late else "")
    return DashboardCard(
        "Training and spools",
        state,
        "warn" if late else "good",
        lines[:LISTED],
        build_changelist_url("runs_run", "?status__exact=running"),
        "No run is training.",
    )


def build_disk_card() -> DashboardCard:
    lines, tone, least = [], "good", 1.0
    for name, path in list_disk_folders().items():
        try:
            free, size = measure_disk(path)
        except OSError as error:
            lines.append(CardLine(name, f"cannot be read: {error.strerror}"))
            continue
        share = free / size
        least = min(least, share)
        lines.append(CardLine(f"{name}: {path}", f"{format_byte_size(free)} of {format_byte_size(size)} left"))
        tone = "bad" if least < LITTLE_DISK / 2 else "warn" if least < LITTLE_DISK else tone
    return DashboardCard("Disk", f"{least:.0%} left", tone, lines)


def build_services_card() -> DashboardCard:
    lines, tone = [describe_database()], "good"
    try:
        lines.append(CardLine("Redis", f"answers; {format_byte_size(measure_redis().memory)} in use"))
    except redis.RedisError as error:
        tone = "bad"
        lines.append(CardLine("Redis", f"is down: {type(error).__name__}. Training continues; live updates resume when it is back."))
    return DashboardCard("Services", "PostgreSQL and Redis up" if tone == "good" else "Redis is down", tone, lines)


def describe_database() -> CardLine:
    use = measure_database()
    return CardLine(f"PostgreSQL {use.version}", f"{format_byte_size(use.size)}; {use.connections} of {use.limit} connections")


def build_deliveries_card() -> DashboardCard:
    rows = (
        Delivery.across_teams.filter(state=DeliveryState.FAILED, created_at__gte=timezone.now() - DAY).select_related("team").order_by("-created_at")
    )
    lines = [CardLine(f"{delivery.team}: {'webhook' if delivery.webhook_id else 'mail'}", delivery.problem or "failed") for delivery in rows[:LISTED]]
    count = rows.count()
    return DashboardCard(
        "Mails and webhooks", f"{count} failed deliveries in the last day", "warn" if count else "good", lines, empty="All were delivered."
    )


def sign_ins() -> DashboardCard:
    rows = Entry.across_teams.filter(team=None, action="session.fail", at__gte=timezone.now() - DAY)
    failures = list(rows.values("label").annotate(count=Count("pk")).order_by("-count")[:LISTED])
    count = rows.count()
    lines = [CardLine(failure["label"] or "no address", f"{failure['count']} time{'' if failure['count'] == 1 else 's'}") for failure in failures]
    whole = build_changelist_url("audit_entry", "?q=&team__isnull=True")
    return DashboardCard(
        "Failed sign-ins", f"{count} in the last day", "warn" if count >= MANY_FAILURES else "good", lines, whole, "None in the last day."
    )
