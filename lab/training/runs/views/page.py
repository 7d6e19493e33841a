"""One run: overview with its metrics, logs, config. Each page is one template; htmx and scripts ask the same address for a part of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import yaml
from django.core.cache import cache
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.lib.clock import database_now
from lab.lib.costly import limit_costly_requests
from lab.lib.downloads import Lines, csv_safe, stream_attachment
from lab.lib.numbers import parse_whole_number
from lab.lib.snapshots import open_read_snapshot
from lab.teams.accounts.requests import LabRequest
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs import log_text, preparation, spec_reading, verbs
from lab.training.runs.attempt_times import measure_attempt_seconds
from lab.training.runs.environment import list_recorded_values
from lab.training.runs.header import build_run_header
from lab.training.runs.models import NAME_LENGTH, TAG_LENGTH, Run
from lab.training.runs.more_rewards import list_launched_columns
from lab.training.runs.preflight import PreflightError, run_preflight
from lab.training.runs.run_marks import list_run_marks
from lab.training.runs.snapshot import CSV_AXES, build_run_snapshot, csv_rows
from lab.training.runs.stored_checkpoints import describe_storage
from lab.training.runs.tags import list_team_tags

LOG_LINES = 8  # of the log, before the first step
PROMPT_LENGTH = 1000  # characters of a prompt, before the first step
PROMPT_SECONDS = 3600  # the prompts of a run stay what they are, and to list them takes a process


def find_team_run(request: HttpRequest, run_id: Any) -> Run:
    """The team's run, or 404."""
    runs = Run.objects.of(request.team)  # type: ignore[attr-defined]
    related = ("parent", "cloned_from", "created_by", "dropped", "member", "trial", "team")
    return get_object_or_404(runs.select_related(*related).annotate(read_at=Now()), pk=run_id)


@require_safe
def show_run_overview(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = find_team_run(request, run_id)
    if request.GET.get("part") == "header":
        return render(request, "runs/run_header.html", build_run_header(run, read_tab(request)))
    if request.GET.get("part") == "preparation":
        return render_preparation(request, run)
    if request.GET.get("part") == "prompts":
        samples = cache.get_or_set(f"prompts-{run.pk}", partial(fetch_prompt_samples, run), PROMPT_SECONDS) if preparation.is_preparing(run) else []
        return render(request, "runs/run_prompts.html", {"samples": samples})
    return render(request, "runs/run_overview.html", build_run_header(run, "overview") | {"preparing": preparation.is_preparing(run)})


def render_preparation(request: HttpRequest, run: Run) -> HttpResponse:
    """The stages before the first step. Nothing, and no further question of the page (status 286 of htmx), once it is there."""
    if not preparation.is_preparing(run):
        return HttpResponse(status=286)
    lines = log_text.read_log_tail(run, run.attempt).lines[-LOG_LINES:] if run.attempt else []
    return render(request, "runs/run_preparation.html", {"stages": preparation.list_stages(run, database_now()), "lines": lines})


def fetch_prompt_samples(run: Run) -> list[dict[str, Any]]:
    """Some prompts of the run's task or dataset, as they can be shown; none where the check cannot say."""
    try:
        samples = run_preflight(run.spec, policy_pending=True, owner=f"{run.team_id}").get("samples", [])
    except PreflightError:
        return []
    return [
        {
            "messages": [(show_prompt_text(message["role"]), show_prompt_text(message["content"])) for message in sample["prompt"]],
            "reference": show_prompt_text(sample["reference"]),
        }
        for sample in samples
    ]


def show_prompt_text(text: Any) -> str:
    cut = str(text)[: PROMPT_LENGTH + 1]
    return log_text.escape_control_characters(cut if len(cut) <= PROMPT_LENGTH else f"{cut[:PROMPT_LENGTH]}…")


TABS = ("overview", "rollouts", "atlas", "logs", "config", "feeds")


def read_tab(request: HttpRequest) -> str:
    """The tab that the header which is asked for stands on."""
    tab = (request.POST if request.method == "POST" else request.GET).get("tab", "")
    return tab if tab in TABS else "overview"


@require_safe
def serve_run_metrics(request: LabRequest, run_id: Any) -> HttpResponse:
    """All a page needs to draw its charts; ``?part=marks`` only the marks, which deltas do not carry."""
    with open_read_snapshot():
        run = find_team_run(request, run_id)
        body = {"marks": list_run_marks(run, request.user)} if request.GET.get("part") == "marks" else build_run_snapshot(run, request.user)
    # Django's encoder takes five times as long over a hundred thousand numbers.
    return HttpResponse(msgspec.json.encode(body), content_type="application/json", headers={"Cache-Control": "no-store"})


@require_safe
@limit_costly_requests()
def metrics_csv(request: HttpRequest, run_id: Any) -> StreamingHttpResponse:
    """Every logged point: a row a step, a column a metric. ``?name=`` (repeatable) picks metrics."""
    run = find_team_run(request, run_id)
    names, rows = csv_rows(run, request.GET.getlist("name"))
    if request.method == "GET":
        record_audit_entry("metrics.export", run, metrics=len(names), format="csv")
    writer = csv.writer(Lines())

    def lines() -> Iterator[str]:
        yield writer.writerow([*CSV_AXES, *(csv_safe(name) for name in names)])
        for row in rows:
            yield writer.writerow(row)

    return stream_attachment(request, lines(), f"run-{run.number}-metrics.csv", "text/csv; charset=utf-8", reads_database=False)


@require_safe
@limit_costly_requests(lambda request: "download" in request.GET or bool(request.GET.get("q")))
def show_run_logs(request: HttpRequest, run_id: Any) -> HttpResponse | StreamingHttpResponse:
    """An attempt's log. ``?after=`` answers with the lines since a cursor as JSON, ``?q=`` with matching lines, ``?download`` with all of it."""
    run = find_team_run(request, run_id)
    numbers = sorted({*run.log_chunks.order_by().values_list("attempt", flat=True).distinct(), *run.attempts.values_list("number", flat=True)})
    text = request.GET.get("attempt", "")
    number = parse_whole_number(text)
    attempt = number if number is not None and number in numbers else (numbers[-1] if numbers else 0)
    if "download" in request.GET:
        return stream_attachment(
            request, log_text.iterate_log_text(run, attempt), f"run-{run.number}-attempt-{attempt}.log", "text/plain; charset=utf-8"
        )
    if "after" in request.GET:
        tail = log_text.read_log_tail(run, attempt, request.GET["after"])
        newest = numbers[-1] if numbers else 0
        body = {"attempt": attempt, "newest": newest, "lines": tail.lines, "cursor": tail.cursor, "open_line": tail.open_line, "more": tail.more}
        return JsonResponse(body, headers={"Cache-Control": "no-store"})
    words = request.GET.get("q", "").strip()[:200]
    context = {"attempts": numbers, "attempt": attempt, "words": words, "newest": not numbers or attempt == numbers[-1]}
    if words:
        context["matches"], context["more_matches"] = log_text.search_log_lines(run, attempt, words)
    else:
        context["tail"] = log_text.read_log_tail(run, attempt)
    return render(request, "runs/run_logs.html", {**build_run_header(run, "logs"), **context})


@require_safe
def show_run_config(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The spec as launched. ``?format=json`` and ``?format=yaml`` are the same as text."""
    run = find_team_run(request, run_id)
    texts = build_config_texts(run)
    if (form := request.GET.get("format", "")) in texts:
        return HttpResponse(texts[form], content_type="text/plain; charset=utf-8", headers={"X-Content-Type-Options": "nosniff"})
    return render_run_config(request, run)


def build_config_texts(run: Run) -> dict[str, str]:
    return {"json": json.dumps(run.spec, indent=2, ensure_ascii=False), "yaml": yaml.safe_dump(run.spec, sort_keys=False, allow_unicode=True)}


def render_run_config(request: HttpRequest, run: Run, typed: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> HttpResponse:
    """``typed`` and ``errors``: what the form about the run held when it was refused, and why, by input."""
    usual, problem = spec_reading.find_usual_values(run)
    attempts = list(run.attempts.select_related("packages"))
    seconds = measure_attempt_seconds(run, attempts)
    checkpoints = list(run.checkpoints.all())
    storage = describe_storage(run, checkpoints)
    context = {
        "groups": spec_reading.group_spec_values(run.spec, usual),
        "usual_problem": problem,
        "columns": list_launched_columns(run),
        "changes": spec_reading.diff_launched_specs(run.cloned_from.spec, run.spec) if run.cloned_from and not run.cloned_from.binned_at else None,
        "checkpoints": [(checkpoint, storage.get(checkpoint.pk, "")) for checkpoint in checkpoints],
        "storage": storage,
        "attempts": [(attempt, seconds[attempt.number], list_recorded_values(attempt)) for attempt in attempts],
        **build_config_texts(run),
        "about": {"name": run.name, "tags": ", ".join(run.tags), "notes": run.notes, **(typed or {})},
        "errors": errors or {},
        "team_tags": [tag for tag in list_team_tags(run.team) if tag not in run.tags],
        "limits": {"name": NAME_LENGTH, "notes": verbs.NOTES_LENGTH, "tag": TAG_LENGTH},
    }
    return render(request, "runs/run_config.html", {**build_run_header(run, "config"), **context}, status=422 if errors else 200)
