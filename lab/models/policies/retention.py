"""What a team keeps: its rules over all checkpoints, what they would delete, and saving them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from lab.lib.clock import database_now
from lab.lib.numbers import parse_whole_number
from lab.models.policies import listing, measures
from lab.models.policies.models import UNDO, Removal, Retention
from lab.models.policies.promotion import require_team_permission
from lab.models.policies.removal import relied_on
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Checkpoint
from lab.training.runs.stored_checkpoints import find_checkpoints_there

EVERY = timedelta(hours=1)  # between two looks at a team
FIELDS = ("keep_last", "keep_best", "metric", "smallest", "keep_every", "keep_final", "after_hours", "active")
AT_ONCE = 500  # checkpoints marked in a look
WHOLE = {"keep_last": (1, 1000), "keep_best": (0, 1000), "keep_every": (0, 10_000_000), "after_hours": (0, 24 * 365)}
WORDS = {
    "keep_last": "Newest checkpoints per run",
    "keep_best": "Best checkpoints per run",
    "keep_every": "Every N steps",
    "after_hours": "Hours before anything is deleted",
}


@dataclass(frozen=True)
class RetentionVerdict:
    """``reasons``: why it stays; empty: it would be deleted."""

    checkpoint: Checkpoint
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class RemovalPlan:
    keep: list[RetentionVerdict]
    drop: list[RetentionVerdict]

    @property
    def kept_bytes(self) -> int:
        return sum(judged.checkpoint.bytes for judged in self.keep)

    @property
    def freed(self) -> int:
        return sum(judged.checkpoint.bytes for judged in self.drop)


def plan_retention(team: Team, rules: Retention) -> RemovalPlan:
    """Every checkpoint on the disk, judged. Nothing is changed."""
    known = list(listing.of_team(team).select_related("run").order_by("-created_at", "-pk"))
    there = find_checkpoints_there(team, known)
    rows = [checkpoint for checkpoint in known if checkpoint.pk in there]
    kept = by_rules(rows, rules)
    pinned = set(Removal.objects.filter(checkpoint__run__team=team).exclude(kept_at=None).values_list("checkpoint", flat=True))
    for pk in pinned & kept.keys():
        kept[pk].append("kept manually")
    doubtful = [checkpoint for checkpoint in rows if not kept[checkpoint.pk]]
    if doubtful:
        for pk, reasons in relied_on(team, doubtful).items():
            kept[pk] += reasons
    judged = [RetentionVerdict(checkpoint, tuple(kept[checkpoint.pk])) for checkpoint in rows]
    return RemovalPlan([policy for policy in judged if policy.reasons], [policy for policy in judged if not policy.reasons])


def by_rules(rows: Sequence[Checkpoint], rules: Retention) -> dict[int, list[str]]:
    """Checkpoint → which of the rules keep it."""
    kept: dict[int, list[str]] = {checkpoint.pk: [] for checkpoint in rows}
    young = database_now() - timedelta(hours=rules.after_hours)
    runs: defaultdict[UUID, list[Checkpoint]] = defaultdict(list)
    for checkpoint in rows:
        if rules.after_hours and checkpoint.created_at > young:
            kept[checkpoint.pk].append(f"younger than {rules.after_hours} hours")
        if checkpoint.final:
            if rules.keep_final:
                kept[checkpoint.pk].append("a final policy")
        else:
            runs[checkpoint.run_id].append(checkpoint)
    measured = (
        measures.at_steps([checkpoint for own in runs.values() for checkpoint in own], [rules.metric]) if rules.keep_best and rules.metric else {}
    )
    for own in runs.values():
        own.sort(key=lambda checkpoint: -checkpoint.step)
        for checkpoint in own[: rules.keep_last]:
            kept[checkpoint.pk].append("among the newest of its run")
        for checkpoint in select_best_checkpoints(own, measured, rules):
            kept[checkpoint.pk].append(f"among the best of its run by {rules.metric}")
        for checkpoint in own:
            if rules.keep_every and checkpoint.step % rules.keep_every == 0:
                kept[checkpoint.pk].append(f"a multiple of {rules.keep_every} steps")
    return kept


def select_best_checkpoints(own: Sequence[Checkpoint], measured: dict[int, dict[str, measures.MeasuredValue]], rules: Retention) -> list[Checkpoint]:
    known = [(measured[checkpoint.pk][rules.metric].value, checkpoint) for checkpoint in own if rules.metric in measured.get(checkpoint.pk, {})]
    known.sort(key=lambda pair: (pair[0] if rules.smallest else -pair[0], -pair[1].step))
    return [checkpoint for _, checkpoint in known[: rules.keep_best]]


def rules_of(team: Team) -> Retention:
    """The team's rules, or the usual ones, which are not in force."""
    return Retention.objects.filter(team=team).select_related("changed_by").first() or Retention(team=team)


def parse_retention_rules(data: Any, team: Team) -> tuple[Retention, dict[str, str]]:
    """Rules from a form or an address, and what is wrong, by field."""
    errors: dict[str, str] = {}
    rules = Retention(team=team)
    for name, (least, most) in WHOLE.items():
        text = str(data.get(name, "")).strip() or str(getattr(rules, name))
        if (number := parse_whole_number(text, most, least)) is not None:
            setattr(rules, name, number)
        else:
            errors[name] = f"{WORDS[name]}: enter a whole number from {least} to {most:,}, not “{text[:40]}”."
    metric = str(data.get("metric", "")).replace("\0", "").strip()
    if len(metric) > 200:
        errors["metric"] = "The name of a metric has at most 200 characters."
    rules.metric = metric[:200] or "heldout/reward"
    rules.smallest, rules.keep_final, rules.active = (data.get(name) in ("on", "1") for name in ("smallest", "keep_final", "active"))
    return rules, errors


def save_retention_rules(team: Team, user: User, rules: Retention) -> Retention:
    """Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    fields = {name: getattr(rules, name) for name in FIELDS}
    with transaction.atomic():
        before = Retention.objects.select_for_update().filter(team=team).first()
        was = {name: getattr(before, name) for name in FIELDS} if before else {}
        saved, _ = Retention.objects.update_or_create(team=team, defaults={**fields, "changed_by": user, "looked_at": None})
        changes = {name: [was.get(name), value] for name, value in fields.items() if was.get(name) != value}
        record_audit_entry("policy.retention", saved, team=team, actor=user, label=str(team), **changes)
        if not saved.active:  # what the rules marked and nobody deleted yet stays
            Removal.objects.filter(team=team, by=None, deleted_at=None, kept_at=None).delete()
    return saved


def apply_rules() -> int:
    """Marks what the rules of the teams that are due no longer keep; how many. Of several workers one looks at a team."""
    now = database_now()
    marked = 0
    overdue = Q(looked_at=None) | Q(looked_at__lt=now - EVERY)
    for rules in Retention.across_teams.filter(overdue, active=True).select_related("team"):
        if not Retention.objects.same_row(rules).filter(overdue, active=True).update(looked_at=now):
            continue
        drop = plan_retention(rules.team, rules).drop[:AT_ONCE]
        already_due = set(
            Removal.across_teams.filter(checkpoint__in=[judged_policy.checkpoint for judged_policy in drop]).values_list("checkpoint", flat=True)
        )
        fresh = [
            Removal(team=rules.team, checkpoint=judged_policy.checkpoint, due_at=now + UNDO)
            for judged_policy in drop
            if judged_policy.checkpoint.pk not in already_due
        ]
        Removal.objects.bulk_create(fresh, ignore_conflicts=True)
        marked += len(fresh)
    return marked
