"""Training on a dataset version: what the lab would start from and with which settings, and launching it."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.api.base import Given, Query, caller_of, check, needs, noun
from lab.api.idempotency import Key, once
from lab.api.operations.datasets import version_of
from lab.api.operations.runs import Launched, answer
from lab.api.problems import ApiProblem, FieldProblem, invalid, of_spec, refused
from lab.datasets.models import Version, VersionState
from lab.loop.checkpoints import START
from lab.loop.train_form import GOALS, MATCH_PROMPTS, MOST_OVERLAP, MOST_PROMPTS, Goal, TrainForm, input_of, refusal
from lab.loop.train_launch import examined, goals_of, launched
from lab.runs.launch import NAME_LENGTH
from lab.runs.preflight import PreflightError
from lab.runs.stages import merged
from trainers.spec import FINAL, SpecError

router = noun("Datasets and the loop")
Trainer = Literal["dpo", "kto", "reward", "sft"]
PLACES = {"prompts": "match.prompts", "overlap": "match.overlap"}  # inputs of the form that stand elsewhere in the body
FIXED = {"policy": "policy", "dataset": "the version in the address"}  # parts of the spec that overrides do not change, and what says them


class GoalOut(Schema):
    trainer: str
    title: str
    summary: str
    refusal: str = Field(description="Why it does not go with this version; empty when it does.")


class PolicyOut(Schema):
    run: UUID
    number: int = Field(description="Of the run.")
    checkpoint: int | str = Field(description="A step, `final`, or `start` for the policy that the run began with.")
    label: str


class ChoiceOut(PolicyOut):
    answers: int = Field(description="Answers of the version to which it is the nearest policy.")
    distance: int = Field(description="Median of the optimiser steps between it and the policy that sampled an answer of its run.")
    far: int = Field(description="Answers of the version that it is far from, those of other runs included.")


class TrainingOut(Schema):
    trainer: str
    goals: list[GoalOut] = Field(description="What can be trained.")
    policy: PolicyOut | None = Field(description="What it starts from unless you choose: the nearest to what sampled the rows.")
    policies: list[ChoiceOut] = Field(description="Policies of the runs that sampled the rows; any other run of the team can be named, too.")
    rows: int = Field(description="To train on.")
    warnings: list[str] = Field(description="What to think about before it is launched.")
    spec: dict[str, Any] | None = Field(description="What would be launched, with names where the lab holds paths; null without a policy.")


class PolicyIn(Given):
    run: UUID
    checkpoint: int | str = Field("final", description="A step, `final`, or `start` for the policy that the run began with.")


class MatchWanted(Given):
    prompts: int = Field(MATCH_PROMPTS, ge=1, le=MOST_PROMPTS, description="Held-out prompts at most.")
    overlap: int = Field(1, ge=1, le=MOST_OVERLAP, description="Labels a prompt gets.")
    labellers: list[int] = Field([], max_length=200, description="Ids of those who are assigned; empty: everybody who may label.")


class TrainIn(Given):
    """What is left out is chosen as the page of the version does."""

    trainer: Trainer | None = Field(None, description="The first that goes with the version's form when left out.", examples=["dpo"])
    policy: PolicyIn | None = Field(None, description="What it starts from.")
    name: str = Field("", max_length=NAME_LENGTH)
    learning_rate: float | None = None
    max_steps: int | None = Field(None, examples=[60])
    batch: int | None = Field(None, description="Rows in an optimiser step.")
    evaluation: int | None = Field(None, description="Held-out prompts that are measured.")
    overrides: dict[str, Any] = Field({}, description="Further changes to the spec, as for a launch.", examples=[{"training": {"beta": 0.2}}])
    match: MatchWanted | None = Field(None, description="Once it has finished, ask people blindly whether its answers are better than before.")
    check: bool = Field(True, description="False leaves out the trainers' own check, which takes seconds.")


@router.get("/versions/{int:version_id}/training", auth=needs("runs.launch"), response=TrainingOut, summary="What training on a version would do")
def get_training(
    request: HttpRequest,
    version_id: int,
    trainer: Trainer | None = Query(None, description="The first that goes with the version's form when left out.", examples=["dpo"]),
) -> object:
    """The policy that sampled its rows, the settings, and the complete spec, before anything is launched."""
    version = version_of(request, version_id)
    if reason := unready(version):
        raise ApiProblem("missing", reason)
    form = TrainForm(version, goal_of(version, trainer))
    candidate = form.chosen
    return {
        "trainer": form.goal.trainer,
        "goals": [{**{name: getattr(one, name) for name in ("trainer", "title", "summary")}, "refusal": refusal(one, version)} for one in GOALS],
        "policy": policy_shown(candidate) if candidate else None,
        "policies": [
            {**policy_shown(one.candidate), **{name: getattr(one, name) for name in ("answers", "distance", "far")}} for one in form.choices
        ],
        "rows": form.rows,
        "warnings": form.warnings,
        "spec": form.spec(),
    }


@router.post("/versions/{int:version_id}/train", auth=needs("runs.launch"), response={201: Launched, 200: Launched}, summary="Train on a version")
def train_version(request: HttpRequest, version_id: int, given: TrainIn, key: Key) -> object:
    """DPO, KTO, a reward model or SFT on its rows, from the policy that sampled them unless another is named.
    A `match` needs the scope `label.lead`, too, and a person's token: somebody answers for the queue.
    """
    caller, version = caller_of(request), version_of(request, version_id)
    if reason := unready(version):
        raise ApiProblem("conflict", reason)
    form = form_of(version, given)
    match_by = None
    if given.match is not None:
        check(caller, "label.lead")
        match_by = caller.person("somebody answers for a queue")
    spec = spec_of(form, given)
    warnings = [FieldProblem(field="policy", message=one) for one in form.warnings]

    def act() -> list[Any]:
        if given.check:
            warnings.extend(checked(form, spec))
        try:
            return [launched(form, caller.user, spec, match_by).pk]
        except SpecError as error:
            raise of_form(error) from None

    return answer(request, *once(request, caller, f"train {version.pk}", key, act), warnings)


def unready(version: Version) -> str:
    """Why nothing can be trained on the version; empty when something can."""
    if version.state != VersionState.READY:
        return f"{version} is {version.state}: it can be trained on once it is ready."
    if not version.train_file:
        return f"{version} has no rows to train on."
    return "" if goals_of(version) else "The lab trains on no version of marked steps. Export it for a process reward model."


def goal_of(version: Version, trainer: str | None) -> Goal:
    """Raises ApiProblem for one that does not go with the version."""
    if trainer is None:
        return goals_of(version)[0]
    goal = next(one for one in GOALS if one.trainer == trainer)
    if reason := refusal(goal, version):
        raise invalid("trainer", reason, f"choose {' or '.join(one.trainer for one in goals_of(version))}")
    return goal


def form_of(version: Version, given: TrainIn) -> TrainForm:
    """The page's form, filled in with what was sent. Raises ApiProblem."""
    data = {name: str(value) for name in ("learning_rate", "max_steps", "batch", "evaluation") if (value := getattr(given, name)) is not None}
    if given.name.strip():
        data["name"] = given.name
    if given.policy is not None:
        if isinstance(given.policy.checkpoint, str) and given.policy.checkpoint not in (START, FINAL):
            raise invalid("policy.checkpoint", f"“{given.policy.checkpoint[:40]}” is no checkpoint", f"give a step, {START} or {FINAL}")
        data["policy"] = f"{given.policy.run}:{given.policy.checkpoint}"
    form = TrainForm(version, goal_of(version, given.trainer), data)
    if given.match is None:
        return form
    if not form.goal.answers:
        raise invalid("match", "a reward model writes no answers that people could compare", "leave it out")
    form.data = {**data, "match": "on", "prompts": str(given.match.prompts), "overlap": str(given.match.overlap)}
    known = {one.pk for one in form.labellers}
    if strangers := [one for one in given.match.labellers if one not in known]:
        raise invalid("match.labellers", f"nobody of the id {strangers[0]} may label in your team", "take ids from the list of members")
    form.assigned = tuple(dict.fromkeys(given.match.labellers))
    return form


def spec_of(form: TrainForm, given: TrainIn) -> dict[str, Any]:
    """Raises ApiProblem with everything that has to change."""
    spec, changes = form.spec(), given.overrides
    if spec is None:
        raise refused(FieldProblem(field=PLACES.get(name, name), message=words) for name, words in form.errors.items())
    fixed = [
        FieldProblem(field=f"overrides.{part}", message=f"is what {who} says", fix="leave it out") for part, who in FIXED.items() if part in changes
    ]
    training = changes.get("training")
    if isinstance(training, dict) and training.get("trainer", form.goal.trainer) != form.goal.trainer:
        fixed.append(FieldProblem(field="overrides.training.trainer", message="is what trainer says", fix="give trainer instead"))
    if fixed:
        raise refused(fixed)
    try:
        spec = merged(spec, changes)
    except SpecError as error:
        raise of_spec(error, "overrides") from None
    evaluation = spec.get("evaluation")
    measured = evaluation.get("prompts") if isinstance(evaluation, dict) else None
    if given.match is not None and not measured:
        raise invalid("overrides.evaluation.prompts", "a match compares answers to held-out prompts", "measure some, or leave the match out")
    return spec


def checked(form: TrainForm, spec: dict[str, Any]) -> list[FieldProblem]:
    """The warnings of the trainers' check. Raises ApiProblem with everything that would be refused."""
    try:
        report = examined(form, spec)
    except SpecError as error:
        raise of_form(error) from None
    except PreflightError as error:
        raise ApiProblem("away", f"The check before the launch could not be made: {error}. Send check: false to launch without it.") from None
    if problems := [found(one) for one in report.get("problems", [])]:
        raise refused(problems)
    return [found(one) for one in report.get("warnings", [])]


def of_form(error: SpecError) -> ApiProblem:
    return refused(FieldProblem(field=place(one.field), message=one.message, fix=one.fix or "") for one in error.problems)


def found(one: dict[str, Any]) -> FieldProblem:
    return FieldProblem(field=place(one["field"]), message=one["message"], fix=one.get("fix") or "")


def place(field: str) -> str:
    """Where in the body a field of the spec stands."""
    return input_of(field) or f"overrides.{field}"


def policy_shown(one: Any) -> dict[str, Any]:
    return {"run": one.run.pk, "number": one.run.number, "checkpoint": one.checkpoint, "label": one.label}
