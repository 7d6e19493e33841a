"""Making a queue from JSON: the fields are those of the form in the browser, and its rules decide."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import QueryDict
from django.utils import timezone
from ninja import Field

from lab.edges.api.base import RequestBody
from lab.edges.api.problems import FieldProblem, make_invalid_problem, make_validation_problem
from lab.labelling.labels import people, queue_items
from lab.labelling.labels.forms import QueueForm, RecipeForm
from lab.labelling.labels.models import Queue
from lab.labelling.labels.repeated_gold import list_gold_sources
from lab.rollouts.browse.filter_bar import components_of
from lab.rollouts.browse.regex import TooSlow
from lab.rollouts.browse.selection import Selection
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run

Number = int | None


class QueueIn(RequestBody):
    name: str = Field(max_length=100, examples=["Pairs of #2"])
    selection: str = Field("", max_length=8000, description="Rollouts, as in the browser's URL.", examples=["run=2&f=reward:ge:0.5"])
    kind: Literal["pair", "ranking", "single", "clearer"] = "pair"
    how: Literal["group", "time", "runs"] = Field("group", description="Pairs within a group, early vs. late steps, or run vs. run.")
    strategy: Literal["random", "largest-gap", "smallest-gap", "entropy", "disagreement"] = Field("random", description="Item order.")
    most: int = Field(200, description="Maximum number of items.")
    per: int = Field(1, description="Maximum number of items per group or prompt; 0: no limit.")
    phase: Literal["", "train", "heldout", "sampled"] = ""
    seed: int = 0
    early_from: Number = None
    early_to: Number = None
    late_from: Number = None
    late_to: Number = None
    a_run: Number = None
    a_step: Number = None
    b_run: Number = None
    b_step: Number = None
    gold: int = Field(0, description="Number of gold items (with a known answer) among them.")
    gold_by: str = Field("", max_length=200, description="The reward function that gives the known answer.")
    judge_by: str = Field("", max_length=200, description="Reward function that votes beside the reward where disagreement comes first.")
    gold_again: int = Field(0, description="Number of gold items of earlier queues that are asked again.")
    gold_from: Number = Field(None, description="Only gold items of this queue are asked again; null: of all.")
    guidelines: str = Field("", description="Markdown.")
    overlap: int = Field(1, description="Annotators per item.")
    lock_minutes: int = 15
    skipping: Literal["others", "drop", "never"] = "others"
    due: datetime | None = None
    people: list[int] = Field([], max_length=200, description="Ids of the assigned people; empty: everyone who may label.")
    blind: bool = True
    strength: bool = True
    rationale: Literal["none", "optional", "required"] = "optional"
    correction: bool = False
    steps: bool = False
    spans: bool = False
    reviewed: bool = False
    trust: Number = Field(None, description="Labellers with a lower percentage of correct gold items are paused.")
    trust_after: int = 10


def queue_made(team: Team, user: User, given: QueueIn) -> Queue:
    """Raises ApiProblem naming the fields."""
    selection = Selection.read(QueryDict(given.selection))
    if selection.problems:
        raise make_validation_problem(FieldProblem(field="selection", message=problem.message, fix=problem.fix) for problem in selection.problems)
    data = as_form(given)
    runs = Run.objects.of(team).only("last_rollout").order_by("-number")
    components = components_of(list(runs.filter(number__in=selection.runs) if selection.runs else runs[:20]), ())
    recipe = RecipeForm(data, components, list(Run.objects.of(team).values_list("number", flat=True)), list_gold_sources(team))
    form = QueueForm(data, team, people.list_labeller_choices(team))
    if not (recipe.is_valid() & form.is_valid()):
        raise make_validation_problem(of_form(recipe) + of_form(form))
    try:
        plan = queue_items.plan_items(team, recipe.recipe(selection))
    except TooSlow:
        raise make_invalid_problem(
            "selection", "the regular expression is too slow for the whole selection", "narrow it with a filter or words"
        ) from None
    if not len(plan):
        left = ", ".join(f"{group.count:,} {group.what}: {group.why}" for group in plan.left_out)
        raise make_invalid_problem(
            "selection", f"gives no items{f' ({left})' if left else ''}", "choose other rollouts, or another way to make items from them"
        )
    return queue_items.create_queue_from_plan(team, user, plan, {**form.fields_of_queue(), "rubric": []}, form.cleaned_data["people"])


def as_form(given: QueueIn) -> QueryDict:
    """What the browser would send."""
    data = QueryDict(mutable=True)
    for name, value in given.model_dump().items():
        if isinstance(value, bool):
            data.setlist(name, ["on"] if value else [])
        elif isinstance(value, datetime):
            data[name] = (value if value.tzinfo is None else value.astimezone(timezone.get_default_timezone())).strftime("%Y-%m-%dT%H:%M")
        elif isinstance(value, list):
            data.setlist(name, [str(entry) for entry in value])
        elif value is not None:
            data[name] = str(value)
    data["assigned_only"] = "on" if given.people else ""
    for name in [name for name in data if not data.getlist(name)]:
        del data[name]
    return data


def of_form(form: Any) -> list[FieldProblem]:
    """The errors of a Django form."""
    return [
        FieldProblem(field="the body" if name == "__all__" else name, message=str(error)) for name, errors in form.errors.items() for error in errors
    ]
