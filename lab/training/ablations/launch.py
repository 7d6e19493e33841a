"""Queueing the runs of an ablation or a grid: all of them or, when one is refused, none. And stopping, resuming and forgetting them together."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.ablations.factors import Cell
from lab.training.ablations.grid_checks import count_runs_refusal, find_grid_problems
from lab.training.ablations.models import Ablation, AblationRun
from lab.training.ablations.variants import first_seed, variants_of
from lab.training.runs import live
from lab.training.runs.launch import enqueue_run, launch_run
from lab.training.runs.models import OPEN, RESUMABLE, TAG_LENGTH, Run
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


def create_grid(grid: Ablation) -> Ablation:
    """Stores a grid and queues the runs of every cell: all of them or, when one is refused, nothing. Raises SpecError."""
    if problems := find_grid_problems(grid):
        raise SpecError(problems)
    grid.name = grid.name.strip()[:NAME_LENGTH] or "Grid"
    with transaction.atomic():
        grid.save(force_insert=True)
        queue_ablation_runs(grid, grid.author, range(grid.seeds))
        record_audit_entry("ablation.launch", grid, actor=grid.author, seeds=grid.seeds, runs=grid.members.count(), cells=len(grid.list_variants()))
    return grid


def add_seeds(ablation: Ablation, author: User | None, more: int) -> Ablation:
    """Queues every variant with ``more`` further seeds. Raises SpecError."""
    with transaction.atomic():
        locked = Ablation.objects.select_for_update().same_row(ablation).get()
        refusal = count_runs_refusal(locked, more, locked.seeds) if locked.is_grid else explain_launch_refusal(locked.spec, more, locked.seeds)
        raise_seed_problem(refusal, more)
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
        for variant in ablation.list_variants():
            seed = first_seed(ablation.spec) + index
            name = run_name(ablation.name, f"{variant.name}, seed {seed}")
            run = launch_run(ablation.team, author, variant.spec(ablation.spec, index), name, place=inherit_place(ablation.source))
            if isinstance(variant, Cell):
                Run.objects.same_row(run).update(tags=write_cell_tags(variant))
            AblationRun.objects.create(ablation=ablation, run=run, variant=variant.name, seed=seed)


def write_cell_tags(cell: Cell) -> list[str]:
    """The levels of a cell as tags of its runs, each once; a comma would end a tag."""
    tags = {tag.casefold(): tag for level in cell.levels if (tag := " ".join(level.name.replace(",", " ").split())[:TAG_LENGTH].strip())}
    return list(tags.values())


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


def resume_ablation_runs(ablation: Ablation) -> int:
    """Queues every stopped, failed or lost run again, from its last checkpoint; returns how many. Archived ones stay."""
    resumed = 0
    for run in Run.objects.of(ablation.team).filter(member__ablation=ablation, status__in=RESUMABLE).order_by("number"):
        if run.resume():
            enqueue_run(run)
            live.publish_state(run)
            resumed += 1
    if resumed:
        record_audit_entry("ablation.resume", ablation, runs=resumed)
    return resumed


def delete_ablation_record(ablation: Ablation) -> None:
    """The ablation goes, its runs stay."""
    with transaction.atomic():
        record_audit_entry("ablation.delete", ablation, runs=ablation.members.count())
        ablation.delete()
