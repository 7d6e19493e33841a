"""Training on a dataset version: what the lab would start from and with which settings, and launching it."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.data.datasets.models import Version, VersionState
from lab.data.loop.checkpoints import START
from lab.data.loop.start_policies import FOLDER, HUB, TINY
from lab.data.loop.train_form import MATCH_PROMPTS, MOST_OVERLAP, MOST_PROMPTS, TrainForm
from lab.data.loop.train_launch import goals_of, launch_training, preflight_training
from lab.data.loop.training_goals import GOALS, TrainingGoal, explain_goal_refusal
from lab.edges.api.base import Query, RequestBody, caller_of, check_caller_permission, make_router, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.datasets import find_dataset_version
from lab.edges.api.operations.runs import Launched, answer_launch
from lab.edges.api.problems import ApiProblem, FieldProblem, field_problem, make_invalid_problem, make_validation_problem, of_spec
from lab.training.runs.models import NAME_LENGTH
from lab.training.runs.preflight import PreflightError
from lab.training.runs.problem_words import problem_of_report
from lab.training.runs.stages import merge_spec_changes
from trainers.contract.spec import FINAL, SpecError

router = make_router("Datasets and the loop")
Trainer = Literal["dpo", "kto", "orpo", "cpo", "reward", "sft", "grpo", "rloo", "online-dpo", "procedure"]
PLACES = {  # inputs of the form that stand elsewhere in the body
    "prompts": "match.prompts",
    "overlap": "match.overlap",
    "folder": "policy.folder",
    "hub": "policy.name",
    "revision": "policy.revision",
    "task": "overrides.task",
}
OF_KIND = {"run": ("run", "checkpoint"), TINY: (), FOLDER: ("folder",), HUB: ("name", "revision")}  # fields of a policy, the first of them needed
FIXED = {"policy": "policy", "dataset": "the version in the URL"}  # parts of the spec that overrides do not change, and what says them


class GoalOut(Schema):
    trainer: str
    title: str
    summary: str
    refusal: str = Field(description="Why it cannot be used with this version; empty if it can.")


class PolicyOut(Schema):
    run: UUID
    number: int = Field(description="Number of the run.")
    checkpoint: int | str = Field(description="A step, `final`, or `start` for the policy that the run started from.")
    label: str


class ChoiceOut(PolicyOut):
    answers: int = Field(description="Answers of the version for which it is the nearest policy.")
    distance: int = Field(description="Median number of optimiser steps between it and the policies that sampled the answers of its run.")
    far: int = Field(description="Answers of the version that it is far from, including those of other runs.")


class TrainingOut(Schema):
    trainer: str
    goals: list[GoalOut] = Field(description="Trainers to choose from.")
    policy: PolicyOut | None = Field(
        description="Default starting policy: the nearest to the one that sampled the rows. null if no run sampled them; then give one."
    )
    policies: list[ChoiceOut] = Field(description="Policies of the runs that sampled the rows; policies of other runs of the team can be used, too.")
    rows: int = Field(description="Rows to train on.")
    marked_rows: int = Field(description="Those of them with marked spans, which `span_credit` uses as token weights.")
    warnings: list[str] = Field(description="Warnings to consider before the launch.")
    spec: dict[str, Any] | None = Field(description="The spec that would be launched, with names instead of the lab's paths; null without a policy.")


class PolicyIn(RequestBody):
    """A policy of a run unless `kind` says otherwise; `tiny` is the built-in one after its cold start."""

    kind: Literal["run", "tiny", "folder", "hub"] = "run"
    run: UUID | None = Field(None, description="For `run`: the id of one of the team's runs.")
    checkpoint: int | str = Field("final", description="For `run`: a step, `final`, or `start` for the policy that the run started from.")
    folder: str = Field("", max_length=255, description="For `folder`: the name of a folder of the lab's policies.")
    name: str = Field("", max_length=200, description="For `hub`: the id of a model.", examples=["Qwen/Qwen2.5-0.5B-Instruct"])
    revision: str = Field("main", max_length=200, description="For `hub`: a branch, a tag or a commit.")


class MatchWanted(RequestBody):
    prompts: int = Field(MATCH_PROMPTS, ge=1, le=MOST_PROMPTS, description="Maximum number of held-out prompts.")
    overlap: int = Field(1, ge=1, le=MOST_OVERLAP, description="Labels per prompt.")
    labellers: list[int] = Field([], max_length=200, description="Ids of the assigned people; empty: everyone who may label.")


class TrainIn(RequestBody):
    """Omitted fields get the same defaults as on the version's page."""

    trainer: Trainer | None = Field(None, description="Default: the first that can be used with the version's form.", examples=["dpo"])
    policy: PolicyIn | None = Field(
        None, description="Starting policy; default: the one that sampled the rows. Required if no run of the team sampled them (imports)."
    )
    name: str = Field("", max_length=NAME_LENGTH)
    learning_rate: float | None = None
    max_steps: int | None = Field(None, examples=[60])
    batch: int | None = Field(None, description="Rows per optimiser step.")
    evaluation: int | None = Field(None, description="Number of held-out prompts to evaluate.")
    span_credit: bool = Field(False, description="Use the rows' marked spans as token weights (method span-credit); for dpo and sft.")
    overrides: dict[str, Any] = Field({}, description="Further changes to the spec, as for a launch.", examples=[{"training": {"beta": 0.2}}])
    match: MatchWanted | None = Field(None, description="Start a blind comparison when the run has finished: are its answers better than before?")
    check: bool = Field(True, description="false skips the trainer's preflight check, which takes a few seconds.")


@router.get(
    "/versions/{int:version_id}/training", auth=require_permission("runs.launch"), response=TrainingOut, summary="Preview training on a version"
)
def get_training(
    request: HttpRequest,
    version_id: int,
    trainer: Trainer | None = Query(None, description="Default: the first that can be used with the version's form.", examples=["dpo"]),
) -> object:
    """Returns the policy that sampled its rows, the settings and the complete spec, without launching anything."""
    version = find_dataset_version(request, version_id)
    if reason := explain_unready_version(version):
        raise ApiProblem("missing", reason)
    form = TrainForm(version, goal_of(version, trainer))
    candidate = form.chosen
    return {
        "trainer": form.goal.trainer,
        "goals": [
            {**{name: getattr(goal, name) for name in ("trainer", "title", "summary")}, "refusal": explain_goal_refusal(goal, version)}
            for goal in GOALS
        ],
        "policy": policy_shown(candidate) if candidate else None,
        "policies": [
            {**policy_shown(choice.candidate), **{name: getattr(choice, name) for name in ("answers", "distance", "far")}} for choice in form.choices
        ],
        "rows": form.rows,
        "marked_rows": form.marked_rows,
        "warnings": form.warnings,
        "spec": form.spec(),
    }


@router.post(
    "/versions/{int:version_id}/train", auth=require_permission("runs.launch"), response={201: Launched, 200: Launched}, summary="Train on a version"
)
def train_version(request: HttpRequest, version_id: int, given: TrainIn, key: Key) -> object:
    """Trains the chosen trainer on its rows, from the policy that sampled them unless `policy` gives another.
    A folder or hub policy is evaluated on the task of the run that sampled the rows, or else on the first task of the catalogue, unless
    `overrides.task` sets another; its first evaluation is the other side of a `match`.
    A `match` also requires the scope `label.lead` and a personal token, because a queue needs a responsible person.
    """
    caller, version = caller_of(request), find_dataset_version(request, version_id)
    if reason := explain_unready_version(version):
        raise ApiProblem("conflict", reason)
    form = form_of(version, given)
    match_by = None
    if given.match is not None:
        check_caller_permission(caller, "label.lead")
        match_by = caller.person("a queue needs a responsible person")
    spec = spec_of(form, given)
    warnings = [FieldProblem(field="policy", message=warning) for warning in form.warnings]

    def act() -> list[Any]:
        if given.check:
            warnings.extend(check_training_form(form, spec))
        try:
            return [launch_training(form, caller.user, spec, match_by).pk]
        except SpecError as error:
            raise of_form(form, error) from None

    return answer_launch(request, *run_idempotent_action(request, caller, key, act), warnings)


def explain_unready_version(version: Version) -> str:
    """Why nothing can be trained on the version; empty when something can."""
    if version.state != VersionState.READY:
        return f"{version} is {version.state}: it must be ready for training."
    if not version.train_file:
        return f"{version} has no rows to train on."
    return "" if goals_of(version) else "The lab cannot train on marked steps. Export it for a process reward model."


def goal_of(version: Version, trainer: str | None) -> TrainingGoal:
    """Raises ApiProblem for one that does not go with the version."""
    if trainer is None:
        return goals_of(version)[0]
    goal = next(candidate for candidate in GOALS if candidate.trainer == trainer)
    if reason := explain_goal_refusal(goal, version):
        raise make_invalid_problem("trainer", reason, f"choose {' or '.join(candidate.trainer for candidate in goals_of(version))}")
    return goal


def form_of(version: Version, given: TrainIn) -> TrainForm:
    """The page's form, filled in with what was sent. Raises ApiProblem."""
    data = {name: str(value) for name in ("learning_rate", "max_steps", "batch", "evaluation") if (value := getattr(given, name)) is not None}
    if given.name.strip():
        data["name"] = given.name
    if given.policy is not None:
        data |= inputs_of(given.policy)
    if given.span_credit:
        data["span_credit"] = "on"
    form = TrainForm(version, goal_of(version, given.trainer), data)
    if given.learning_rate is not None and not form.goal.learns:
        raise make_invalid_problem("learning_rate", f"{form.goal.trainer} changes no weights", "remove it")
    if given.policy is None and form.best is None:
        fix = "give one: {run, checkpoint}, {kind: folder, folder} or {kind: hub, name}"
        raise make_invalid_problem("policy", "no policy of your team sampled the rows of this version, so there is no default", fix)
    if given.span_credit and not form.wants_spans:
        reason = "no row of this version has marked spans" if form.goal.reads_spans else f"{form.goal.trainer} does not use marked spans"
        raise make_invalid_problem("span_credit", reason, "remove it")
    if given.match is None:
        return form
    if not form.goal.compares:
        raise make_invalid_problem("match", f"{form.goal.trainer} makes no policy that writes other answers", "remove it")
    form.data = {**data, "match": "on", "prompts": str(given.match.prompts), "overlap": str(given.match.overlap)}
    known = {user.pk for user in form.labellers}
    if strangers := [key for key in given.match.labellers if key not in known]:
        raise make_invalid_problem(
            "match.labellers", f"no member with the id {strangers[0]} may label in your team", "use ids from the list of members"
        )
    form.assigned = tuple(dict.fromkeys(given.match.labellers))
    return form


def inputs_of(policy: PolicyIn) -> dict[str, str]:
    """The inputs of the page's form that name the policy. Raises ApiProblem."""
    own = OF_KIND[policy.kind]
    if own and not getattr(policy, own[0]):
        raise make_invalid_problem(f"policy.{own[0]}", f"is required for a policy of the kind {policy.kind}", f"give {own[0]}, or another kind")
    if foreign := sorted(policy.model_fields_set - {"kind", *own}):
        raise make_validation_problem(
            FieldProblem(field=f"policy.{name}", message=f"cannot be used with the kind {policy.kind}", fix="remove it") for name in foreign
        )
    if policy.kind == TINY:
        return {"policy": TINY}
    if policy.kind == FOLDER:
        return {"policy": FOLDER, "folder": policy.folder}
    if policy.kind == HUB:
        return {"policy": HUB, "hub": policy.name, "revision": policy.revision}
    if isinstance(policy.checkpoint, str) and policy.checkpoint not in (START, FINAL):
        raise make_invalid_problem("policy.checkpoint", f"“{policy.checkpoint[:40]}” is not a checkpoint", f"give a step, {START} or {FINAL}")
    return {"policy": f"{policy.run}:{policy.checkpoint}"}


def spec_of(form: TrainForm, given: TrainIn) -> dict[str, Any]:
    """Raises ApiProblem with everything that has to change."""
    spec, changes = form.spec(), given.overrides
    if spec is None:
        raise make_validation_problem(FieldProblem(field=PLACES.get(name, name), message=words) for name, words in form.errors.items())
    fixed = [FieldProblem(field=f"overrides.{part}", message=f"is set by {who}", fix="remove it") for part, who in FIXED.items() if part in changes]
    training = changes.get("training")
    if isinstance(training, dict) and training.get("trainer", form.goal.trainer) != form.goal.trainer:
        fixed.append(FieldProblem(field="overrides.training.trainer", message="is set by trainer", fix="change trainer instead"))
    if fixed:
        raise make_validation_problem(fixed)
    try:
        spec = merge_spec_changes(spec, changes)
    except SpecError as error:
        raise of_spec(error, "overrides") from None
    evaluation = spec.get("evaluation")
    measured = evaluation.get("prompts") if isinstance(evaluation, dict) else None
    if given.match is not None and not measured:
        raise make_invalid_problem(
            "overrides.evaluation.prompts", "a match needs held-out prompts", "set held-out prompts above 0, or remove the match"
        )
    return spec


def check_training_form(form: TrainForm, spec: dict[str, Any]) -> list[FieldProblem]:
    """The warnings of the trainers' check. Raises ApiProblem with everything that would be refused."""
    try:
        report = preflight_training(form, spec)
    except SpecError as error:
        raise of_form(form, error) from None
    except PreflightError as error:
        raise ApiProblem("away", f"The pre-launch check failed to run: {error}. Send check: false to launch without it.") from None
    if problems := [make_training_problem(form, entry) for entry in report.get("problems", [])]:
        raise make_validation_problem(problems)
    return [make_training_problem(form, entry) for entry in report.get("warnings", [])]


def of_form(form: TrainForm, error: SpecError) -> ApiProblem:
    return make_validation_problem(field_problem(problem, locate_body_field(form, problem.field)) for problem in error.problems)


def make_training_problem(form: TrainForm, entry: dict[str, Any]) -> FieldProblem:
    return field_problem(problem_of_report(entry), locate_body_field(form, entry["field"]))


def locate_body_field(form: TrainForm, field: str) -> str:
    """Where in the body a field of the spec stands; the rows are those of the version in the address."""
    if field.startswith("dataset."):
        return "version_id"
    name = form.input_of(field)
    return PLACES.get(name, name) if name and name != "task" else f"overrides.{field}"


def policy_shown(candidate: Any) -> dict[str, Any]:
    return {"run": candidate.run.pk, "number": candidate.run.number, "checkpoint": candidate.checkpoint, "label": candidate.label}
