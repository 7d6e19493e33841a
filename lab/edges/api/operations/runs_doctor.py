"""What the doctor's rules find in a run."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import make_router, require_permission
from lab.edges.api.operations.runs import find_team_run
from lab.rollouts.doctor.examine import RuleReport, examine_run
from lab.teams.accounts.addresses import build_absolute_url, in_team
from lab.training.runs.models import Run

router = make_router("Runs")


class LinkOut(Schema):
    label: str
    url: str = Field(description="The page that shows the evidence.")


class FindingOut(Schema):
    rule: str = Field(examples=["entropy-collapse"])
    title: str
    state: Literal["found", "clear", "early", "absent"] = Field(
        description="found: there is evidence; clear: checked, no evidence; early: too few points yet; absent: not logged, or not applicable."
    )
    severity: Literal["bad", "warn"] | None = Field(description="Severity of the finding; null otherwise.")
    looks_at: str
    evidence: list[str]
    advice: list[str]
    links: list[LinkOut]


@router.get("/runs/{uuid:run_id}/doctor", auth=require_permission("runs.read"), response=list[FindingOut], summary="Health checks of a run")
def get_findings(request: HttpRequest, run_id: UUID) -> object:
    """Every rule with its evidence: findings first, `bad` before `warn`. Evaluated on each request, also while the run trains."""
    run = find_team_run(request, run_id)
    examination = examine_run(run)
    return [serialize_finding(run, report) for report in (*examination.findings, *examination.clear, *examination.unable)]


def serialize_finding(run: Run, report: RuleReport) -> dict[str, Any]:
    verdict = report.verdict
    return {
        "rule": report.rule.name,
        "title": verdict.title or report.rule.title,
        "state": verdict.state,
        "severity": verdict.severity if verdict.state == "found" else None,
        "looks_at": report.rule.looks_at,
        "evidence": list(verdict.evidence),
        "advice": list(verdict.advice),
        "links": [{"label": label, "url": build_absolute_url(in_team(run.team, address))} for label, address in report.links],
    }
