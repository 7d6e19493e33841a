"""How long the team keeps rollouts: the rule, what it would drop, and what it has dropped."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.problems import FieldProblem, make_validation_problem
from lab.rollouts.trajectories.models import DroppedRollouts
from lab.teams.accounts.models import Team
from lab.training.runs.models import TAG_LENGTH
from lab.watching.retention import rules
from lab.watching.retention.models import KEEP_TAG, RolloutRule
from lab.watching.retention.plan import RunDrop, plan_retention

router = make_router("Usage and quotas")
LISTED = 500  # runs of a list


def make_days_field(words: str) -> Any:
    return Field(None, ge=1, le=rules.MOST_DAYS, description=words)


class RolloutRuleIn(RequestBody):
    tokens_days: int | None = make_days_field("Days after a run's end until token arrays are dropped; null: kept. Fewer than `rollouts_days`.")
    rollouts_days: int | None = make_days_field("Days after a run's end until rollouts are dropped; null: kept.")
    keep_every: int = Field(0, ge=0, le=rules.MOST_STEPS, description="Keep the rollouts of every so many steps; 0: none.")
    keep_tag: str = Field(KEEP_TAG, max_length=TAG_LENGTH, description="Runs with this tag lose nothing; empty: no such tag.")


class RolloutRuleOut(Schema):
    tokens_days: int | None
    rollouts_days: int | None
    keep_every: int
    keep_tag: str


class DroppedOut(Schema):
    run: UUID
    number: int
    rollouts: int
    tokens: int = Field(description="Rollouts that lost their token arrays only.")
    dropped_at: datetime


class RolloutRetentionOut(Schema):
    rule: RolloutRuleOut
    changed_by: Person | None
    dropped: list[DroppedOut] = Field(description=f"Runs that lost rollouts or token arrays, newest first, up to {LISTED}.")


class RunDropOut(Schema):
    run: UUID
    number: int
    rollouts: int
    tokens: int = Field(description="Rollouts that would lose their token arrays only.")


class KeptOut(Schema):
    reason: str
    rollouts: int


class RolloutRetentionPlan(Schema):
    rollouts: int
    tokens: int = Field(description="Rollouts that would lose their token arrays only.")
    bytes: int = Field(description="What that frees in the database, estimated.")
    runs: list[RunDropOut] = Field(description=f"Runs that would lose something, newest first, up to {LISTED}.")
    kept: list[KeptOut] = Field(description="What stays and why, groups whole.")


def serialize_retention(team: Team) -> dict[str, Any]:
    rule = rules.rule_of(team)
    dropped = DroppedRollouts.objects.filter(run__team=team, run__binned_at=None).exclude(dropped_at=None).select_related("run")
    return {
        "rule": rule,
        "changed_by": serialize_person(rule.changed_by) if rule.changed_by else None,
        "dropped": [
            {"run": one.run_id, "number": one.run.number, "rollouts": one.rollouts, "tokens": one.tokens, "dropped_at": one.dropped_at}
            for one in dropped.order_by("-dropped_at")[:LISTED]
        ],
    }


def serialize_run_drop(drop: RunDrop) -> dict[str, Any]:
    return {"run": drop.run.pk, "number": drop.run.number, "rollouts": drop.rollouts, "tokens": drop.tokens}


def read_rule(team: Team, given: RolloutRuleIn) -> RolloutRule:
    """Raises ApiProblem."""
    sent = {name: "" if value is None else str(value) for name, value in given.dict().items()}
    rule, errors = rules.parse_rule(sent, team)
    if errors:
        raise make_validation_problem(FieldProblem(field=name, message=words) for name, words in errors.items())
    return rule


@router.get("/retention/rollouts", auth=require_permission("usage.read"), response=RolloutRetentionOut, summary="Retention of rollouts")
def get_rollout_retention(request: HttpRequest) -> object:
    """The team's rule and what it has dropped."""
    return serialize_retention(caller_of(request).team)


@router.post(
    "/retention/rollouts/preview", auth=require_permission("usage.read"), response=RolloutRetentionPlan, summary="Preview a retention of rollouts"
)
def preview_rollout_retention(request: HttpRequest, given: RolloutRuleIn) -> object:
    """What the rule would drop today. Nothing is changed."""
    plan = plan_retention(read_rule(caller_of(request).team, given))
    kept = [{"reason": words, "rollouts": count} for words, count in (*plan.kept.items(), *plan.spared.items())]
    counts = {"rollouts": plan.rollouts, "tokens": plan.tokens, "bytes": plan.bytes}
    return {**counts, "runs": [serialize_run_drop(drop) for drop in plan.runs[:LISTED]], "kept": kept}


@router.put("/retention/rollouts", auth=require_permission("usage.manage"), response=RolloutRetentionOut, summary="Set the retention of rollouts")
def set_rollout_retention(request: HttpRequest, given: RolloutRuleIn) -> object:
    """Replaces the rule. A worker applies it each night after 01:00 UTC; what is dropped cannot be restored."""
    caller = caller_of(request)
    rules.save_rule(caller.team, caller.user, read_rule(caller.team, given))
    return serialize_retention(caller.team)
