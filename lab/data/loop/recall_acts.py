"""Recalling labels, undoing that, and freezing a version again without them: what is done, by whomever it is asked for."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from lab.data.datasets.freezing import freeze_next_version
from lab.data.datasets.models import Recall, Version
from lab.data.datasets.rules import DatasetRule
from lab.data.loop.recall_form import describe_recall
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry


def begin_recall(target: Recall, by: User, reason: str) -> Recall:
    """From here on what was made of the labels is flagged; ``taking_back.carry_out`` takes them back."""
    target.reason, target.by = reason, by
    with transaction.atomic():
        target.save(force_insert=True)
        record_audit_entry("label.recall", target, actor=by, label=describe_recall(target), reason=reason)
    return target


def mark_recall_undone(recall: Recall, by: User) -> bool:
    """Whether it was undone now; ``taking_back.carry_out`` gives the labels back."""
    with transaction.atomic():
        undone = Recall.objects.same_row(recall).filter(undone_at=None).update(undone_at=timezone.now(), undone_by=by) == 1
        if undone:
            record_audit_entry("label.restore", recall, actor=by, label=describe_recall(recall))
    return undone


def refreeze_version(recall: Recall, version: Version, by: User) -> Version:
    """Freezes the dataset again under the version's own rule; what is recalled is left out. Raises RuleError."""
    return freeze_next_version(version.dataset, by, DatasetRule.read(version.rule), f"{version} without recalled labels ({describe_recall(recall)})")
