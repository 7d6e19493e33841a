"""What the team keeps of its policies: the rules, what they would delete, and what is going to be deleted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.policies import WHY
from lab.models.policies import retention
from lab.models.policies.checkpoint_paths import format_checkpoint_label
from lab.models.policies.models import Removal, Retention
from lab.teams.accounts.models import Team

router = make_router("Policies")
LISTED = 500  # policies of a list


def make_rule_field(name: str, usual: int, words: str) -> Any:
    """A field of the rules, within the bounds of the form in the browser."""
    least, most = retention.WHOLE[name]
    return Field(usual, ge=least, le=most, description=words)


class RulesIn(RequestBody):
    keep_last: int = make_rule_field("keep_last", 2, "Number of newest checkpoints to keep per run.")
    keep_best: int = make_rule_field("keep_best", 1, "Number of best checkpoints to keep per run, by `metric`.")
    metric: str = Field("heldout/reward", min_length=1, max_length=200)
    smallest: bool = Field(False, description="Lower values of the metric are better.")
    keep_every: int = make_rule_field("keep_every", 0, "Keep checkpoints every so many steps; 0: none.")
    keep_final: bool = True
    after_hours: int = make_rule_field("after_hours", 24, "Hours before anything is deleted.")
    active: bool = Field(False, description="Whether the rules are enabled; otherwise nothing is deleted.")


class RulesOut(RulesIn):
    pass


class DueOut(Schema):
    policy: int
    label: str
    by: Person | None = Field(description="null: the team's rules.")
    due_at: datetime
    problem: str = Field(description="Why it is not deleted although it is due.")


class RetentionOut(Schema):
    rules: RulesOut
    changed_by: Person | None
    due: list[DueOut] = Field(description=f"Scheduled deletions, soonest first, up to {LISTED}.")


class JudgedOut(Schema):
    policy: int
    label: str
    bytes: int
    reasons: list[str] = Field(description="Why it is kept; empty: it would be deleted.")


class RetentionPlan(Schema):
    kept: int
    kept_bytes: int
    freed: int = Field(description="Bytes.")
    drop: list[JudgedOut] = Field(description=f"Policies that would be deleted, newest first, up to {LISTED}.")
    keep: list[JudgedOut] = Field(description=f"Policies that are kept, up to {LISTED}.")


def serialize_due_removal(removal: Removal) -> dict[str, Any]:
    by = serialize_person(removal.by) if removal.by else None
    return {
        "policy": removal.checkpoint_id,
        "label": format_checkpoint_label(removal.checkpoint),
        "by": by,
        "due_at": removal.due_at,
        "problem": removal.problem,
    }


def serialize_retention(team: Team) -> dict[str, Any]:
    rules = retention.rules_of(team)
    rows = Removal.objects.filter(team=team, deleted_at=None, kept_at=None).select_related("checkpoint__run", "by").order_by("due_at")[:LISTED]
    return {
        "rules": rules,
        "changed_by": serialize_person(rules.changed_by) if rules.changed_by else None,
        "due": [serialize_due_removal(removal) for removal in rows],
    }


def serialize_judged_policy(judged: retention.RetentionVerdict) -> dict[str, Any]:
    return {
        "policy": judged.checkpoint.pk,
        "label": format_checkpoint_label(judged.checkpoint),
        "bytes": judged.checkpoint.bytes,
        "reasons": list(judged.reasons),
    }


@router.get("/retention", auth=require_permission("policies.read"), response=RetentionOut, summary="Retention rules")
def get_retention(request: HttpRequest) -> object:
    """The team's rules and scheduled deletions."""
    return serialize_retention(caller_of(request).team)


@router.post("/retention/preview", auth=require_permission("policies.read"), response=RetentionPlan, summary="Preview retention rules")
def preview_retention(request: HttpRequest, given: RulesIn) -> object:
    """Nothing is changed."""
    team = caller_of(request).team
    plan = retention.plan_retention(team, Retention(team=team, **given.dict()))
    counts = {"kept": len(plan.keep), "kept_bytes": plan.kept_bytes, "freed": plan.freed}
    return {
        **counts,
        "drop": [serialize_judged_policy(judged) for judged in plan.drop[:LISTED]],
        "keep": [serialize_judged_policy(judged) for judged in plan.keep[:LISTED]],
    }


@router.put("/retention", auth=require_permission("policies.promote"), response=RetentionOut, summary="Set retention rules")
def set_retention(request: HttpRequest, given: RulesIn) -> object:
    """Replaces all rules. While they are enabled, a worker deletes what they do not keep, except policies that something depends on."""
    caller = caller_of(request)
    retention.save_retention_rules(caller.team, caller.person(WHY), Retention(team=caller.team, **given.dict()))
    return serialize_retention(caller.team)
