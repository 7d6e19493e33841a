"""What people do with a sweep: start it, stop it, continue it, launch its best values again, delete it."""

from __future__ import annotations

from django.db import transaction

from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry
from lab.training.ablations.launch import NAME_LENGTH
from lab.training.sweeps.advance import advance_sweep, pause_trial
from lab.training.sweeps.checks import find_sweep_problems
from lab.training.sweeps.models import Pause, Sampler, Sweep, SweepState, Trial
from lab.training.sweeps.space import SEED, apply_values
from trainers.contract.spec import SpecError

SEEDS_AGAIN = 3


def create_sweep(sweep: Sweep) -> Sweep:
    """Stores a sweep and queues its first runs: all of them or, when one is refused, nothing. Raises SpecError."""
    if problems := find_sweep_problems(sweep):
        raise SpecError(problems)
    sweep.name = sweep.name.strip()[:NAME_LENGTH] or "Sweep"
    sweep.runner = sweep.author
    with transaction.atomic():
        sweep.save(force_insert=True)
        record_audit_entry("sweep.launch", sweep, actor=sweep.author, sampler=sweep.sampler, runs=sweep.most_runs)
        advance_sweep(sweep)
    return sweep


def stop_sweep(sweep: Sweep, reason: str = "") -> bool:
    """Launches nothing more; what trains is stopped and saved, to go on when the sweep is continued. Whether it ran."""
    with transaction.atomic():
        locked = Sweep.objects.same_row(sweep).select_for_update(of=("self",)).get()
        if locked.state != SweepState.RUNNING:
            return False
        stopped = sum(pause_trial(trial, Pause.STOP) for trial in locked.in_order() if trial.is_open and not trial.pause)
        locked.state, locked.reason = SweepState.STOPPED, reason
        locked.save(update_fields=["state", "reason"])
        record_audit_entry("sweep.stop", locked, runs=stopped)
    return True


def continue_sweep(sweep: Sweep, runner: User | None) -> bool:
    """Goes on where it was stopped, for ``runner``. Whether it was stopped."""
    with transaction.atomic():
        locked = Sweep.objects.same_row(sweep).select_for_update(of=("self",)).get()
        if locked.state != SweepState.STOPPED:
            return False
        locked.forgiven = sum(trial.has_failed for trial in locked.in_order())
        locked.state, locked.reason, locked.runner, locked.ended_at = SweepState.RUNNING, "", runner, None
        locked.save(update_fields=["forgiven", "state", "reason", "runner", "ended_at"])
        record_audit_entry("sweep.continue", locked, actor=runner)
        advance_sweep(locked)
    return True


def build_best_again(sweep: Sweep, best: Trial, author: User | None) -> Sweep:
    """The best trial's values with further seeds, as a sweep of its own; not stored yet."""
    spec = apply_values(sweep.spec, best.values)
    spec[SEED] = int(spec.get(SEED, 0)) + 1
    return Sweep(
        team=sweep.team,
        author=author,
        source=sweep.source,
        name=f"{sweep.name[: NAME_LENGTH - 20]}: best, {SEEDS_AGAIN} seeds",
        spec=spec,
        sampler=Sampler.SEEDS,
        metric=sweep.metric,
        direction=sweep.direction,
        most_runs=SEEDS_AGAIN,
        parallel=min(sweep.parallel, SEEDS_AGAIN),
    )


def delete_sweep_record(sweep: Sweep) -> None:
    """The sweep and what it chose go, its runs stay."""
    with transaction.atomic():
        record_audit_entry("sweep.delete", sweep, runs=sweep.trials.count())
        sweep.delete()
