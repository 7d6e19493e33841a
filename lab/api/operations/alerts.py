"""Alert rules: those of the token's person, and those of the team."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.accounts.models import Membership, User
from lab.accounts.permissions import allowed
from lab.alerts import rules
from lab.alerts.defaults import begin
from lab.alerts.kinds import FLAT, KINDS
from lab.alerts.models import Rule
from lab.alerts.rule_form import MAX_STEPS, RuleForm
from lab.api.base import Caller, Given, caller_of, needs, noun, one_of
from lab.api.problems import invalid, refused
from lab.api.queue_making import of_form
from lab.browse.address import MAX_ID

router = noun("Inbox and alerts")
WHY = "an alert rule of one's own is somebody's"


class KindOut(Schema):
    name: str
    words: str
    help: str
    about: str = Field(description="run, queue or team: what a rule of it can be narrowed to.")


class RuleFields(Given):
    kind: str = Field(max_length=20, description="One of the kinds that rules are made of.", examples=["metric"])
    metric: str = Field("", max_length=200, description="Of the kinds metric and metric-flat.", examples=["reward"])
    direction: Literal["", "above", "below"] = Field("", description="Of the kind metric.", examples=["above"])
    number: float | None = Field(None, description="Of the kind metric: the threshold.", examples=[0.8])
    band: float | None = Field(None, description="Of the kind metric-flat: the difference between largest and smallest value.")
    steps: int | None = Field(None, ge=2, le=MAX_STEPS, description="Of the kind metric-flat: for how long.")
    run: int | None = Field(None, ge=1, le=10**9 - 1, description="Only the run with that number.")
    words: str = Field("", max_length=100, description="Only runs or queues whose name contains this.")
    recipe: str = Field("", max_length=100, description="Only runs of that recipe.")
    project: int | None = Field(None, ge=1, le=MAX_ID, description="Only in that project.")
    inbox: bool = True
    email: bool = False


class OwnRuleIn(RuleFields):
    mine: bool = Field(True, description="Only runs you launched, or queues you made or are assigned to.")


class TeamRuleIn(RuleFields):
    webhook: int | None = Field(None, ge=1, le=MAX_ID, description="Id of a webhook of the team that is told.")


class RuleOut(Schema):
    id: int
    says: str = Field(examples=["Metric above or below a number reward above 0.8"])
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


class SwitchIn(Given):
    enabled: bool | None = Field(None, description="The rule.")
    email: bool | None = Field(None, description="Its mails.")


def shown(one: Rule) -> dict[str, Any]:
    names = ("enabled", "kind", "metric", "direction", "steps", "words", "recipe", "mine", "inbox", "email")
    flat = one.kind == FLAT
    numbers = {"number": None if flat else one.number, "band": one.number if flat else None}
    about = {"id": one.pk, "says": str(one), "run": one.run.number if one.run else None, "project": one.project_id, "webhook": one.webhook_id}
    return {**{name: getattr(one, name) for name in names}, **numbers, **about}


def own(request: HttpRequest) -> tuple[Caller, User]:
    caller = caller_of(request)
    return caller, caller.person(WHY)


def kept(caller: Caller, owner: User | None, given: RuleFields, rule: Rule | None = None) -> tuple[dict[str, Any], bool]:
    """By the form of the browser. Raises ApiProblem naming the fields."""
    data = {name: value if isinstance(value, bool) else str(value) for name, value in given.dict().items() if value is not None}
    form = RuleForm(data, team=caller.team, owner=owner, role=caller.role, rule=rule)
    saved, fresh = rules.keep(form, rule, caller.user)
    if saved is None:
        raise refused(of_form(form))
    return shown(saved), fresh


def switched(rule: Rule, given: SwitchIn) -> dict[str, Any]:
    asked = {name: value for name, value in given.dict().items() if value is not None}
    if not asked:
        raise invalid("the body", "switches nothing", "give enabled or email")
    for name, value in asked.items():
        rules.switch(rule, name, value)
    return shown(rules.of(rule.team, rule.owner).get(pk=rule.pk))


def rule_of(caller: Caller, owner: User | None, rule_id: int) -> Rule:
    found: Rule = one_of(rules.of(caller.team, owner), rule_id)
    return found


@router.get("/alerts/kinds", auth=needs("lab.enter"), response=list[KindOut], summary="What rules are made of")
def list_kinds(request: HttpRequest) -> object:
    """Those that your role is told of."""
    role = caller_of(request).role
    return [kind for kind in KINDS.values() if kind.ruled and allowed(role, kind.permission)]


@router.get("/alerts", auth=needs("lab.enter"), response=list[RuleOut], summary="Your alert rules")
def list_rules(request: HttpRequest) -> object:
    """In this team, with those everybody begins with."""
    caller, user = own(request)
    begin(Membership.objects.get(team=caller.team, user=user))
    return [shown(one) for one in rules.in_order(rules.of(caller.team, user))]


@router.post("/alerts", auth=needs("alerts.rules"), response={201: RuleOut, 200: RuleOut}, summary="Make an alert rule")
def make_rule(request: HttpRequest, given: OwnRuleIn) -> object:
    """A rule that says what another of yours does already is that other one (200)."""
    caller, user = own(request)
    made, fresh = kept(caller, user, given)
    return Status(201 if fresh else 200, made)


@router.put("/alerts/{int:rule_id}", auth=needs("alerts.rules"), response=RuleOut, summary="Change an alert rule")
def change_rule(request: HttpRequest, rule_id: int, given: OwnRuleIn) -> object:
    """All of it at once. It tells of what happens from now on."""
    caller, user = own(request)
    return kept(caller, user, given, rule_of(caller, user, rule_id))[0]


@router.post("/alerts/{int:rule_id}/switch", auth=needs("lab.enter"), response=RuleOut, summary="Switch an alert rule")
def switch_rule(request: HttpRequest, rule_id: int, given: SwitchIn) -> object:
    """On or off, or only its mails."""
    caller, user = own(request)
    return switched(rule_of(caller, user, rule_id), given)


@router.delete("/alerts/{int:rule_id}", auth=needs("alerts.rules"), response={204: None}, summary="Delete an alert rule")
def delete_rule(request: HttpRequest, rule_id: int) -> object:
    """What it told stays in the inbox."""
    caller, user = own(request)
    rules.delete(rule_of(caller, user, rule_id))
    return Status(204, None)


@router.get("/alerts/team", auth=needs("alerts.manage"), response=list[RuleOut], summary="The team's alert rules")
def list_team_rules(request: HttpRequest) -> object:
    """They tell everybody who may know, and webhooks."""
    return [shown(one) for one in rules.in_order(rules.of(caller_of(request).team, None))]


@router.post("/alerts/team", auth=needs("alerts.manage"), response={201: RuleOut, 200: RuleOut}, summary="Make an alert rule of the team")
def make_team_rule(request: HttpRequest, given: TeamRuleIn) -> object:
    """A rule that says what another does already is that other one (200)."""
    made, fresh = kept(caller_of(request), None, given)
    return Status(201 if fresh else 200, made)


@router.put("/alerts/team/{int:team_rule_id}", auth=needs("alerts.manage"), response=RuleOut, summary="Change an alert rule of the team")
def change_team_rule(request: HttpRequest, team_rule_id: int, given: TeamRuleIn) -> object:
    """All of it at once."""
    caller = caller_of(request)
    return kept(caller, None, given, rule_of(caller, None, team_rule_id))[0]


@router.post("/alerts/team/{int:team_rule_id}/switch", auth=needs("alerts.manage"), response=RuleOut, summary="Switch an alert rule of the team")
def switch_team_rule(request: HttpRequest, team_rule_id: int, given: SwitchIn) -> object:
    """On or off, or only its mails."""
    return switched(rule_of(caller_of(request), None, team_rule_id), given)


@router.delete("/alerts/team/{int:team_rule_id}", auth=needs("alerts.manage"), response={204: None}, summary="Delete an alert rule of the team")
def delete_team_rule(request: HttpRequest, team_rule_id: int) -> object:
    """What it told stays in the inboxes."""
    rules.delete(rule_of(caller_of(request), None, team_rule_id))
    return Status(204, None)
