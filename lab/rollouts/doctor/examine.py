"""All rules over one run: what was found, what looks right, and what could not be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import QueryDict
from django.urls import reverse

from lab.rollouts.doctor.collect import facts_of
from lab.rollouts.doctor.facts import RunFacts
from lab.rollouts.doctor.rules import RULES
from lab.rollouts.doctor.verdicts import EvidenceLink, HealthRule, RuleVerdict
from lab.training.runs.models import Run


@dataclass(frozen=True)
class RuleReport:
    rule: HealthRule
    verdict: RuleVerdict
    links: Sequence[tuple[str, str]]  # label, address


@dataclass(frozen=True)
class HealthReport:
    findings: list[RuleReport]
    clear: list[RuleReport]
    unable: list[RuleReport]  # too early, not logged, or not for this kind of run

    @property
    def looked(self) -> int:
        return len(self.findings) + len(self.clear)


def examine_run(run: Run) -> HealthReport:
    return sorted_out(run, facts_of(run))


def sorted_out(run: Run, facts: RunFacts) -> HealthReport:
    reports = [build_rule_report(run, rule, rule.judge(facts)) for rule in RULES]
    findings = [report for report in reports if report.verdict.state == "found"]
    return HealthReport(
        findings=sorted(findings, key=lambda report: report.verdict.severity != "bad"),
        clear=[report for report in reports if report.verdict.state == "clear"],
        unable=[report for report in reports if report.verdict.state in ("early", "absent")],
    )


def build_rule_report(run: Run, rule: HealthRule, verdict: RuleVerdict) -> RuleReport:
    return RuleReport(rule, verdict, [(link.label, build_link_address(run, link)) for link in verdict.links])


def build_link_address(run: Run, link: EvidenceLink) -> str:
    query = QueryDict(mutable=True)
    if link.chart:
        query["filter"] = link.chart
        return f"{reverse('run', args=[run.pk])}?{query.urlencode()}"
    query["run"] = str(run.number)
    query.setlist("f", list(link.filters))
    if link.sort:
        query["sort"] = link.sort
    return f"{reverse('rollouts')}?{query.urlencode(safe=':')}"
