"""Into the bin, back, and out of it for good. A chore deletes (``chores``): a run may have millions of rows."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.conf import settings

from lab.lib.clock import database_now
from lab.models.bin.hindrances import find_bin_objections, find_purge_objections, find_restore_objection
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Run
from lab.training.runs.verbs import BulkOutcome, change_each_run, find_chosen_runs

BIN_FIELDS = ["binned_at", "binned_by", "purge_at"]


def put_runs_in_bin(team: Team, user: User | None, numbers: Collection[int]) -> BulkOutcome:
    """``user`` None: a service token. Raises Refusal."""
    objections = find_bin_objections(team, find_chosen_runs(team, numbers))

    def put(run: Run) -> str:
        if run.is_open:  # resumed since the objections were looked for
            return f"{run.status}, stop it first"
        if why := objections.get(run.pk):
            return why
        run.binned_at, run.binned_by = database_now(), user
        run.purge_at = run.binned_at + timedelta(days=settings.BIN_DAYS)
        run.save(update_fields=BIN_FIELDS)
        record_audit_entry("run.bin", run)
        return ""

    return change_each_run(team, numbers, put)


def restore_runs(team: Team, numbers: Collection[int]) -> BulkOutcome:
    """Raises Refusal."""

    def restore(run: Run) -> str:
        if run.purging:
            return "its deletion has begun"
        if why := find_restore_objection(team, run):
            return why
        run.binned_at = run.binned_by = run.purge_at = None
        run.save(update_fields=BIN_FIELDS)
        record_audit_entry("run.restore", run)
        return ""

    return change_each_run(team, numbers, restore, binned=True)


def order_purge(team: Team, numbers: Collection[int]) -> BulkOutcome:
    """A worker deletes the runs within seconds, unless something depends on them. Raises Refusal."""

    def order(run: Run) -> str:
        if run.purging:
            return "its deletion has begun"
        if why := find_purge_objections(team, [run]).get(run.pk):
            return why
        run.purge_at = database_now()
        run.save(update_fields=["purge_at"])
        record_audit_entry("run.purge", run)
        return ""

    return change_each_run(team, numbers, order, binned=True)
