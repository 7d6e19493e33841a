"""What a running sweep does next: it notes what its trials have reached, pauses and promotes, launches, and ends.

All of it is one transaction under the sweep's row: of several workers one acts, and one that dies in between has done nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import transaction
from django.db.models.functions import Now

from lab.teams.accounts.models import Membership, Team, User
from lab.teams.accounts.permissions import is_role_allowed
from lab.teams.audit.recording import record_audit_entry
from lab.training.ablations.launch import run_name
from lab.training.runs import live
from lab.training.runs.launch import enqueue_run, launch_run
from lab.training.runs.models import Run, Status
from lab.training.runs.placement import inherit_place
from lab.training.runs.problem_words import format_problem_sentence
from lab.training.sweeps.halving import select_promoted
from lab.training.sweeps.models import Direction, Pause, Sweep, SweepState, Trial
from lab.training.sweeps.scores import METRICS, compute_score, read_score_series
from lab.training.sweeps.space import SEED, apply_values, describe_values
from lab.training.sweeps.suggestions import suggest_values
from trainers.contract.spec import SpecError

log = logging.getLogger(__name__)

PATIENCE = 3  # trials that may fail before any has finished
TRIED = ("training", "base", "methods", SEED)  # parts of a spec whose refusal is the trial's, not the sweep's
PAUSED = "paused by its sweep"


def advance_sweep(sweep: Sweep) -> None:
    """One look at a sweep; nothing where another process holds it or it does not run. Raises SpecError when its first trial cannot be launched."""
    with transaction.atomic():
        rows = Sweep.objects.same_row(sweep).select_for_update(skip_locked=True, of=("self",))
        held = rows.select_related("team", "runner", "source__project").filter(state=SweepState.RUNNING).first()
        if held is None:
            return
        trials = held.in_order()
        note_pauses(trials, held.rungs)
        note_scores(held, trials)
        if held.halving:
            pause_and_promote(held, trials)
        resume_stopped(held, trials)
        launch_trials(held, trials)
        end_sweep(held, trials)


def note_pauses(trials: Sequence[Trial], rungs: Sequence[int]) -> None:
    """Says on the page of a paused run why it stands still; one that a person resumed is not paused again."""
    for trial in trials:
        run = trial.run
        if run is None or not trial.pause:
            continue
        if run.status == Status.STOPPED and not run.reason.startswith(PAUSED):
            reason = f"{PAUSED} at step {run.step}" if trial.pause == Pause.RUNG else f"{PAUSED}, which was stopped"
            Run.objects.same_row(run).filter(status=Status.STOPPED).update(reason=reason)
        elif run.is_open and run.stop_requested_at is None:
            if trial.pause == Pause.RUNG:
                trial.rung = len(rungs)
            trial.pause = Pause.NONE
            trial.save(update_fields=["pause", "rung"])


def note_scores(sweep: Sweep, trials: Sequence[Trial]) -> None:
    """The score of each finished run, and of each run at every rung it has passed: once noted they do not change."""
    metric, rungs = METRICS[sweep.metric], sweep.rungs

    def arrived(trial: Trial) -> list[int]:
        return [rung for rung in rungs[len(trial.rung_scores) :] if trial.run and trial.run.step >= rung]

    new = [trial for trial in trials if trial.run and (arrived(trial) or (trial.score is None and trial.run.status == Status.FINISHED))]
    series = read_score_series(metric, [trial.run for trial in new if trial.run])
    for trial in new:
        if trial.run is None:
            continue
        curve = series.get(trial.run.pk)
        trial.rung_scores = [*trial.rung_scores, *(compute_score(metric, curve, rung) for rung in arrived(trial))]
        if trial.run.status == Status.FINISHED:
            trial.score = compute_score(metric, curve)
        trial.save(update_fields=["rung_scores", "score"])


def pause_and_promote(sweep: Sweep, trials: Sequence[Trial]) -> None:
    """Who has arrived at a rung and is not among its best is paused; who was paused there and is now among them goes on."""
    for rung in range(len(sweep.rungs)):
        last = is_done(sweep, trials)
        # A quick run may have passed this rung before it was paused at the one below: it counts here once it is promoted there.
        there = {trial.pk: trial.rung_scores[rung] for trial in trials if trial.rung >= rung and len(trial.rung_scores) > rung}
        promoted = select_promoted(there, sweep.direction == Direction.MAXIMIZE, nobody_else_comes=last)
        for trial in trials:
            if trial.rung != rung or trial.pk not in there or trial.run is None:
                continue
            if trial.pk not in promoted:
                if trial.run.is_active and not trial.pause:
                    pause_trial(trial, Pause.RUNG)
            elif not trial.pause or (trial.status == "paused" and count_free_places(sweep, trials) and resume_trial(trial)):
                trial.rung = rung + 1
                trial.save(update_fields=["rung"])


def pause_trial(trial: Trial, pause: Pause) -> bool:
    """Stop and save, by the run's own verb."""
    run = trial.run
    if run is None or not run.request_stop():
        return False
    trial.pause = pause
    trial.save(update_fields=["pause"])
    transaction.on_commit(lambda: live.publish_state(run))
    return True


def resume_trial(trial: Trial) -> bool:
    """From exactly where it was; one that somebody archived or put in the bin meanwhile stays there and counts as ended."""
    run = trial.run
    resumed = run is not None and run.resume()
    trial.pause = Pause.NONE
    trial.save(update_fields=["pause"])
    if run is not None and resumed:
        enqueue_run(run)
        transaction.on_commit(lambda: live.publish_state(run))
    return resumed


def resume_stopped(sweep: Sweep, trials: Sequence[Trial]) -> None:
    """What was stopped with the sweep goes on with it."""
    for trial in trials:
        if trial.pause == Pause.STOP and trial.status == "paused" and count_free_places(sweep, trials):
            resume_trial(trial)


def count_free_places(sweep: Sweep, trials: Sequence[Trial]) -> int:
    return max(0, sweep.parallel - sum(trial.is_open for trial in trials))


def launch_trials(sweep: Sweep, trials: list[Trial]) -> None:
    """New trials into free places, until the sweep has all it wants or stops itself."""
    while count_free_places(sweep, trials) and len(trials) < sweep.planned:
        if reason := find_stop_reason(sweep, trials):
            stop_by_itself(sweep, reason)
            return
        try:
            trials.append(launch_trial(sweep, trials))
        except SpecError as error:
            if not trials:
                raise
            stop_by_itself(sweep, format_problem_sentence(error.problems[0]))
            return


def launch_trial(sweep: Sweep, trials: Sequence[Trial]) -> Trial:
    """Raises SpecError where it is not the values that are refused, or there was no trial before."""
    values, number = suggest_values(sweep, trials), len(trials)
    name = run_name(sweep.name, f"{number + 1}, {describe_values(values)}")
    try:
        with transaction.atomic():
            run = launch_run(sweep.team, sweep.runner, apply_values(sweep.spec, values), name, place=inherit_place(sweep.source))
    except SpecError as error:
        if number == 0 or not all(problem.field.split(".")[0] in TRIED for problem in error.problems):
            raise
        return Trial.objects.create(sweep=sweep, number=number, values=values, refusal=str(error.problems[0]))
    return Trial.objects.create(sweep=sweep, run=run, number=number, values=values)


def find_stop_reason(sweep: Sweep, trials: Sequence[Trial]) -> str:
    """Why nothing more is launched: nobody may launch it any more, or what cannot work would be tried most_runs times."""
    if sweep.runner is not None and not may_launch(sweep.team, sweep.runner):
        return f"{sweep.runner.email}, for whom it launched, may not launch runs any more. Anyone who may can continue it."
    failed = sum(trial.has_failed for trial in trials)
    if failed - sweep.forgiven < PATIENCE or any(trial.score is not None or trial.rung_scores for trial in trials):
        return ""
    return f"{failed} trials failed or were stopped, and none has a score. Check their logs, then continue the sweep."


def may_launch(team: Team, user: User) -> bool:
    member = Membership.objects.filter(team=team, user=user, active=True, user__is_active=True).first()
    return member is not None and is_role_allowed(member.role, "runs.launch")


def stop_by_itself(sweep: Sweep, reason: str) -> None:
    Sweep.objects.same_row(sweep).update(state=SweepState.STOPPED, reason=reason, ended_at=Now())
    sweep.state = SweepState.STOPPED
    record_audit_entry("sweep.stop", sweep, reason=reason)
    log.warning("sweep %s stopped: %s", sweep.pk, reason)


def is_done(sweep: Sweep, trials: Sequence[Trial]) -> bool:
    """Every trial was launched and none goes on, unless a rung promotes it."""
    return len(trials) >= sweep.planned and not any(trial.is_open for trial in trials)


def end_sweep(sweep: Sweep, trials: Sequence[Trial]) -> None:
    if sweep.state == SweepState.RUNNING and is_done(sweep, trials):
        Sweep.objects.same_row(sweep).update(state=SweepState.FINISHED, ended_at=Now())
