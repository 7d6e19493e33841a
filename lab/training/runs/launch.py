"""Launching: the one way from a recipe or a spec to queued runs, whether a browser, the command line or the demo asks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import Q

from lab.teams.accounts.models import Membership, Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.runs import hold_reasons
from lab.training.runs.models import NAME_LENGTH, Run, Status
from lab.training.runs.placement import Place, inherit_place
from lab.training.runs.references import Spec, resolve_references
from lab.training.runs.stages import stage_specs
from lab.training.runs.team_tasks import find_spec_task
from lab.training.workers.messages import send_task_message
from trainers.contract.spec import FINAL, FolderPolicy, HubPolicy, Problem, RunPolicy, RunSpec, SpecError, parse_spec

TASK_LENGTH = 100
PENDING = "pending"  # stands for a folder that does not exist before the launch


def launch_recipe(
    team: Team,
    user: User | None,
    recipe: str,
    overrides: Spec | None = None,
    name: str = "",
    *,
    paths: bool = False,
    place: Place | None = None,
) -> list[Run]:
    """Launches every stage of a recipe: all of them or, when one is refused, none. Raises SpecError.

    ``overrides`` is described at ``stages.stage_specs``; each later stage waits for the one before and goes on from its final policy.
    """
    specs = specs_of(recipe, overrides or {})
    runs: list[Run] = []
    with transaction.atomic() if len(specs) > 1 else nullcontext():  # a single run has a transaction of its own
        for number, (title, spec) in enumerate(specs):
            stage_name = f"{name or recipe}: {title}" if len(specs) > 1 else name or recipe
            parent = runs[-1] if runs else None
            if parent:
                spec["policy"] = {"kind": "run", "run": str(parent.pk), "checkpoint": FINAL}
            with problems_of_stage(number, len(specs)):
                runs.append(launch_run(team, user, spec, stage_name, parent=parent, paths=paths, place=place))
    return runs


def plan_recipe(team: Team, recipe: str, overrides: Spec | None = None, *, paths: bool = False) -> list[RunSpec]:
    """What ``launch_recipe`` would launch, to be looked at first; nothing is stored. The output, and a later stage's policy, are ``PENDING``."""
    specs = specs_of(recipe, overrides or {})
    checked: list[RunSpec] = []
    for number, (_, spec) in enumerate(specs):
        with problems_of_stage(number, len(specs)):
            resolved_spec = {**resolve_references(team, spec, paths=paths), "output": PENDING}
            if number:
                resolved_spec["policy"] = {"kind": "run", "folder": PENDING, "checkpoint": FINAL}
            checked.append(parse_spec(resolved_spec))
    return checked


def specs_of(recipe: str, overrides: Spec) -> list[tuple[str, Spec]]:
    try:
        return [(spec.pop("title"), spec) for spec in stage_specs(load_catalog(), recipe, overrides)]
    except CatalogError as error:
        raise SpecError([Problem("recipe", recipe, str(error))]) from None


@contextmanager
def problems_of_stage(number: int, stages: int) -> Iterator[None]:
    """Puts the stage before the field in the problems of a chain."""
    try:
        yield
    except SpecError as error:
        if stages == 1:
            raise
        raise SpecError([replace(problem, field=f"stages.{number}.{problem.field}") for problem in error.problems]) from None


def launch_run(
    team: Team,
    user: User | None,
    spec: Spec,
    name: str = "",
    parent: Run | None = None,
    cloned_from: Run | None = None,
    *,
    paths: bool = False,
    place: Place | None = None,
) -> Run:
    """Queues one run. ``spec`` has no output; policies and datasets may be named as ``references`` says. Raises SpecError.

    The run starts once ``parent`` has finished; the number is the team's next, without gaps or races, because launching locks the team's row.
    Without ``place`` it goes where the run is that it comes from.
    """
    run = Run(team=team, created_by=user, parent=parent, cloned_from=cloned_from)
    checked = check_launch_spec(team, {**spec, "output": str(run.folder)}, paths=paths, parent=parent)
    run.spec = checked.model_dump(mode="json")
    run.recipe, run.trainer, run.task = checked.recipe, checked.training.trainer, label_task(team, checked)
    run.policy = policy_label(checked)
    run.name = name.strip()[:NAME_LENGTH] or checked.recipe
    run.total_steps = checked.training.max_steps
    place = place or inherit_place(parent, cloned_from)
    run.project, run.queue = place.project, place.queue
    if parent is not None and parent.is_open and parent.queue == run.queue:
        run.priority, run.queue_place = parent.priority, parent.queue_place  # a chain stays in one piece
    if refusal := hold_reasons.find_queue_refusal(team, run.queue):
        raise SpecError([Problem("queue", run.queue, refusal.rstrip("."), "choose another queue, or ask an admin of the team")])
    with transaction.atomic():
        Team.objects.select_for_update().get(pk=team.pk)
        still_in(team, user)
        run.number = Run.objects.next_number(team)
        run.save(force_insert=True)
        record_audit_entry("run.launch", run, actor=user, **describe_launch(run))
        if parent is None or parent.status == Status.FINISHED:
            enqueue_run(run)
    return run


def describe_launch(run: Run) -> dict[str, Any]:
    """What the audit log says of a run that was launched."""
    details = {"recipe": run.recipe, "trainer": run.trainer, "policy": run.policy}
    if run.cloned_from:
        details["cloned_from"] = f"#{run.cloned_from.number}"
    if run.parent:
        details["after"] = f"#{run.parent.number}"
    return details


def still_in(team: Team, user: User | None) -> None:
    """Raises SpecError for somebody deactivated since their request began: who leaves leaves no queued run behind. Needs the team's lock."""
    if user is not None and Membership.objects.filter(Q(active=False) | Q(user__is_active=False), team=team, user=user).exists():
        raise SpecError([Problem("", None, "your account was deactivated in this team", "ask one of its admins")])


def check_launch_spec(team: Team, spec: Spec, *, paths: bool = False, parent: Run | None = None) -> RunSpec:
    """The complete, valid spec. Raises SpecError."""
    checked = parse_spec(resolve_references(team, spec, paths=paths, parent=parent))
    if parent is not None and parent.team_id != team.pk:
        raise SpecError([Problem("parent", str(parent.pk), "your team has no such run")])
    return checked


def enqueue_run(run: Run) -> None:
    """Tells the workers once the transaction is committed. A message that cannot be sent now is sent by the next worker's sweep."""
    transaction.on_commit(lambda: send_task_message("supervise", run.pk, run.queue))


def label_task(team: Team, spec: RunSpec) -> str:
    """What lists call the task: of the team's own with the version."""
    own = find_spec_task(team, {"task": spec.task.model_dump()})
    return own.label if own else spec.task.name[:TASK_LENGTH]


def policy_label(spec: RunSpec) -> str:
    """What lists call the policy a run starts from."""
    policy = spec.policy
    if isinstance(policy, HubPolicy):
        label = policy.name
    elif isinstance(policy, FolderPolicy):
        label = Path(policy.path).name
    elif isinstance(policy, RunPolicy):
        label = run_label(policy)
    else:
        label = "tiny" if policy.cold_start else "tiny, untrained"
    return f"{label} + LoRA"[:200] if spec.lora else label[:200]


def run_label(policy: RunPolicy) -> str:
    at = "" if policy.checkpoint == FINAL else f" at step {policy.checkpoint}"
    try:
        run_id = uuid.UUID(Path(policy.folder).name)
    except ValueError:  # a folder from the command line
        return f"{Path(policy.folder).name}{at}"
    number = Run.across_teams.filter(pk=run_id).values_list("number", flat=True).first()
    return f"#{number}{at}" if number else f"{run_id}{at}"
