"""Launching what a train form stands for, whoever filled it in: the trainers' check, the run, and the blind match that is to follow it."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from lab.data.datasets.models import Version
from lab.data.loop.match_wish import MatchFollowUp
from lab.data.loop.train_form import TrainForm
from lab.data.loop.training_goals import GOALS, TrainingGoal, explain_goal_refusal
from lab.teams.accounts.models import User
from lab.training.runs import launch, placement, preflight
from lab.training.runs.models import Run, Status

Spec = dict[str, Any]


def goals_of(version: Version) -> list[TrainingGoal]:
    """The goals that fit the version; none for marked steps."""
    return [goal for goal in GOALS if not explain_goal_refusal(goal, version)]


def preflight_training(form: TrainForm, spec: Spec) -> dict[str, Any]:
    """The report of the trainers' own check. Raises SpecError, and PreflightError when the check breaks off."""
    parent = form.parent
    team = form.version.dataset.team
    checked = launch.check_launch_spec(team, {**spec, "output": launch.PENDING}, parent=parent)
    pending = parent is not None and parent.status != Status.FINISHED
    queue = placement.find_usual_queue(team)
    return preflight.run_preflight(checked.model_dump(mode="json"), policy_pending=pending, queue=queue, owner=f"{team.pk}")


def launch_training(form: TrainForm, user: User | None, spec: Spec, match_by: User | None) -> Run:
    """The queued run; with ``match_by`` the match follows it in that person's name. Raises SpecError."""
    team = form.version.dataset.team
    with transaction.atomic():
        destination = placement.Place(form.project, placement.find_usual_queue(team))
        run = launch.launch_run(team, user, spec, form.values["name"], parent=form.parent, place=destination)
        if match_by is not None:
            MatchFollowUp().begin(run, match_by, form.wish)
    return run
