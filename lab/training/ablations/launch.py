"""Queueing the runs of an ablation: all of them or, when one is refused, none."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.ablations.models import Ablation, AblationRun
from lab.training.ablations.variants import first_seed, variants_of
from lab.training.runs import live
from lab.training.runs.launch import launch_run
from lab.training.runs.models import OPEN, Run
from lab.training.runs.placement import inherit_place
from trainers.contract.spec import Problem, SpecError

Spec = dict[str, Any]
MOST_RUNS = 60
NAME_LENGTH = 100


def explain_launch_refusal(spec: Spec, seeds: int, already: int = 0) -> str:
    """Why an ablation of this size is not launched; empty when it is. ``already`` counts the seeds it has."""
    variants = len(variants_of(spec))
    if not variants:
        return "This recipe stacks no methods, so there is nothing to ablate."
    if seeds < 1:
        return "At least one seed is needed."
    total = variants * (already + seeds)
    if total > MOST_RUNS:
        most = MOST_RUNS // variants - already
        advice = f"choose at most {most} {'more ' if already else ''}seed{'' if most == 1 else 's'}" if most > 0 else "remove methods from the recipe"
        return f"{variants} variants with {already + seeds} seeds are {total} runs; an ablation has at most {MOST_RUNS}: {advice}."
    return ""


def create_ablation(team: Team, author: User | None, name: str, spec: Spec, seeds: int, source: Run | None = None) -> Ablation:
    """The ablation with all its runs queued. Raises SpecError."""
    raise_seed_problem(explain_launch_refusal(spec, seeds), seeds)
    with transaction.atomic():
        name = name.strip()[:NAME_LENGTH] or "Ablation"
        ablation = Ablation.objects.create(team=team, author=author, source=source, name=name, spec=spec, seeds=seeds)
        queue_ablation_runs(ablation, author, range(seeds))
        record_audit_entry("ablation.launch", ablation, actor=author, seeds=seeds, runs=ablation.members.count())
    return ablation


def add_seeds(ablation: Ablation, author: User | None, more: int) -> Ablation:
    """Queues every variant with ``more`` further seeds. Raises SpecError."""
    with transaction.atomic():
        locked = Ablation.objects.select_for_update().same_row(ablation).get()
        raise_seed_problem(explain_launch_refusal(locked.spec, more, locked.seeds), more)
        queue_ablation_runs(locked, author, range(locked.seeds, locked.seeds + more))
        locked.seeds += more
        locked.save(update_fields=["seeds"])
        record_audit_entry("ablation.extend", locked, actor=author, seeds=more)
    return locked


def raise_seed_problem(reason: str, seeds: int) -> None:
    if reason:
        raise SpecError([Problem("seeds", seeds, reason)])


def queue_ablation_runs(ablation: Ablation, author: User | None, places: range) -> None:
    """Seed by seed, so that all variants of the first seed are there before the second begins."""
    for index in places:
        for variant in variants_of(ablation.spec):
            seed = first_seed(ablation.spec) + index
            name = run_name(ablation.name, f"{variant.name}, seed {seed}")
            run = launch_run(ablation.team, author, variant.spec(ablation.spec, index), name, place=inherit_place(ablation.source))
            AblationRun.objects.create(ablation=ablation, run=run, variant=variant.name, seed=seed)


def run_name(ablation: str, what: str) -> str:
    """What tells the runs apart is never cut off."""
    what = what[: NAME_LENGTH - 2]
    return f"{ablation[: max(0, NAME_LENGTH - len(what) - 2)]}: {what}"


def request_ablation_stop(ablation: Ablation) -> int:
    """Asks every run that will still go on to stop and save; returns how many were asked."""
    stopped = 0
    for run in Run.objects.of(ablation.team).filter(member__ablation=ablation, status__in=OPEN):
        if run.request_stop():
            live.publish_state(run)
            stopped += 1
    if stopped:
        record_audit_entry("ablation.stop", ablation, runs=stopped)
    return stopped


def delete_ablation_record(ablation: Ablation) -> None:
    """The ablation goes, its runs stay."""
    with transaction.atomic():
        record_audit_entry("ablation.delete", ablation, runs=ablation.members.count())
        ablation.delete()
