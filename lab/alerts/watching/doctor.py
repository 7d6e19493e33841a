"""What the doctor finds in runs while they train. An examination reads much, so each run is examined once in two minutes at most."""

from __future__ import annotations

from datetime import datetime, timedelta

from lab.alerts.events import of_run
from lab.alerts.kinds import DOCTOR
from lab.alerts.models import Looked, Rule
from lab.alerts.notifying import tell
from lab.alerts.watching.metrics import changed
from lab.doctor.examine import Report, examine
from lab.runs.models import Run

EVERY = timedelta(minutes=2)
AT_ONCE = 5  # runs a round


def look(since: datetime, now: datetime) -> None:
    wanted: dict[Run, list[Rule]] = {}
    for rule in Rule.objects.listening(DOCTOR):
        for run in changed(rule):
            looked: Looked | None = run.looked  # type: ignore[attr-defined]
            if run.ingested and (looked is None or looked.at <= now - EVERY):
                wanted.setdefault(run, []).append(rule)
    for run, rules in list(wanted.items())[:AT_ONCE]:
        offset = run.ingested
        for report in examine(Run.objects.select_related("team").get(pk=run.pk)).found:
            tell_of(run, report, rules)
        for rule in rules:
            Looked.objects.update_or_create(rule=rule, run=run, defaults={"offset": offset, "at": now})


def tell_of(run: Run, report: Report, rules: list[Rule]) -> None:
    subject = f"{run}: {report.verdict.title or report.rule.title}"
    text = "\n".join([*report.verdict.evidence, *report.verdict.advice])
    tell(of_run(run, DOCTOR, f"doctor:{report.rule.name}", subject, text, page="run-doctor"), rules)
