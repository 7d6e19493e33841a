"""What the doctor finds in runs while they train. An examination reads much, so each run is examined once in two minutes at most."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from lab.rollouts.doctor.examine import RuleReport, examine_run
from lab.training.runs.models import Run
from lab.watching.alerts.events import build_run_event
from lab.watching.alerts.kinds import DOCTOR
from lab.watching.alerts.models import Looked, Rule
from lab.watching.alerts.notices import dispatch_event
from lab.watching.alerts.watching.metrics import list_changed_runs

EVERY = timedelta(minutes=2)
AT_ONCE = 5  # runs a round


def watch_doctor_findings(since: datetime, now: datetime) -> None:
    rules_by_run: dict[Run, list[Rule]] = {}
    for rule in Rule.across_teams.listening(DOCTOR):
        for run in list_changed_runs(rule):
            looked: Looked | None = run.looked  # type: ignore[attr-defined]
            if run.ingested and (looked is None or looked.at <= now - EVERY):
                rules_by_run.setdefault(run, []).append(rule)
    for run, rules in list(rules_by_run.items())[:AT_ONCE]:
        offset = run.ingested
        for report in examine_run(Run.objects.select_related("team").same_row(run).get()).findings:
            tell_of(run, report, rules)
        for rule in rules:
            Looked.objects.update_or_create(rule=rule, run=run, defaults={"offset": offset, "at": now})


def tell_of(run: Run, report: RuleReport, rules: list[Rule]) -> None:
    title = report.verdict.title or report.rule.title
    text = "\n".join([*report.verdict.evidence, *report.verdict.advice])
    event = build_run_event(run, DOCTOR, f"doctor:{report.rule.name}", f"{run}: {title}", text, page="run-doctor")
    dispatch_event(replace(event, step=run.step, mark=title), rules)
