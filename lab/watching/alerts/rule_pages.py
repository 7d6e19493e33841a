"""Pages of alert rules: a person's own, and those of the team, by the same form."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.teams.accounts.models import Membership, User
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import role_of
from lab.watching.alerts import rules
from lab.watching.alerts.defaults import create_default_rules
from lab.watching.alerts.models import Rule, Webhook
from lab.watching.alerts.preview import preview_rule
from lab.watching.alerts.rule_form import RuleForm

PREFILLED = ("kind", "metric", "direction", "number", "band", "steps", "run", "words", "recipe", "project")


def find_alert_rule(request: LabRequest, owner: User | None, rule_id: int) -> Rule:
    return get_object_or_404(rules.list_alert_rules(request.team, owner), pk=rule_id)


@require_safe
def list_own_rules(request: LabRequest) -> HttpResponse:
    create_default_rules(Membership.objects.get(team=request.team, user=request.user))
    listed = rules.in_order(rules.list_alert_rules(request.team, request.user))
    return render(request, "alerts/rules.html", {"room": "alerts", "tab": "mine", "rules": listed, "shared": False})


@require_safe
def list_team_rules(request: LabRequest) -> HttpResponse:
    listed = rules.in_order(rules.list_alert_rules(request.team, None))
    hooks = Webhook.objects.filter(team=request.team)
    return render(request, "alerts/rules.html", {"room": "alerts", "tab": "team", "rules": listed, "hooks": hooks, "shared": True})


def edit_alert_rule(request: LabRequest, owner: User | None, rule: Rule | None) -> HttpResponse:
    """The form, prefilled from the address where it is new (a chart's “Alert me”)."""
    initial = {name: request.GET[name][:200] for name in PREFILLED if name in request.GET}
    if "run" in initial:
        initial["mine"] = ""  # of that run, whoever launched it
    data = request.POST if request.method == "POST" else None
    form = RuleForm(data, team=request.team, owner=owner, role=role_of(request), rule=rule, initial=initial)
    saved, fresh = rules.save_rule_form(form, rule, request.user)
    if saved is not None:
        if fresh:
            messages.success(request, f"Alert saved: {saved}." if owner else f"Team alert saved: {saved}.")
        else:
            messages.info(request, f"This rule already exists: {saved}.")
        return redirect("alerts" if owner else "team-alerts")
    return render(request, "alerts/rule.html", {"room": "alerts", "form": form, "rule": rule, "shared": owner is None})


@require_safe
def show_rule_preview(request: LabRequest) -> HttpResponse:
    """A piece of the form: what the rule would have told in the last week. The form's fields stand in the address."""
    owner = None if request.GET.get("shared") else request.user
    data = request.GET.copy()
    data["inbox"] = "on"  # how people are told does not matter here
    form = RuleForm(data, team=request.team, owner=owner, role=role_of(request))
    context = {"preview": preview_rule(form.rule()) if form.is_valid() else None}
    return render(request, "alerts/_preview.html", context)


def toggle_alert_rule(request: LabRequest, owner: User | None, rule_id: int) -> HttpResponse:
    """Switches the rule, or its mails, on or off."""
    rule = find_alert_rule(request, owner, rule_id)
    rules.switch_alert_rule(rule, "email" if request.POST.get("what") == "email" else "enabled", request.POST.get("on") == "1")
    return redirect("alerts" if owner else "team-alerts")


def remove_alert_rule(request: LabRequest, owner: User | None, rule_id: int) -> HttpResponse:
    rules.delete_alert_rule(find_alert_rule(request, owner, rule_id))
    messages.success(request, "Rule deleted. Its notifications stay in the inbox.")
    return redirect("alerts" if owner else "team-alerts")


@require_http_methods(["GET", "HEAD", "POST"])
def create_own_rule(request: LabRequest) -> HttpResponse:
    return edit_alert_rule(request, request.user, None)


@require_http_methods(["GET", "HEAD", "POST"])
def edit_own_rule(request: LabRequest, rule_id: int) -> HttpResponse:
    return edit_alert_rule(request, request.user, find_alert_rule(request, request.user, rule_id))


@require_POST
def switch_own_rule(request: LabRequest, rule_id: int) -> HttpResponse:
    return toggle_alert_rule(request, request.user, rule_id)


@require_POST
def delete_own_rule(request: LabRequest, rule_id: int) -> HttpResponse:
    return remove_alert_rule(request, request.user, rule_id)


@require_http_methods(["GET", "HEAD", "POST"])
def team_new(request: LabRequest) -> HttpResponse:
    return edit_alert_rule(request, None, None)


@require_http_methods(["GET", "HEAD", "POST"])
def team_change(request: LabRequest, team_rule_id: int) -> HttpResponse:
    return edit_alert_rule(request, None, find_alert_rule(request, None, team_rule_id))


@require_POST
def team_switch(request: LabRequest, team_rule_id: int) -> HttpResponse:
    return toggle_alert_rule(request, None, team_rule_id)


@require_POST
def team_delete(request: LabRequest, team_rule_id: int) -> HttpResponse:
    return remove_alert_rule(request, None, team_rule_id)
