"""A report as one file: HTML that needs nothing else, with charts as SVG, or its Markdown.

The file holds the state when it was made and says so. It has no script and loads nothing: its own content policy forbids both. SVG instead of
Plotly and the points: a few kB a chart instead of 1.5 MB of script, and it prints; what is lost is zooming.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

from lab.lib.numbers import format_number
from lab.rollouts.comparison.compared_runs import style_of
from lab.rollouts.comparison.series import build_metric_series
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.training.runs import curve_values, metrics
from lab.training.runs.curve_values import WORDS, CurveValue
from lab.training.runs.models import Run
from lab.watching.reports.contents import ChartContent, Part, build_document
from lab.watching.reports.markup import Prose
from lab.watching.reports.models import ReportVersion
from lab.watching.reports.smoothing import choose_smoothing, smooth_values, split_line
from lab.watching.reports.svg_chart import DrawnLine, draw_line_chart

X_WORDS = {"step": "step", "time": "minutes", "tokens": "tokens", "samples": "samples"}
RAW_LINES = 8  # with more runs the raw lines behind the smoothed ones are only clutter, as in the comparison
Reading = tuple[str, Callable[[metrics.Series], CurveValue | None]]
OF_STEPS: tuple[Reading, ...] = ((WORDS["step"], curve_values.find_last_value), (WORDS["tail"], curve_values.compute_tail_mean))
OF_EVALUATIONS: tuple[Reading, ...] = ((WORDS["last"], curve_values.find_last_value), (WORDS["highest"], curve_values.find_highest_value))


@dataclass(frozen=True)
class ChartFigure:
    """A number of a chart's table: as it is read, as it is, and where it was measured."""

    text: str
    value: float
    step: int | None

    @property
    def exact(self) -> str:
        """Every digit, as the machine-readable value of the cell."""
        return repr(self.value)


@dataclass(frozen=True)
class StillChart:
    """A chart as it stands in the file; ``rows``: each run with its style and its numbers, in the order of ``heads``."""

    title: str
    unit: str
    words: str
    svg: SafeString
    heads: list[str]
    rows: list[tuple[Run, Any, list[ChartFigure | None]]]


def render_report_file(version: ReportVersion, at: datetime | None = None) -> str:
    """The HTML file of a version with the state of now. Its links lead to the lab."""
    report, at = version.report, at or timezone.now()
    document = build_document(report.team, version.text, make_link_absolute)
    parts = [
        part
        if isinstance(part, Prose) or not isinstance(part.content, ChartContent)
        else Part("chart", part.line, draw_chart(part.content), part.missing)
        for part in document.parts
    ]
    context = {
        "report": report,
        "version": version,
        "at": at,
        "parts": parts,
        "runs": [(run, link_to(report.team, "run", run.pk)) for run in document.runs],
        "address": link_to(report.team, "report", report.pk),
        "team": report.team,
    }
    return render_to_string("reports/export.html", context)


def link_to(team: Any, name: str, key: Any) -> str:
    return build_absolute_url(team_path(team, name, key))


def make_link_absolute(href: str) -> str:
    """A path of the lab with its public address before it: the file is opened somewhere else."""
    return f"{settings.LAB_URL}{href}" if href.startswith("/") and not href.startswith("//") else href


def draw_chart(content: ChartContent) -> StillChart:
    block, about = content.block, content.about
    found = {one["run"]: one for one in build_metric_series(content.runs, [block.metric], block.x, False)[block.metric]}
    weight = 0.0 if about["points"] else choose_smoothing(block.smooth, [one["values"] for one in found.values()])
    lines = [draw_run(run, found[run.number], weight, len(content.runs) <= RAW_LINES) for run in content.runs if run.number in found]
    words = f"by {X_WORDS[block.x]}" + (", logarithmic" if block.log else "") + (f", lines smoothed {weight:g}" if weight else "")
    readings = OF_EVALUATIONS if about["points"] else OF_STEPS
    curves = metrics.read_sparkline_series([run.pk for run in content.runs], block.metric, 0)

    def read(run: Run) -> list[ChartFigure | None]:
        values = [reading(curves[run.pk]) if run.pk in curves else None for _, reading in readings]
        return [ChartFigure(format_number(one.value), one.value, one.step) if one else None for one in values]

    rows = [(run, style_of(run.number), read(run)) for run in content.runs]
    svg = draw_line_chart(lines, f"{content.title} {words}", X_WORDS[block.x], block.log)
    return StillChart(content.title, str(about["unit"]), words, svg, [name for name, _ in readings], rows)


def draw_run(run: Run, points: dict[str, Any], weight: float, keeps_raw: bool) -> DrawnLine:
    steps, values = points["steps"], points["values"]
    xs = steps if points["x"] is None else points["x"]
    style = style_of(run.number)
    shown = smooth_values(steps, values, weight) if weight else values
    raw = split_line(steps, xs, values, points["thinned"]) if weight and keeps_raw else []
    return DrawnLine(f"#{run.number}", style.color, style.dash, split_line(steps, xs, shown, points["thinned"]), raw)


def name_report_file(version: ReportVersion, ending: str) -> str:
    """Letters, digits and hyphens of the title, so that the name is safe in a header."""
    words = re.sub(r"[^a-z0-9]+", "-", version.report.title.lower()).strip("-")[:60] or "report"
    return f"{words}-v{version.number}.{ending}"
