"""Reading a team's rule, from a form too, and saving it, whoever asks."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.rollouts.trajectories.models import DroppedRollouts
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.tags import clean_tag
from lab.watching.retention.models import RolloutRule

FIELDS = ("tokens_days", "rollouts_days", "keep_every", "keep_tag")
MOST_DAYS, MOST_STEPS = 36_500, 10_000_000
WORDS = {
    "tokens_days": "Days until token arrays are dropped",
    "rollouts_days": "Days until rollouts are dropped",
    "keep_every": "Keep every N-th step",
}
NEVER_REACHED = "Rollouts are dropped with their token arrays after {days} days already: enter fewer days here, or leave it empty."


def rule_of(team: Team) -> RolloutRule:
    """The team's, or one that keeps everything and is not stored."""
    return RolloutRule.objects.filter(team=team).select_related("team", "changed_by").first() or RolloutRule(team=team)


def parse_rule(data: Any, team: Team) -> tuple[RolloutRule, dict[str, str]]:
    """A rule from a form or an address, and what is wrong, by field. Empty days keep for ever."""
    rule, errors = RolloutRule(team=team), dict[str, str]()
    for name, least, most in (("tokens_days", 1, MOST_DAYS), ("rollouts_days", 1, MOST_DAYS), ("keep_every", 0, MOST_STEPS)):
        text = str(data.get(name, "")).strip()
        if not text:
            continue
        if (number := parse_whole_number(text, most, least)) is None:
            errors[name] = f"{WORDS[name]}: enter a whole number from {least} to {most:,}, not “{text[:40]}”."
        else:
            setattr(rule, name, number)
    tag = str(data.get("keep_tag", "")).strip()
    try:
        rule.keep_tag = clean_tag(tag) if tag else ""
    except Refusal as refusal:
        errors["keep_tag"] = str(refusal)
    return rule, errors | find_rule_problems(rule)


def find_rule_problems(rule: RolloutRule) -> dict[str, str]:
    """What two settings make impossible together, by field."""
    if rule.tokens_days is not None and rule.rollouts_days is not None and rule.tokens_days >= rule.rollouts_days:
        return {"tokens_days": NEVER_REACHED.format(days=rule.rollouts_days)}
    return {}


def save_rule(team: Team, user: User | None, rule: RolloutRule) -> RolloutRule:
    """Replaces the team's rule. Nothing is dropped before the next night."""
    fields = {name: getattr(rule, name) for name in FIELDS}
    with transaction.atomic():
        Team.objects.select_for_update().get(pk=team.pk)  # two admins who save at once
        before = rule_of(team)
        changed = {name: [getattr(before, name), value] for name, value in fields.items() if getattr(before, name) != value}
        if changed:
            saved, _ = RolloutRule.objects.update_or_create(team=team, defaults={**fields, "changed_by": user, "looked_at": Now()})
            DroppedRollouts.objects.filter(run__team=team).update(reached=0)  # every run is gone through anew
            record_audit_entry("rollouts.retention", saved, team=team, label=f"retention of {team.name}", changed=changed)
    return rule_of(team)
