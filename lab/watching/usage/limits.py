"""A team's limits and prices: reading them, and setting them, whoever asks."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from lab.teams.accounts.models import Team
from lab.teams.audit.recording import record_audit_entry
from lab.watching.usage.forms import QuotaForm
from lab.watching.usage.models import Quota


def quota_of(team: Team) -> Quota:
    """The team's, or one without limits that is not stored."""
    return Quota.objects.filter(team=team).first() or Quota(team=team)


def save_quota_limits(team: Team, form: QuotaForm) -> dict[str, list[Any]]:
    """Stores what a valid form holds; runs that were held go on by themselves. What changed, as field → [before, after]."""
    with transaction.atomic():
        Team.objects.select_for_update().get(pk=team.pk)  # two admins who save at once
        quota = quota_of(team)
        changed = form.save(quota)
        if changed:
            record_audit_entry("quota.change", quota, team=team, label=f"quotas of {team.name}", changed=changed)
    return changed
