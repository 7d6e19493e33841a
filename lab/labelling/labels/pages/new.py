"""Making a queue: one form with a preview of what it would give, from any selection of rollouts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from lab.labelling.labels import people, queue_items, rubric, samples
from lab.labelling.labels.forms import QueueForm, RecipeForm, initial_of
from lab.labelling.labels.guidelines import MOST as MOST_GUIDELINES
from lab.labelling.labels.guidelines import render_guidelines
from lab.labelling.labels.models import Kind, Queue
from lab.labelling.labels.recipe import PairSource
from lab.labelling.labels.repeated_gold import list_gold_sources
from lab.lib.costly import limit_costly_requests
from lab.lib.numbers import parse_whole_number
from lab.rollouts.browse.address import Address
from lab.rollouts.browse.filter_bar import build_filter_chips, components_of
from lab.rollouts.browse.regex import TooSlow
from lab.rollouts.browse.selection import Selection
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.models import Run
from trainers.contract.problems import Problem

SAMPLES = 3
OFFERED_RUNS = 50
TOO_SLOW = "The regular expression is too slow for the whole selection. Narrow the selection with a filter or words first."


@require_http_methods(["GET", "HEAD", "POST"])
@limit_costly_requests(lambda request: request.method == "POST" or request.GET.get("part") == "preview")
def create_queue(request: LabRequest) -> HttpResponse:
    """The form (GET, filled from the address), its preview (``part=preview``), one more question, and making the queue."""
    source = find_source_queue(request)
    data = build_recipe_data(request, request.GET, source) if request.method != "POST" else request.POST
    selection = Selection.read(QueryDict(data.get("selection", "")[:8000]))
    if request.GET.get("part") == "preview":
        return TemplateResponse(request, "labels/new.html#preview", build_queue_preview(request, recipe_form(request, data, selection), selection))
    recipe = recipe_form(request, data, selection)
    choices = people.list_labeller_choices(request.team)
    if request.method != "POST":
        form = QueueForm(None, request.team, choices, initial=build_queue_initial(request, request.GET, source, selection))
        questions = rubric.questions_of(source.rubric) if source else []
        return render_new_queue_page(request, recipe, form, questions, selection)
    form = QueueForm(request.POST, request.team, choices)
    questions = rubric.read_questions(request.POST)
    if not (recipe.is_valid() & form.is_valid()) or any(question.problems for question in questions):
        return render_new_queue_page(request, recipe, form, questions, selection, status=422)
    return save_new_queue(request, recipe, form, questions, selection)


def save_new_queue(
    request: LabRequest, recipe: RecipeForm, form: QueueForm, questions: list[rubric.RubricQuestion], selection: Selection
) -> HttpResponse:
    try:
        plan = queue_items.plan_items(request.team, recipe.recipe(selection))
    except TooSlow:
        recipe.add_error("selection", TOO_SLOW)
        return render_new_queue_page(request, recipe, form, questions, selection, status=422)
    if not len(plan):
        recipe.add_error(None, "These settings give no items. The preview lists what was excluded, and why.")
        return render_new_queue_page(request, recipe, form, questions, selection, status=422)

    def act() -> str:
        fields = {**form.fields_of_queue(), "rubric": rubric.to_stored_questions(questions)}
        queue = queue_items.create_queue_from_plan(request.team, request.user, plan, fields, form.cleaned_data["people"])
        messages.success(request, f"“{queue.name}” has {len(plan):,} items.")
        return reverse("queue", args=[queue.pk])

    return redirect(act_once_per_token(request, f"queue-new/{request.POST.get('token', '')[:64]}", act))


def find_source_queue(request: LabRequest) -> Queue | None:
    """The queue that the new one starts from (``?from=``), where the team has it."""
    key = parse_whole_number(request.GET.get("from"))
    return Queue.objects.of(request.team).filter(pk=key).first() if key and request.method != "POST" else None


def build_recipe_data(request: LabRequest, query: QueryDict, source: Queue | None) -> QueryDict:
    """What the recipe form starts with: what the address says, over what the source was made of, over the usual."""
    data = QueryDict(mutable=True)
    data.update({name: str(field.initial) for name, field in RecipeForm.base_fields.items() if field.initial is not None})
    if source:
        data.update({**QueryDict(source.selection).dict(), "kind": source.kind, "strategy": source.strategy, "selection": source.selection})
        data["seed"] = str(source.seed)
    else:
        data.update(usual_windows(request, Selection.read(query)))
    for name, value in query.items():
        if name in RecipeForm.base_fields:
            data[name] = str(value)
    if not source and "selection" not in query:
        data["selection"] = Selection.read(query).query(sort="").removeprefix("?")
    return QueryDict(data.urlencode())


def usual_windows(request: LabRequest, selection: Selection) -> dict[str, str]:
    """The first and the last third of the steps; of two runs one against the other, of one its beginning against its end."""
    runs = list(Run.objects.of(request.team).filter(number__in=selection.runs).only("number", "step").order_by("number")[:2])
    if not runs:
        return {}
    last = max(run.step for run in runs)
    windows = {"early_from": 0, "early_to": last // 3, "late_from": max(last // 3 + 1, 2 * last // 3), "late_to": max(last, last // 3 + 1)}
    sides: dict[str, int] = {"a_run": runs[0].number, "b_run": runs[-1].number}
    if len(runs) == 1 and last:
        sides |= {"a_step": 0, "b_step": last}
    return {name: str(value) for name, value in {**windows, **sides}.items()}


def build_queue_initial(request: LabRequest, query: QueryDict, source: Queue | None, selection: Selection) -> dict[str, Any]:
    """What the rest of the form starts with."""
    initial = initial_of(source) if source else {"name": usual_name(query, selection), "project": usual_project(request, selection)}
    if source:
        initial |= {"name": f"{source.name[:93]} (copy)", "due": None}
    plain = {name: value for name, value in query.items() if name in QueueForm.base_fields and name not in ("people", "due")}
    return {**initial, **plain}


def usual_project(request: LabRequest, selection: Selection) -> str:
    """Where the chosen runs are, if they are in one place."""
    projects_used = set(Run.objects.of(request.team).filter(number__in=selection.runs).values_list("project", flat=True))
    return str(projects_used.pop() or "") if len(projects_used) == 1 else ""


def usual_name(query: QueryDict, selection: Selection) -> str:
    sides = [query.get(name, "") for name in ("a_run", "b_run")]
    if query.get("how") == PairSource.RUNS and all(parse_whole_number(side) for side in sides):
        return f"#{sides[0]} against #{sides[1]}"
    runs = " and ".join(f"#{number}" for number in selection.runs[:3])
    kind = {"ranking": "Rankings", "single": "Answers", "clearer": "Clearer pairs"}.get(query.get("kind", ""), "Pairs")
    return f"{kind} of {runs}" if runs else kind


def recipe_form(request: LabRequest, data: QueryDict, selection: Selection) -> RecipeForm:
    numbers = Run.objects.of(request.team).values_list("number", flat=True)
    return RecipeForm(data, list_reward_components(request, selection), list(numbers), list_gold_sources(request.team))


def list_reward_components(request: LabRequest, selection: Selection) -> list[str]:
    runs = Run.objects.of(request.team).only("last_rollout").order_by("-number")
    return components_of(list(runs.filter(number__in=selection.runs) if selection.runs else runs[:20]), ())


def build_queue_preview(request: LabRequest, form: RecipeForm, selection: Selection) -> dict[str, Any]:
    """How many items the form would give, what is left out, and the first of them."""
    if not form.is_valid():
        return {"recipe": form}
    try:
        plan = queue_items.plan_items(request.team, form.recipe(selection))
    except TooSlow:
        return {"recipe": form, "too_slow": TOO_SLOW}
    return {"recipe": form, "plan": plan, "samples": samples.of_new(plan.items[:SAMPLES]), "noun": NOUNS[plan.recipe.kind]}


NOUNS: Mapping[str, str] = {Kind.PAIR: "pair", Kind.RANKING: "ranking", Kind.SINGLE: "answer", Kind.CLEARER: "question"}


def render_new_queue_page(
    request: LabRequest, recipe: RecipeForm, form: QueueForm, questions: list[rubric.RubricQuestion], selection: Selection, status: int = 200
) -> HttpResponse:
    address = Address(selection)
    runs = Run.objects.of(request.team).filter(last_rollout__gt=0).order_by("-number").only("number", "name")
    context = {
        "room": "label",
        "recipe": recipe,
        "form": form,
        "questions": questions,
        "question_kinds": rubric.KINDS,
        "empty_question": rubric.RubricQuestion(),
        "chips": build_filter_chips(address),
        "problems": [*selection.problems, *find_unknown_runs(request, selection)],
        "browser": reverse("rollouts") + address.url(),
        "chosen": [run for run in runs if run.number in selection.runs],
        "runs": runs[:OFFERED_RUNS],
        "token": secrets.token_urlsafe(16),
        "failed": status != 200,
    }
    return TemplateResponse(request, "labels/new.html", context, status=status)


def find_unknown_runs(request: LabRequest, selection: Selection) -> list[Problem]:
    known = set(Run.objects.of(request.team).filter(number__in=selection.runs).values_list("number", flat=True))
    return [Problem("run", str(number), f"your team has no run #{number}", "choose other runs") for number in selection.runs if number not in known]


@require_POST
def guidelines_preview(request: LabRequest) -> HttpResponse:
    """Guidelines as labellers will see them."""
    text = request.POST.get("guidelines", "")[: MOST_GUIDELINES + 1]
    return TemplateResponse(request, "labels/guidelines.html", {"guidelines": render_guidelines(text), "too_long": len(text) > MOST_GUIDELINES})
