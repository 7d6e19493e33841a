"""Reward functions: the list, the editor with its try-it box, a function with its versions and where it is used, and how versions differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.lib.diff import diff_words
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import InputRefusal, Refusal
from lab.teams.accounts.requests import LabRequest, wants_fragment
from lab.teams.accounts.roles import has_team_permission, role_of
from lab.training.rewards import verbs
from lab.training.rewards.definition_check import refuse_wrong_definition
from lab.training.rewards.definition_form import CODE, KEPT, KINDS, DefinitionForm, build_definition_inputs
from lab.training.rewards.models import RewardFunction, RewardVersion
from lab.training.rewards.try_box import TryBox
from lab.training.rewards.usage import list_uses
from lab.training.runs.models import Run
from lab.training.runs.reward_words import describe_stored_definition, write_definition_text

ROOM = {"room": "rewards"}
LISTED = 200
OFFERED_RUNS = 30


@require_safe
def list_functions(request: LabRequest) -> HttpResponse:
    rows = RewardFunction.objects.of(request.team).select_related("created_by").prefetch_related("versions")
    listed = list(rows.filter(archived_at=None).order_by("-changed_at", "-pk")[: LISTED + 1])
    shown = [(function, function.newest, describe_stored_definition(function.newest.definition)) for function in listed[:LISTED]]
    may = has_team_permission(request, "rewards.write")
    archived = list(rows.exclude(archived_at=None).order_by("-archived_at")[:LISTED])
    context = {"rows": shown, "more": len(listed) > LISTED, "may_write": may, "archived": archived}
    return render(request, "rewards/list.html", ROOM | context)


def get_team_function(request: LabRequest, reward_id: int) -> RewardFunction:
    rows = RewardFunction.objects.of(request.team).select_related("team", "created_by").prefetch_related("versions__created_by")
    function: RewardFunction = get_object_or_404(rows, pk=reward_id)
    return function


def choose_version(function: RewardFunction, number: str, usual: RewardVersion) -> RewardVersion:
    """The version of that number, where there is one."""
    wanted = parse_whole_number(number)
    return next((version for version in function.versions.all() if version.number == wanted), usual)


@require_safe
def show_function(request: LabRequest, reward_id: int) -> HttpResponse:
    """``?v=``: a version, else the newest."""
    function = get_team_function(request, reward_id)
    version = choose_version(function, request.GET.get("v", ""), function.newest)
    versions = list(function.versions.all())
    before = next((one for one in versions if one.number < version.number), None)
    context = {
        "function": function,
        "version": version,
        "versions": versions,
        "before": before,
        "words": describe_stored_definition(version.definition),
        "text": write_definition_text(version.definition),
        "uses": list_uses(function),
        "may_write": has_team_permission(request, "rewards.write"),
    }
    return render(request, "rewards/function.html", ROOM | context)


@require_safe
def show_diff(request: LabRequest, reward_id: int) -> HttpResponse:
    """``?from=&to=``: numbers of versions; without them the newest against the one before."""
    function = get_team_function(request, reward_id)
    versions = list(function.versions.all())
    new = choose_version(function, request.GET.get("to", ""), versions[0])
    old = choose_version(function, request.GET.get("from", ""), versions[min(1, len(versions) - 1)])
    spans = diff_words(write_definition_text(old.definition), write_definition_text(new.definition))
    words = [describe_stored_definition(version.definition) for version in (old, new)]
    return render(
        request, "rewards/diff.html", ROOM | {"function": function, "versions": versions, "old": old, "new": new, "spans": spans, "words": words}
    )


@require_http_methods(["GET", "HEAD", "POST"])
def create_function(request: LabRequest) -> HttpResponse:
    return show_editor(request, None)


@require_http_methods(["GET", "HEAD", "POST"])
def edit_function(request: LabRequest, reward_id: int) -> HttpResponse:
    """The form of the next version; it begins with the newest one, or with ``?v=``."""
    return show_editor(request, get_team_function(request, reward_id))


def show_editor(request: LabRequest, function: RewardFunction | None) -> HttpResponse:
    form = DefinitionForm(request.team, read_inputs(request, function))
    box = TryBox(request.team, form.data)
    status = 200
    if request.method == "POST":
        act = request.POST.get("act", "make")
        if act in ("make", "try", "backtest"):
            answer = act_on_definition(request, form, box, function, act)
            if answer is not None:
                return answer
            status = 422 if form.error_count and not wants_fragment(request) else 200  # htmx shows no part of a refusal
        else:
            form.edit(act)
            box.edit(act)
    return render_editor(request, form, box, function, status)


def read_inputs(request: LabRequest, function: RewardFunction | None) -> Mapping[str, Any]:
    if request.method == "POST":
        return {key: value for key, value in request.POST.items() if isinstance(value, str)}
    if function is None:
        return {"kind": request.GET.get("kind", ""), "from": request.GET.get("from", "")}
    version = choose_version(function, request.GET.get("v", ""), function.newest)
    return build_definition_inputs(request.team, version.definition, function)


def act_on_definition(request: LabRequest, form: DefinitionForm, box: TryBox, function: RewardFunction | None, act: str) -> HttpResponse | None:
    """Tries, saves or backtests what the form stands for; None where the form is shown again."""
    given = form.read_definition()
    if given is None:
        return None
    try:
        definition = refuse_wrong_definition(request.team, given)
        verbs.require_code_permission(role_of(request), request.team, definition)
        if act == "try":
            box.run_trial(definition)
            return None
        if act == "backtest":
            answer = redirect("backtest-new")
            answer.status_code = 307  # the same inputs, sent there
            return answer
        return save_version(request, form, function, definition)
    except InputRefusal as refusal:
        form.show(refusal)
    except Refusal as refusal:
        if act == "try":
            box.error = str(refusal)
        else:
            form.errors["name" if refusal.field == "name" else "form"] = str(refusal)
    return None


def save_version(request: LabRequest, form: DefinitionForm, function: RewardFunction | None, definition: dict[str, Any]) -> HttpResponse:
    """Raises Refusal."""
    if function is None:
        version = verbs.create_function(request.team, request.user, form.name, definition, form.note)
    elif definition == function.newest.definition and form.name != function.name:
        verbs.rename_function(function, form.name)
        messages.success(request, f"Renamed to {function.name}.")
        return redirect("reward", function.pk)
    else:
        verbs.rename_function(function, form.name)
        version = verbs.add_version(function, request.user, definition, form.note)
    messages.success(request, f"{version} is saved. Launches and tasks offer it now.")
    return redirect("reward", version.function_id)


def render_editor(request: LabRequest, form: DefinitionForm, box: TryBox, function: RewardFunction | None, status: int) -> HttpResponse:
    may_code = has_team_permission(request, verbs.CODE)
    context = {
        "form": form,
        "box": box,
        "function": function,
        "kinds": [(key, title, words) for key, (title, words) in KINDS.items() if key != CODE or may_code],
        "kept": KEPT,
        "runs": Run.objects.of(request.team).listed().filter(step__gt=0).order_by("-number").only("id", "number", "name")[:OFFERED_RUNS],
        "back": reverse("reward", args=[function.pk]) if function else reverse("rewards"),
    }
    return render(request, "rewards/editor.html", ROOM | context, status=status)


@require_POST
def archive_function(request: LabRequest, reward_id: int) -> HttpResponse:
    function = get_team_function(request, reward_id)
    verbs.archive_function(function)
    messages.success(request, f"{function} is archived: it is no longer offered. Runs and tasks keep their copies.")
    return redirect("rewards")


@require_POST
def restore_function(request: LabRequest, reward_id: int) -> HttpResponse:
    function = get_team_function(request, reward_id)
    verbs.restore_function(function)
    return redirect("reward", function.pk)
