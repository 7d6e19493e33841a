"""One run: overview with its metrics, logs, config. Each page is one template; htmx and scripts ask the same address for a part of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.audit.recording import record
from lab.lib.downloads import Lines, attachment, csv_safe
from lab.runs import launched, log_text
from lab.runs.header import header
from lab.runs.models import Run
from lab.runs.snapshot import CSV_AXES, csv_rows, marks, snapshot


def run_of(request: HttpRequest, run_id: Any) -> Run:
    """The team's run, or 404."""
    runs = Run.objects.of(request.team)  # type: ignore[attr-defined]
    return get_object_or_404(runs.select_related("parent", "cloned_from", "created_by"), pk=run_id)


@require_safe
def overview(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = run_of(request, run_id)
    if request.GET.get("part") == "header":
        tab = request.GET.get("tab", "")
        return render(request, "runs/run_header.html", header(run, tab if tab in TABS else "overview"))
    return render(request, "runs/run_overview.html", header(run, "overview"))


TABS = ("overview", "rollouts", "atlas", "logs", "config", "feeds")


@require_safe
def metrics(request: HttpRequest, run_id: Any) -> HttpResponse:
    """All a page needs to draw its charts; ``?part=marks`` only the marks, which deltas do not carry."""
    run = run_of(request, run_id)
    body = {"marks": marks(run)} if request.GET.get("part") == "marks" else snapshot(run)
    # Django's encoder takes five times as long over a hundred thousand numbers.
    return HttpResponse(msgspec.json.encode(body), content_type="application/json", headers={"Cache-Control": "no-store"})


@require_safe
def metrics_csv(request: HttpRequest, run_id: Any) -> StreamingHttpResponse:
    """Every logged point: a row a step, a column a metric. ``?name=`` (repeatable) picks metrics."""
    run = run_of(request, run_id)
    names, rows = csv_rows(run, request.GET.getlist("name"))
    if request.method == "GET":
        record("metrics.export", run, metrics=len(names), format="csv")
    writer = csv.writer(Lines())

    def lines() -> Iterator[str]:
        yield writer.writerow([*CSV_AXES, *(csv_safe(name) for name in names)])
        for row in rows:
            yield writer.writerow(row)

    return attachment(request, lines(), f"run-{run.number}-metrics.csv", "text/csv; charset=utf-8")


@require_safe
def logs(request: HttpRequest, run_id: Any) -> HttpResponse | StreamingHttpResponse:
    """An attempt's log. ``?after=`` answers with the lines since a cursor as JSON, ``?q=`` with matching lines, ``?download`` with all of it."""
    run = run_of(request, run_id)
    numbers = sorted({*run.log_chunks.order_by().values_list("attempt", flat=True).distinct(), *run.attempts.values_list("number", flat=True)})
    asked = request.GET.get("attempt", "")
    attempt = int(asked) if asked.isascii() and asked.isdigit() and int(asked[:9]) in numbers else (numbers[-1] if numbers else 0)
    if "download" in request.GET:
        return attachment(request, log_text.whole(run, attempt), f"run-{run.number}-attempt-{attempt}.log", "text/plain; charset=utf-8")
    if "after" in request.GET:
        tail = log_text.tail(run, attempt, request.GET["after"])
        newest = numbers[-1] if numbers else 0
        body = {"attempt": attempt, "newest": newest, "lines": tail.lines, "cursor": tail.cursor, "open_line": tail.open_line, "more": tail.more}
        return JsonResponse(body, headers={"Cache-Control": "no-store"})
    words = request.GET.get("q", "").strip()[:200]
    context = {"attempts": numbers, "attempt": attempt, "words": words, "newest": not numbers or attempt == numbers[-1]}
    if words:
        context["matches"], context["more_matches"] = log_text.search(run, attempt, words)
    else:
        context["tail"] = log_text.tail(run, attempt)
    return render(request, "runs/run_logs.html", {**header(run, "logs"), **context})


@require_safe
def config(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The spec as launched. ``?format=json`` and ``?format=yaml`` are the same as text."""
    run = run_of(request, run_id)
    texts = {"json": json.dumps(run.spec, indent=2, ensure_ascii=False), "yaml": yaml.safe_dump(run.spec, sort_keys=False, allow_unicode=True)}
    if (wanted := request.GET.get("format", "")) in texts:
        return HttpResponse(texts[wanted], content_type="text/plain; charset=utf-8", headers={"X-Content-Type-Options": "nosniff"})
    usual, problem = launched.usual(run)
    context = {
        "groups": launched.groups(run.spec, usual),
        "usual_problem": problem,
        "changes": launched.changes(run.cloned_from.spec, run.spec) if run.cloned_from else None,
        "checkpoints": run.checkpoints.all(),
        "attempts": run.attempts.all(),
        "json": texts["json"],
        "yaml": texts["yaml"],
    }
    return render(request, "runs/run_config.html", {**header(run, "config"), **context})
