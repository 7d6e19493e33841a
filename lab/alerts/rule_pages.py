"""Pages of alert rules: a person's own, and those of the team, by the same form."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.accounts.models import Membership, User
from lab.accounts.roles import role_of
from lab.alerts.defaults import begin
from lab.alerts.kinds import KINDS
from lab.alerts.models import Looked, Rule, Webhook
from lab.alerts.preview import preview as preview_of
from lab.alerts.rule_form import RuleForm
from lab.audit.recording import record
from lab.browse.address import MAX_ID
from lab.runs.views.request import LabRequest

MOST_RULES = 100  # of a person, and of a team
PREFILLED = ("kind", "metric", "direction", "number", "band", "steps", "run", "words", "recipe", "project")


def rules_of(request: LabRequest, owner: User | None) -> QuerySet[Rule]:
    return Rule.objects.of(request.team, owner).select_related("run", "project", "webhook", "team")


def found(request: LabRequest, owner: User | None, rule_id: int) -> Rule:
    return get_object_or_404(rules_of(request, owner), pk=min(rule_id, MAX_ID))


def in_order(rules: QuerySet[Rule]) -> list[Rule]:
    """As the form lists the kinds."""
    places = {name: place for place, name in enumerate(KINDS)}
    return sorted(rules, key=lambda rule: (places.get(rule.kind, 0), rule.pk))


@require_safe
def mine(request: LabRequest) -> HttpResponse:
    begin(Membership.objects.get(team=request.team, user=request.user))
    rules = in_order(rules_of(request, request.user))
    return render(request, "alerts/rules.html", {"room": "alerts", "tab": "mine", "rules": rules, "shared": False})


@require_safe
def team(request: LabRequest) -> HttpResponse:
    rules = in_order(rules_of(request, None))
    hooks = Webhook.objects.filter(team=request.team)
    return render(request, "alerts/rules.html", {"room": "alerts", "tab": "team", "rules": rules, "hooks": hooks, "shared": True})


def edit(request: LabRequest, owner: User | None, rule: Rule | None) -> HttpResponse:
    """The form, prefilled from the address where it is new (a chart's “Alert me”)."""
    asked = {name: request.GET[name][:200] for name in PREFILLED if name in request.GET}
    if "run" in asked:
        asked["mine"] = ""  # of that run, whoever launched it
    data = request.POST if request.method == "POST" else None
    form = RuleForm(data, team=request.team, owner=owner, role=role_of(request), rule=rule, initial=asked)
    if form.is_valid() and rule is None and rules_of(request, owner).count() >= MOST_RULES:
        form.add_error(None, f"There are {MOST_RULES} rules already. Delete one that is no longer needed.")
    if form.is_valid() and rule is None and same(form.rule()).exists():  # a form that was sent twice
        messages.info(request, f"There is such a rule already: {form.rule()}.")
        return redirect("alerts" if owner else "team-alerts")
    if form.is_valid():
        saved = form.rule(rule)
        saved.since = timezone.now()  # what happened under the old words is not told under the new ones
        saved.created_by = saved.created_by or request.user
        saved.save()
        Looked.objects.filter(rule=saved).delete()
        record("alert.change", saved, what="changed" if rule else "made", owner=str(owner or "team"), rule=str(saved))
        messages.success(request, f"You will be told: {saved}." if owner else f"The team will be told: {saved}.")
        return redirect("alerts" if owner else "team-alerts")
    return render(request, "alerts/rule.html", {"room": "alerts", "form": form, "rule": rule, "shared": owner is None})


@require_safe
def preview(request: LabRequest) -> HttpResponse:
    """A piece of the form: what the rule would have told in the last week. The form's fields stand in the address."""
    owner = None if request.GET.get("shared") else request.user
    data = request.GET.copy()
    data["inbox"] = "on"  # how people are told does not matter here
    form = RuleForm(data, team=request.team, owner=owner, role=role_of(request))
    context = {"preview": preview_of(form.rule()) if form.is_valid() else None}
    return render(request, "alerts/_preview.html", context)


def same(rule: Rule) -> QuerySet[Rule]:
    """Rules that are on and say the same."""
    names = (
        "team",
        "owner",
        "kind",
        "metric",
        "direction",
        "number",
        "steps",
        "run",
        "words",
        "recipe",
        "project",
        "mine",
        "inbox",
        "email",
        "webhook",
    )
    return Rule.objects.filter(enabled=True, **{name: getattr(rule, name) for name in names})


def turn(request: LabRequest, owner: User | None, rule_id: int) -> HttpResponse:
    """Switches the rule, or its mails, on or off."""
    rule = found(request, owner, rule_id)
    name = "email" if request.POST.get("what") == "email" else "enabled"
    value = request.POST.get("on") == "1"
    changes: dict[str, Any] = {name: value}
    if name == "enabled" and value:
        changes["since"] = timezone.now()
        Looked.objects.filter(rule=rule).delete()
    if name == "email" and not value and not rule.webhook_id:
        changes["inbox"] = True  # some way to be told is left
    Rule.objects.filter(pk=rule.pk).update(**changes)
    record("alert.change", rule, what=f"{name} {'on' if value else 'off'}", rule=str(rule))
    return redirect("alerts" if owner else "team-alerts")


def remove(request: LabRequest, owner: User | None, rule_id: int) -> HttpResponse:
    rule = found(request, owner, rule_id)
    record("alert.change", rule, what="deleted", rule=str(rule))
    rule.delete()
    messages.success(request, "The rule is deleted. What it told stays in the inbox.")
    return redirect("alerts" if owner else "team-alerts")


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: LabRequest) -> HttpResponse:
    return edit(request, request.user, None)


@require_http_methods(["GET", "HEAD", "POST"])
def change(request: LabRequest, rule_id: int) -> HttpResponse:
    return edit(request, request.user, found(request, request.user, rule_id))


@require_POST
def switch(request: LabRequest, rule_id: int) -> HttpResponse:
    return turn(request, request.user, rule_id)


@require_POST
def delete(request: LabRequest, rule_id: int) -> HttpResponse:
    return remove(request, request.user, rule_id)


@require_http_methods(["GET", "HEAD", "POST"])
def team_new(request: LabRequest) -> HttpResponse:
    return edit(request, None, None)


@require_http_methods(["GET", "HEAD", "POST"])
def team_change(request: LabRequest, team_rule_id: int) -> HttpResponse:
    return edit(request, None, found(request, None, team_rule_id))


@require_POST
def team_switch(request: LabRequest, team_rule_id: int) -> HttpResponse:
    return turn(request, None, team_rule_id)


@require_POST
def team_delete(request: LabRequest, team_rule_id: int) -> HttpResponse:
    return remove(request, None, team_rule_id)
