"""All rules over one run: what was found, what looks right, and what could not be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import QueryDict
from django.urls import reverse

from lab.rollouts.doctor.collect import facts_of
from lab.rollouts.doctor.facts import Facts
from lab.rollouts.doctor.rules import RULES
from lab.rollouts.doctor.verdicts import Link, Rule, Verdict
from lab.training.runs.models import Run


@dataclass(frozen=True)
class Report:
    rule: Rule
    verdict: Verdict
    links: Sequence[tuple[str, str]]  # label, address


@dataclass(frozen=True)
class Examination:
    found: list[Report]
    clear: list[Report]
    unable: list[Report]  # too early, not logged, or not for this kind of run

    @property
    def looked(self) -> int:
        return len(self.found) + len(self.clear)


def examine_run(run: Run) -> Examination:
    return sorted_out(run, facts_of(run))


def sorted_out(run: Run, facts: Facts) -> Examination:
    reports = [build_rule_report(run, rule, rule.judge(facts)) for rule in RULES]
    found = [one for one in reports if one.verdict.state == "found"]
    return Examination(
        found=sorted(found, key=lambda one: one.verdict.severity != "bad"),
        clear=[one for one in reports if one.verdict.state == "clear"],
        unable=[one for one in reports if one.verdict.state in ("early", "absent")],
    )


def build_rule_report(run: Run, rule: Rule, verdict: Verdict) -> Report:
    return Report(rule, verdict, [(link.label, build_link_address(run, link)) for link in verdict.links])


def build_link_address(run: Run, link: Link) -> str:
    query = QueryDict(mutable=True)
    if link.chart:
        query["filter"] = link.chart
        return f"{reverse('run', args=[run.pk])}?{query.urlencode()}"
    query["run"] = str(run.number)
    query.setlist("f", list(link.filters))
    if link.sort:
        query["sort"] = link.sort
    return f"{reverse('rollouts')}?{query.urlencode(safe=':')}"
