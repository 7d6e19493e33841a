"""Alert rules: those of the token's person, and those of the team."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import Caller, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.problems import make_invalid_problem, make_validation_problem
from lab.edges.api.queue_bodies import of_form
from lab.lib.numbers import MAX_ID
from lab.teams.accounts.models import Membership, User
from lab.teams.accounts.permissions import is_role_allowed
from lab.watching.alerts import rules
from lab.watching.alerts.defaults import create_default_rules
from lab.watching.alerts.kinds import FLAT, KINDS
from lab.watching.alerts.models import Rule
from lab.watching.alerts.rule_form import MAX_STEPS, RuleForm

router = make_router("Inbox and alerts")
WHY = "personal alert rules belong to a person"


class KindOut(Schema):
    name: str
    words: str
    help: str
    about: str = Field(description="run, queue or team: what its rules can be limited to.")


class RuleFields(RequestBody):
    kind: str = Field(max_length=20, description="One of the kinds of alert rules.", examples=["metric"])
    metric: str = Field("", max_length=200, description="For the kinds metric and metric-flat.", examples=["reward"])
    direction: Literal["", "above", "below"] = Field("", description="For the kind metric.", examples=["above"])
    number: float | None = Field(None, description="For the kind metric: the threshold.", examples=[0.8])
    band: float | None = Field(None, description="For the kind metric-flat: the difference between largest and smallest value.")
    steps: int | None = Field(None, ge=2, le=MAX_STEPS, description="For the kind metric-flat: the number of steps.")
    run: int | None = Field(None, ge=1, le=10**9 - 1, description="Only the run with this number.")
    words: str = Field("", max_length=100, description="Only runs or queues whose name contains this.")
    recipe: str = Field("", max_length=100, description="Only runs of this recipe.")
    project: int | None = Field(None, ge=1, le=MAX_ID, description="Only in this project.")
    inbox: bool = True
    email: bool = False


class OwnRuleIn(RuleFields):
    mine: bool = Field(True, description="Only runs you launched, or queues you created or are assigned to.")


class TeamRuleIn(RuleFields):
    webhook: int | None = Field(None, ge=1, le=MAX_ID, description="Id of a webhook of the team to notify.")


class RuleOut(Schema):
    id: int
    says: str = Field(examples=["Metric above or below a threshold reward above 0.8"])
    enabled: bool
    kind: str
    metric: str
    direction: str
    number: float | None
    band: float | None
    steps: int | None
    run: int | None
    words: str
    recipe: str
    project: int | None
    mine: bool
    inbox: bool
    email: bool
    webhook: int | None


class SwitchIn(RequestBody):
    enabled: bool | None = Field(None, description="Enables or disables the rule.")
    email: bool | None = Field(None, description="Enables or disables its e-mails.")


def serialize_alert_rule(rule: Rule) -> dict[str, Any]:
    names = ("enabled", "kind", "metric", "direction", "steps", "words", "recipe", "mine", "inbox", "email")
    flat = rule.kind == FLAT
    numbers = {"number": None if flat else rule.number, "band": rule.number if flat else None}
    about = {"id": rule.pk, "says": str(rule), "run": rule.run.number if rule.run else None, "project": rule.project_id, "webhook": rule.webhook_id}
    return {**{name: getattr(rule, name) for name in names}, **numbers, **about}


def require_rule_owner(request: HttpRequest) -> tuple[Caller, User]:
    caller = caller_of(request)
    return caller, caller.person(WHY)


def save_alert_rule(caller: Caller, owner: User | None, given: RuleFields, rule: Rule | None = None) -> tuple[dict[str, Any], bool]:
    """By the form of the browser. Raises ApiProblem naming the fields."""
    data = {name: value if isinstance(value, bool) else str(value) for name, value in given.dict().items() if value is not None}
    form = RuleForm(data, team=caller.team, owner=owner, role=caller.role, rule=rule)
    saved, fresh = rules.save_rule_form(form, rule, caller.user)
    if saved is None:
        raise make_validation_problem(of_form(form))
    return serialize_alert_rule(saved), fresh


def switch_alert_rule(rule: Rule, given: SwitchIn) -> dict[str, Any]:
    changes = {name: value for name, value in given.dict().items() if value is not None}
    if not changes:
        raise make_invalid_problem("the body", "contains no changes", "give enabled or email")
    for name, value in changes.items():
        rules.switch_alert_rule(rule, name, value)
    return serialize_alert_rule(rules.list_alert_rules(rule.team, rule.owner).get(pk=rule.pk))


def rule_of(caller: Caller, owner: User | None, rule_id: int) -> Rule:
    rule: Rule = one_of(rules.list_alert_rules(caller.team, owner), rule_id)
    return rule


@router.get("/alerts/kinds", auth=require_permission("lab.enter"), response=list[KindOut], summary="Kinds of alert rules")
def list_kinds(request: HttpRequest) -> object:
    """Those that your role can be notified of."""
    role = caller_of(request).role
    return [kind for kind in KINDS.values() if kind.ruled and is_role_allowed(role, kind.permission)]


@router.get("/alerts", auth=require_permission("lab.enter"), response=list[RuleOut], summary="Your alert rules")
def list_rules(request: HttpRequest) -> object:
    """In this team, including the default rules."""
    caller, user = require_rule_owner(request)
    create_default_rules(Membership.objects.get(team=caller.team, user=user))
    return [serialize_alert_rule(rule) for rule in rules.in_order(rules.list_alert_rules(caller.team, user))]


@router.post("/alerts", auth=require_permission("alerts.rules"), response={201: RuleOut, 200: RuleOut}, summary="Create an alert rule")
def make_rule(request: HttpRequest, given: OwnRuleIn) -> object:
    """If you already have the same rule, that one is returned (200)."""
    caller, user = require_rule_owner(request)
    rule, fresh = save_alert_rule(caller, user, given)
    return Status(201 if fresh else 200, rule)


@router.put("/alerts/{int:rule_id}", auth=require_permission("alerts.rules"), response=RuleOut, summary="Change an alert rule")
def change_rule(request: HttpRequest, rule_id: int, given: OwnRuleIn) -> object:
    """Replaces the whole rule, which then applies to events from now on."""
    caller, user = require_rule_owner(request)
    return save_alert_rule(caller, user, given, rule_of(caller, user, rule_id))[0]


@router.post("/alerts/{int:rule_id}/switch", auth=require_permission("lab.enter"), response=RuleOut, summary="Enable or disable an alert rule")
def switch_rule(request: HttpRequest, rule_id: int, given: SwitchIn) -> object:
    """The whole rule, or only its e-mails."""
    caller, user = require_rule_owner(request)
    return switch_alert_rule(rule_of(caller, user, rule_id), given)


@router.delete("/alerts/{int:rule_id}", auth=require_permission("alerts.rules"), response={204: None}, summary="Delete an alert rule")
def delete_rule(request: HttpRequest, rule_id: int) -> object:
    """Its notifications stay in the inbox."""
    caller, user = require_rule_owner(request)
    rules.delete_alert_rule(rule_of(caller, user, rule_id))
    return Status(204, None)


@router.get("/alerts/team", auth=require_permission("alerts.manage"), response=list[RuleOut], summary="The team's alert rules")
def list_team_rules(request: HttpRequest) -> object:
    """They notify every member whose role permits it, or call a webhook."""
    return [serialize_alert_rule(rule) for rule in rules.in_order(rules.list_alert_rules(caller_of(request).team, None))]


@router.post(
    "/alerts/team", auth=require_permission("alerts.manage"), response={201: RuleOut, 200: RuleOut}, summary="Create an alert rule of the team"
)
def make_team_rule(request: HttpRequest, given: TeamRuleIn) -> object:
    """If the team already has the same rule, that one is returned (200)."""
    rule, fresh = save_alert_rule(caller_of(request), None, given)
    return Status(201 if fresh else 200, rule)


@router.put("/alerts/team/{int:team_rule_id}", auth=require_permission("alerts.manage"), response=RuleOut, summary="Change an alert rule of the team")
def change_team_rule(request: HttpRequest, team_rule_id: int, given: TeamRuleIn) -> object:
    """Replaces the whole rule."""
    caller = caller_of(request)
    return save_alert_rule(caller, None, given, rule_of(caller, None, team_rule_id))[0]


@router.post(
    "/alerts/team/{int:team_rule_id}/switch",
    auth=require_permission("alerts.manage"),
    response=RuleOut,
    summary="Enable or disable an alert rule of the team",
)
def switch_team_rule(request: HttpRequest, team_rule_id: int, given: SwitchIn) -> object:
    """The whole rule, or only its e-mails."""
    return switch_alert_rule(rule_of(caller_of(request), None, team_rule_id), given)


@router.delete(
    "/alerts/team/{int:team_rule_id}", auth=require_permission("alerts.manage"), response={204: None}, summary="Delete an alert rule of the team"
)
def delete_team_rule(request: HttpRequest, team_rule_id: int) -> object:
    """Its notifications stay in the inboxes."""
    rules.delete_alert_rule(rule_of(caller_of(request), None, team_rule_id))
    return Status(204, None)
