"""Backtests: asking for one, how far it is, what it found, and the list."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.lib.refusals import InputRefusal, Refusal
from lab.rollouts.backtests.models import MOST_ROLLOUTS, Backtest
from lab.rollouts.backtests.requests import enqueue_backtest, find_step_span, prepare_backtest, start_backtest
from lab.rollouts.backtests.stored_rows import list_columns
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission, role_of
from lab.training.rewards.definition_check import refuse_wrong_definition
from lab.training.rewards.definition_form import DefinitionForm, decode_json
from lab.training.rewards.models import RewardFunction, RewardVersion
from lab.training.rewards.verbs import require_code_permission
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.models import Run
from lab.training.runs.reward_words import describe_stored_definition
from lab.training.runs.views.launch_form import token_of
from lab.training.workers.models import ANALYSIS, Worker

ROOM = {"room": "rewards"}
LISTED, OFFERED_RUNS = 100, 50


@require_safe
def list_backtests(request: LabRequest) -> HttpResponse:
    """``?function=``: of one reward function."""
    rows = select_backtests(request).select_related("run", "user", "version__function").defer("result", "definition").order_by("-created_at")
    function = None
    if request.GET.get("function"):
        key = parse_whole_number(request.GET["function"])
        function = get_object_or_404(RewardFunction.objects.of(request.team), pk=key)
        rows = rows.filter(version__function=function)
    context = {"rows": rows[:LISTED], "function": function, "may_write": has_team_permission(request, "rewards.write")}
    return render(request, "backtests/list.html", ROOM | context)


def select_backtests(request: LabRequest) -> Any:
    return Backtest.objects.of(request.team)


@dataclass
class BacktestForm:
    """Inputs: ``version`` (an id) or ``definition`` (JSON of a draft), ``run``, ``first``, ``last``, ``against``."""

    team: Team
    data: Mapping[str, str]
    version: RewardVersion | None = None
    definition: dict[str, Any] | None = None
    errors: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runs = list(Run.objects.of(self.team).listed().filter(step__gt=0).order_by("-number").only("id", "number", "name")[:OFFERED_RUNS])
        self.run = self._find_run()
        self.columns = list_columns(self.run) if self.run else []
        self.span = find_step_span(self.run) if self.run else None

    def _find_run(self) -> Run | None:
        try:
            key = uuid.UUID(self.data.get("run", ""))
        except ValueError:
            return None
        return Run.objects.of(self.team).filter(pk=key).first()

    @property
    def first(self) -> str:
        return self.data.get("first", "")

    @property
    def last(self) -> str:
        return self.data.get("last", "")

    @property
    def against(self) -> str:
        return self.data.get("against", "")

    @property
    def words(self) -> str:
        return describe_stored_definition(self.definition)

    @property
    def text(self) -> str:
        return json.dumps(self.definition)

    def read_steps(self) -> tuple[int | None, int | None]:
        found: list[int | None] = []
        for name in ("first", "last"):
            text = self.data.get(name, "").strip()
            value = parse_whole_number(text, MAX_INTEGER)
            if text and value is None:
                self.errors[name] = "Enter a whole number, or leave it empty for all."
            found.append(value)
        return found[0], found[1]

    def prepare(self, request: LabRequest) -> Backtest | None:
        """The backtest, not saved; None where something is wrong, which ``errors`` then say."""
        steps = self.read_steps()
        if self.run is None:
            self.errors["run"] = "Choose a run."
        if self.errors or self.run is None:
            return None
        assert self.definition is not None
        try:
            return prepare_backtest(self.run, request.user, self.definition, self.version, steps, self.against)
        except InputRefusal as refusal:
            self.errors |= {problem.field: f"{problem.message} {problem.fix}" for problem in refusal.problems}
            return None


@require_http_methods(["GET", "HEAD", "POST"])
def create_backtest(request: LabRequest) -> HttpResponse:
    """The form, of a version (``?version=``) or of a draft that the editor sent; ``act=start`` starts it."""
    data: Mapping[str, str] = {key: value for key, value in (request.POST or request.GET).items() if isinstance(value, str)}
    form = BacktestForm(request.team, data)
    if data.get("version"):
        key = parse_whole_number(data["version"])
        form.version = get_object_or_404(RewardVersion.objects.of(request.team).select_related("function"), pk=key)
        form.definition = form.version.definition
    elif request.method == "POST":
        form.definition = read_draft(request, data)
    else:
        return redirect("rewards")
    if request.method != "POST" or data.get("act") != "start":
        return render_form(request, form)
    backtest = form.prepare(request)
    if backtest is None:
        return render_form(request, form, 422)

    def store() -> str:
        start_backtest(backtest)
        return reverse("backtest", args=[backtest.pk])

    return redirect(act_once_per_token(request, f"backtest/{token_of(request)}", store))


def read_draft(request: LabRequest, data: Mapping[str, str]) -> dict[str, Any]:
    """The definition that a form of the editor, or this page's own form, stands for. Raises Refusal."""
    given = decode_json(data["definition"]) if "kind" not in data and "definition" in data else DefinitionForm(request.team, data).read_definition()
    if given is None:
        raise Refusal("The draft is not complete.", "Go back and correct it.", status=422)
    definition = refuse_wrong_definition(request.team, given)
    require_code_permission(role_of(request), request.team, definition)
    return definition


def render_form(request: LabRequest, form: BacktestForm, status: int = 200) -> HttpResponse:
    context = {"form": form, "most": MOST_ROLLOUTS, "token": token_of(request), "served": is_analysis_served()}
    return render(request, "backtests/new.html", ROOM | context, status=status)


def is_analysis_served() -> bool:
    return Worker.objects.serving(ANALYSIS).exists()


def get_backtest(request: LabRequest, backtest_id: uuid.UUID) -> Backtest:
    select_backtests(request).filter(pk=backtest_id).lose()
    rows = select_backtests(request).select_related("run", "team", "user", "version__function")
    backtest: Backtest = get_object_or_404(rows, pk=backtest_id)
    return backtest


@require_safe
def show_backtest(request: LabRequest, backtest_id: uuid.UUID) -> HttpResponse:
    """What it found, or how far it is; ``?part=state`` what changes while one waits."""
    backtest = get_backtest(request, backtest_id)
    since = backtest.started_at or backtest.created_at
    context = {"backtest": backtest, "seconds": (timezone.now() - since).total_seconds(), "served": not backtest.is_open or is_analysis_served()}
    if request.GET.get("part") == "state":
        if not backtest.is_open:
            return HttpResponse(headers={"HX-Refresh": "true"})
        return render(request, "backtests/backtest.html#state", context)
    context |= {"words": describe_stored_definition(backtest.definition), "may_write": has_team_permission(request, "rewards.write")}
    context |= {"result": backtest.result if backtest.readable else None}
    return render(request, "backtests/backtest.html", ROOM | context)


@require_POST
def retry_backtest(request: LabRequest, backtest_id: uuid.UUID) -> HttpResponse:
    """Asks a failed one once more."""
    backtest = get_backtest(request, backtest_id)
    if backtest.retry():
        enqueue_backtest(backtest)
    return redirect("backtest", backtest_id=backtest.pk)
