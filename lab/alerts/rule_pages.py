"""Pages of alert rules: a person's own, and those of the team, by the same form."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.accounts.models import Membership, User
from lab.accounts.roles import role_of
from lab.alerts import rules
from lab.alerts.defaults import begin
from lab.alerts.models import Rule, Webhook
from lab.alerts.preview import preview as preview_of
from lab.alerts.rule_form import RuleForm
from lab.browse.address import MAX_ID
from lab.runs.views.request import LabRequest

PREFILLED = ("kind", "metric", "direction", "number", "band", "steps", "run", "words", "recipe", "project")


def found(request: LabRequest, owner: User | None, rule_id: int) -> Rule:
    return get_object_or_404(rules.of(request.team, owner), pk=min(rule_id, MAX_ID))


@require_safe
def mine(request: LabRequest) -> HttpResponse:
    begin(Membership.objects.get(team=request.team, user=request.user))
    shown = rules.in_order(rules.of(request.team, request.user))
    return render(request, "alerts/rules.html", {"room": "alerts", "tab": "mine", "rules": shown, "shared": False})


@require_safe
def team(request: LabRequest) -> HttpResponse:
    shown = rules.in_order(rules.of(request.team, None))
    hooks = Webhook.objects.filter(team=request.team)
    return render(request, "alerts/rules.html", {"room": "alerts", "tab": "team", "rules": shown, "hooks": hooks, "shared": True})


def edit(request: LabRequest, owner: User | None, rule: Rule | None) -> HttpResponse:
    """The form, prefilled from the address where it is new (a chart's “Alert me”)."""
    asked = {name: request.GET[name][:200] for name in PREFILLED if name in request.GET}
    if "run" in asked:
        asked["mine"] = ""  # of that run, whoever launched it
    data = request.POST if request.method == "POST" else None
    form = RuleForm(data, team=request.team, owner=owner, role=role_of(request), rule=rule, initial=asked)
    saved, fresh = rules.keep(form, rule, request.user)
    if saved is not None:
        if fresh:
            messages.success(request, f"You will be told: {saved}." if owner else f"The team will be told: {saved}.")
        else:
            messages.info(request, f"There is such a rule already: {saved}.")
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


def turn(request: LabRequest, owner: User | None, rule_id: int) -> HttpResponse:
    """Switches the rule, or its mails, on or off."""
    rule = found(request, owner, rule_id)
    rules.switch(rule, "email" if request.POST.get("what") == "email" else "enabled", request.POST.get("on") == "1")
    return redirect("alerts" if owner else "team-alerts")


def remove(request: LabRequest, owner: User | None, rule_id: int) -> HttpResponse:
    rules.delete(found(request, owner, rule_id))
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
