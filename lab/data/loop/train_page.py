"""From a dataset version to the next run: one page, prefilled from the policy that sampled its rows."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from lab.data.datasets.downstream import flags_of
from lab.data.datasets.models import Version, VersionState
from lab.data.loop import train_launch
from lab.data.loop.match_wish import KIND
from lab.data.loop.train_form import TrainForm
from lab.data.loop.train_launch import goals_of
from lab.data.loop.training_goals import GOALS, TrainingGoal, explain_goal_refusal
from lab.teams.accounts.requests import LabRequest
from lab.training.catalog.catalog import load_catalog
from lab.training.runs import drafts, follow_ups, preflight
from lab.training.runs.drafts import Draft
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.forms import LaunchForm
from lab.training.runs.views import launch_form
from trainers.contract.spec import Problem, SpecError


@require_http_methods(["GET", "HEAD", "POST"])
def train_on_version(request: LabRequest, version_id: int) -> HttpResponse:
    """The form (``?trainer=``); POST launches, or with ``act=all`` opens the full launch form with the same values."""
    versions = Version.objects.of(request.team).select_related("dataset__team")
    version = get_object_or_404(versions, pk=version_id)
    if not goals_of(version):  # marked steps
        context = {"room": "datasets", "version": version}
        return render(request, "loop/train_none.html", context, status=422 if request.method == "POST" else 200)
    params = request.POST if request.method == "POST" else request.GET
    goal = goal_of(version, params.get("trainer", ""))
    form = TrainForm(version, goal, launch_form.clean_form_inputs(params) if request.method == "POST" else parse_prefill_params(params))
    form.assigned = tuple(user.pk for user in form.labellers if str(user.pk) in params.getlist("labeller"))
    if request.method != "POST" or version.state != VersionState.READY or not version.train_file:
        return render_train_form(request, form)
    spec = form.spec()
    if spec is None:
        return render_train_form(request, form, status=422)
    if request.POST.get("act") == "all":
        return all_settings(request, form, spec)
    if not check_training_spec(request, form, spec):
        return render_train_form(request, form, status=422)
    try:
        return redirect(act_once_per_token(request, f"train/{launch_form.token_of(request)}", lambda: launch_run_from_form(request, form, spec)))
    except SpecError as error:
        for problem in error.problems:
            form.refuse(problem)
        return render_train_form(request, form, status=422)


def goal_of(version: Version, trainer: str) -> TrainingGoal:
    """The goal that is asked for and fits the version, else the first that does."""
    fitting = goals_of(version)
    return next((goal for goal in fitting if goal.trainer == trainer), fitting[0])


def parse_prefill_params(params: Any) -> dict[str, str] | None:
    """What an address may prefill."""
    prefilled = {name: params[name] for name in ("policy",) if name in params}
    return {**prefilled, "match": "on"} if prefilled else None


def render_train_form(request: LabRequest, form: TrainForm, status: int = 200) -> HttpResponse:
    version = form.version
    context = {
        "room": "datasets",
        "version": version,
        "form": form,
        "goals": [(goal, explain_goal_refusal(goal, version)) for goal in GOALS],
        "flags": flags_of([version]).get(version.pk, []),
        "token": launch_form.token_of(request),
    }
    return render(request, "loop/train.html", context, status=status)


def check_training_spec(request: LabRequest, form: TrainForm, spec: dict[str, Any]) -> bool:
    """Whether the trainers' own check finds nothing; what it finds stands at the inputs. A check that breaks off does not hold the launch up."""
    try:
        report = train_launch.preflight_training(form, spec)
    except SpecError as error:
        for problem in error.problems:
            form.refuse(problem)
        return False
    except preflight.PreflightError as error:
        messages.warning(request, f"The pre-launch check failed to run: {error}. The trainer checks again when it starts.")
        return True
    for item in report["problems"]:
        form.refuse(Problem(item["field"], item["value"], item["message"], item["fix"]))
    return not report["problems"]


def launch_run_from_form(request: LabRequest, form: TrainForm, spec: dict[str, Any]) -> str:
    run = train_launch.launch_training(form, request.user, spec, request.user if form.wants_match else None)
    return reverse("run", args=[run.pk])


def all_settings(request: LabRequest, form: TrainForm, spec: dict[str, Any]) -> HttpResponse:
    """The launch form of the goal's recipe with every value of this one in it, and the blind match that is to follow."""
    known = load_catalog()
    recipe = known.recipe(form.goal.recipe)
    full = drafts.complete_spec(known, {**spec, "recipe": form.goal.recipe})
    after = form.chosen.run if form.chosen else None
    draft = Draft(form.goal.recipe, f"{form.goal.title} on {form.version}", recipe["summary"], [(form.goal.title, full)], after=after)
    chosen = {"name": form.values["name"], "project": str(form.project.pk) if form.project else ""}
    wished = follow_ups.build_wish_inputs(KIND, request.team, form.wish) if form.wants_match else {}
    return launch_form.render_launch_form(request, LaunchForm(request.team, known, draft, initial=chosen | wished))
