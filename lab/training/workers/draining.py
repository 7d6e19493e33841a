"""Draining a worker: it finishes the run it trains and takes no more, until it takes runs again or is started anew."""

from __future__ import annotations

from django.db import transaction

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.workers.models import Worker


def drain_worker(name: str, takes_runs: bool, team: Team | None = None) -> bool:
    """Whether that was a change. ``team``: whose log says so; the installation's without one. Raises Refusal.

    A claim of the worker holds its row, so that after this no run is taken that was not taken before.
    """
    with transaction.atomic():
        worker = Worker.objects.select_for_update().filter(name=name).first()
        if worker is None:
            raise Refusal(f"There is no worker {name!r}.", "Its name stands on the Workers page.", "name", status=404)
        if worker.takes_runs == takes_runs:
            return False
        worker.takes_runs = takes_runs
        worker.save(update_fields=["takes_runs"])
        record_audit_entry("worker.resume" if takes_runs else "worker.drain", worker, team=team)
    return True


def explain_drain_refusal(user: User | None, team: Team) -> str:
    """Why an admin of the team may not drain workers; empty when they may. Workers train the runs of every team of the installation, and anybody
    can have a team of their own: with more than one team only operators decide.
    """
    if user is not None and user.is_staff:
        return ""
    return "Workers serve several teams here: only operators of the installation can drain them." if has_other_teams(team) else ""


def has_other_teams(team: Team) -> bool:
    return Team.objects.exclude(pk=team.pk).exists()
