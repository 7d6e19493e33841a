"""Recalling labels, undoing that, and freezing a version again without them: what is done, by whomever it is asked for."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from lab.accounts.models import User
from lab.audit.recording import record
from lab.datasets.freezing import freeze
from lab.datasets.models import Recall, Version
from lab.datasets.rules import Rule
from lab.loop.recall_form import words


def begin(target: Recall, by: User, reason: str) -> Recall:
    """From here on what was made of the labels is flagged; ``taking_back.carry_out`` takes them back."""
    target.reason, target.by = reason, by
    with transaction.atomic():
        target.save(force_insert=True)
        record("label.recall", target, actor=by, label=words(target), reason=reason)
    return target


def undo(recall: Recall, by: User) -> bool:
    """Whether it was undone now; ``taking_back.carry_out`` gives the labels back."""
    with transaction.atomic():
        undone = Recall.objects.filter(pk=recall.pk, undone_at=None).update(undone_at=timezone.now(), undone_by=by) == 1
        if undone:
            record("label.restore", recall, actor=by, label=words(recall))
    return undone


def rebuild(recall: Recall, version: Version, by: User) -> Version:
    """Freezes the dataset again under the version's own rule; what is recalled is left out. Raises RuleError."""
    return freeze(version.dataset, by, Rule.read(version.rule), f"{version} without what was recalled ({words(recall)})")
