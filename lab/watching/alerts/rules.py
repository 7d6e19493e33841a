"""Alert rules of a person (``owner``) or of the team (None): made, changed, switched and deleted, by whomever it is asked for."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from lab.lib.clock import database_now
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.watching.alerts.kinds import KINDS
from lab.watching.alerts.models import Looked, Rule
from lab.watching.alerts.rule_form import RuleForm

MOST_RULES = 100  # of a person, and of a team
SAYING = ("team", "owner", "kind", "metric", "direction", "number", "steps", "run", "words", "recipe", "project", "mine", "inbox", "email", "webhook")


def list_alert_rules(team: Team, owner: User | None) -> QuerySet[Rule]:
    return Rule.objects.of(team, owner).select_related("run", "project", "webhook", "team")


def in_order(rules: QuerySet[Rule]) -> list[Rule]:
    """As the form lists the kinds."""
    places = {name: index for index, name in enumerate(KINDS)}
    return sorted(rules, key=lambda rule: (places.get(rule.kind, 0), rule.pk))


def find_equal_rules(rule: Rule) -> QuerySet[Rule]:
    """Rules that are on and say the same."""
    return Rule.objects.filter(enabled=True, **{name: getattr(rule, name) for name in SAYING})


def save_rule_form(form: RuleForm, rule: Rule | None, by: User | None) -> tuple[Rule | None, bool]:
    """The rule as the form says it, and whether it was saved now. ``rule``: the one that is changed.

    None where the form says what is wrong; a new one that says what another does already is that other one: the form was sent twice.
    """
    if form.is_valid() and rule is None and list_alert_rules(form.team, form.owner).count() >= MOST_RULES:
        form.add_error(None, f"There are already {MOST_RULES} rules. Delete one that is no longer needed.")
    if not form.is_valid():
        return None, False
    if rule is None and (equal := find_equal_rules(form.rule()).first()):
        return equal, False
    saved = form.rule(rule)
    saved.since = database_now()  # what happened under the old words is not told under the new ones
    saved.created_by = saved.created_by or by
    saved.save()
    Looked.objects.filter(rule=saved).delete()
    record_audit_entry("alert.change", saved, what="changed" if rule else "made", owner=str(form.owner or "team"), rule=str(saved))
    return saved, True


def switch_alert_rule(rule: Rule, name: str, on: bool) -> None:
    """The rule (``name`` enabled), or its mails (email)."""
    changes: dict[str, Any] = {name: on}
    if name == "enabled" and on:
        changes["since"] = database_now()
        Looked.objects.filter(rule=rule).delete()
    if name == "email" and not on and not rule.webhook_id:
        changes["inbox"] = True  # some way to be told is left
    Rule.objects.same_row(rule).update(**changes)
    record_audit_entry("alert.change", rule, what=f"{name} {'on' if on else 'off'}", rule=str(rule))


def delete_alert_rule(rule: Rule) -> None:
    """What it told stays in the inbox."""
    record_audit_entry("alert.change", rule, what="deleted", rule=str(rule))
    rule.delete()
