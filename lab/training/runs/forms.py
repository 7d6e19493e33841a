"""The launch form: what its inputs show, and the specs they stand for. The specs are checked by ``launch.check`` and the trainers' preflight."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts import projects
from lab.teams.accounts.models import Project, Team
from lab.training.catalog.catalog import Catalog
from lab.training.runs import composer, drafts, placement, references
from lab.training.runs.composer import Stack
from lab.training.runs.drafts import Draft, Spec
from lab.training.runs.form_parts import FROZEN, Stage, TaskOption, build_draft_values, machine_fields, names_in, part_fields, stage_of, task_fields
from lab.training.runs.models import Run
from lab.training.runs.placement import Place
from lab.training.runs.problem_words import format_problem_sentence
from lab.training.runs.schema_form import Field, from_text
from trainers.contract.spec import FINAL, Problem

POLICY_INPUTS = {"run": "policy.run", "checkpoint": "policy.run", "name": "policy.hub", "revision": "policy.revision", "folder": "policy.folder"}


class LaunchForm:
    """``values``: the text of every input by name, from the browser or else from the draft. ``problems`` are added by ``refuse``."""

    def __init__(self, team: Team, catalog: Catalog, draft: Draft, data: Mapping[str, str] | None = None) -> None:
        self.team, self.catalog, self.draft = team, catalog, draft
        self.initial = build_draft_values(catalog, draft) | self._initial_place()
        self.values = dict(self.initial if data is None else data)
        for stage in self._plain_stages:
            self.values |= composer.fill_base_defaults(catalog, stage.number, stage.trainer, self.values)
        self.errors: dict[str, str] = {}
        self.other_errors: list[str] = []

    @cached_property
    def _plain_stages(self) -> list[Stage]:
        return [stage_of(self.catalog, number, title, spec) for number, (title, spec) in enumerate(self.draft.stages)]

    def _bound(self, fields: list[Field]) -> list[Field]:
        return [made.bound(self.values, self.errors) for made in fields]

    @property
    def stages(self) -> list[Stage]:
        return [
            replace(stage, training=self._bound(stage.training), evaluation=self._bound(stage.evaluation), stack=self._stack(stage))
            for stage in self._plain_stages
        ]

    def _stack(self, stage: Stage) -> Stack:
        return composer.build_stack_section(self.catalog, stage.number, stage.trainer, self.values, self.errors)

    @property
    def machine(self) -> list[Field]:
        return self._bound(machine_fields(self.catalog))

    @property
    def limits(self) -> list[Field]:
        return self._bound(part_fields(self.catalog, "Limits", "limits."))

    @property
    def lora(self) -> list[Field]:
        return self._bound(part_fields(self.catalog, "Lora", "lora."))

    @property
    def human(self) -> list[Field]:
        return self._bound(part_fields(self.catalog, "HumanReward", "human."))

    @property
    def samples_groups(self) -> bool:
        """Whether a stage has groups that people can be asked about."""
        return any(stage.trainer == "grpo" for stage in self._plain_stages)

    @property
    def tasks(self) -> list[TaskOption]:
        return [self._task(task) for task in self.catalog.tasks]

    def _task(self, task: Mapping[str, Any]) -> TaskOption:
        difficulty, rewards = task_fields(task)
        chosen = self.values.get("task") == task["name"]
        weights = [(reward, made.bound(self.values, self.errors)) for reward, made in zip(task["rewards"], rewards, strict=True)]
        return TaskOption(task, chosen, difficulty.bound(self.values, self.errors), weights)

    @cached_property
    def run_choices(self) -> list[tuple[str, str]]:
        chosen = self.draft.after or self.parent
        return drafts.runs_with_policies(self.team, chosen)

    @property
    def folder_choices(self) -> list[str]:
        return names_in(Path(settings.POLICIES_ROOT), folders=True)

    @property
    def dataset_choices(self) -> list[str]:
        return [name for name in names_in(references.datasets_of(self.team), folders=False) if name.endswith((".jsonl", ".parquet"))]

    @property
    def dataset_folder(self) -> str:
        """Where people put files of their own: named after the team's number, since its address may change."""
        return str(references.datasets_of(self.team))

    def _initial_place(self) -> dict[str, str]:
        """Inputs of where the run goes: where the run is that it comes from, else the usual queue."""
        before = placement.inherit_place(self.draft.clone, self.draft.after)
        queue = before.queue if before.queue in self.queue_choices else (self.queue_choices or [before.queue])[0]
        return {"project": str(before.project.pk) if before.project else "", "queue": queue}

    @cached_property
    def queue_choices(self) -> list[str]:
        return placement.list_usable_queues(self.team)

    @property
    def project_choices(self) -> list[Project]:
        return projects.list_project_choices(self.team, self.values.get("project"))

    @property
    def place(self) -> Place:
        """Raises Refusal."""
        return Place(projects.parse_project(self.team, self.values.get("project", "")), self.values.get("queue", "").strip() or placement.QUEUE)

    @property
    def name(self) -> str:
        return self.values.get("name", "")

    @property
    def policy_run(self) -> tuple[str, str | int]:
        """The chosen run's id and checkpoint, as written in the input."""
        run, _, checkpoint = self.values.get("policy.run", "").partition(":")
        step = parse_whole_number(checkpoint)
        return run, step if step is not None else checkpoint or FINAL

    @cached_property
    def parent(self) -> Run | None:
        """The run whose final policy is chosen: the new run is the next stage of its chain."""
        run, checkpoint = self.policy_run
        if self.values.get("policy") != "run" or checkpoint != FINAL:
            return None
        try:
            return Run.objects.of(self.team).filter(pk=uuid.UUID(run)).first()
        except ValueError:
            return None

    def specs(self) -> list[Spec]:
        """One spec a stage, without output. Later stages have no policy: they go on from the stage before."""
        return [self._spec(number, copy.deepcopy(spec)) for number, (_, spec) in enumerate(self.draft.stages)]

    def _spec(self, number: int, spec: Spec) -> Spec:
        stage = self._plain_stages[number]
        spec |= {made.key: from_text(made, self._text(made)) for made in machine_fields(self.catalog)}
        spec["recipe"] = self.draft.recipe
        spec |= composer.parse_stack_inputs(self.catalog, number, self.values, spec)
        spec["training"] = {"trainer": stage.trainer} | self._read([made for made in stage.training if not self._is_untouched(made)])
        spec["evaluation"] = self._read(stage.evaluation)
        spec["limits"] = self._read(part_fields(self.catalog, "Limits", "limits."))
        spec["lora"] = self._read(part_fields(self.catalog, "Lora", "lora.")) if self.values.get("lora") else None
        asks = self.values.get("human") and stage.trainer == "grpo"
        spec["human"] = self._read(part_fields(self.catalog, "HumanReward", "human.")) if asks else None
        spec["task"] = self._task_spec()
        spec["dataset"] = self._dataset_spec(spec.get("dataset"))
        if number == 0:
            spec["policy"] = self._policy_spec()
        else:
            spec.pop("policy", None)
        return spec

    def _dataset_spec(self, before: Spec | None) -> Spec | None:
        """The chosen file; with the digest it was frozen under while it is the one the form began with."""
        name = self.values.get("dataset")
        if not name or self.draft.is_chain:
            return None
        digest, _, file = self.values.get(FROZEN, "").partition(":")
        frozen = before if before and before.get("sha256") else {"file": file, "sha256": digest}
        return {"file": name, "sha256": frozen["sha256"]} if frozen["sha256"] and frozen.get("file") == name else {"file": name}

    def _is_untouched(self, made: Field) -> bool:
        """Left out of the spec, so that a default that follows from other settings (the warm-up of a short run) does follow."""
        return self._text(made) == self.initial.get(made.name) == made.default_text

    def _text(self, made: Field) -> str:
        return self.values.get(made.name, "")

    def _read(self, fields: list[Field]) -> Spec:
        return {made.key: from_text(made, self._text(made)) for made in fields}

    def _task_spec(self) -> Spec:
        name = self.values.get("task", "")
        task = next((task for task in self.catalog.tasks if task["name"] == name), None)
        if task is None:
            return {"name": name}
        difficulty, rewards = task_fields(task)
        weights = {made.key: from_text(made, self._text(made)) for made in rewards if self._text(made) != made.default_text}
        return {"name": name, "difficulty": self._text(difficulty), "rewards": weights}

    def _policy_spec(self) -> Spec:
        kind = self.values.get("policy", "")
        if kind in ("tiny", "tiny-untrained"):
            return {"kind": "tiny", "cold_start": kind == "tiny"}
        if kind == "run":
            run, checkpoint = self.policy_run
            return {"kind": "run", "run": run, "checkpoint": checkpoint}
        if kind == "hub":
            return {"kind": "hub", "name": self.values.get("policy.hub", "").strip(), "revision": self.values.get("policy.revision", "").strip()}
        return {"kind": "folder", "folder": self.values.get("policy.folder", "")} if kind == "folder" else {"kind": kind}

    def add(self, name: str) -> None:
        """Puts a method into every stage whose trainer it works on. Raises Refusal when there is none."""
        problems: list[Refusal] = []
        for stage in self._plain_stages:
            try:
                self.values |= composer.add_stack_method(self.catalog, stage.number, stage.trainer, self.values, name)
            except Refusal as error:
                problems.append(error)
        if len(problems) == len(self._plain_stages):
            raise problems[0]

    def edit(self, act: str) -> int:
        """Does what a button of the method section says (``0:up:rs-grpo``) and tells the stage. Raises ValueError for what no button says."""
        place, _, rest = act.partition(":")
        verb, _, name = rest.partition(":")
        wanted = parse_whole_number(place, len(self._plain_stages) - 1)
        if wanted is None:
            raise ValueError(act)
        stage = self._plain_stages[wanted]
        if verb == "add":
            self._add_typed(stage)
        elif verb in ("up", "down", "remove"):
            self.values |= composer.move_stack_method(stage.number, self.values, name, {"up": -1, "down": 1, "remove": 0}[verb])
        elif verb != "base":
            raise ValueError(act)
        return stage.number

    def _add_typed(self, stage: Stage) -> None:
        try:
            self.values |= composer.add_stack_method(
                self.catalog, stage.number, stage.trainer, self.values, self.values.get(f"{composer.make_stage_prefix(stage.number)}.add", "")
            )
        except Refusal as error:
            self.errors[f"{composer.make_stage_prefix(stage.number)}.add"] = str(error)

    def refuse_unfinished(self) -> bool:
        """Refuses what was typed to be added and was not; True when there is such text."""
        places = [
            f"{composer.make_stage_prefix(stage.number)}.add"
            for stage in self._plain_stages
            if self.values.get(f"{composer.make_stage_prefix(stage.number)}.add", "").strip()
        ]
        self.errors |= dict.fromkeys(places, "This method has not been added yet: press Add, or clear the field.")
        return bool(places)

    def refuse(self, number: int, problem: Problem) -> None:
        """Shows a problem with stage ``number`` at its input, or on top of the form when there is none."""
        text = format_problem_sentence(problem)
        place = self.input_of(number, problem.field)
        if place in self.errors:
            self.errors[place] += f" {text}"
        elif place:
            self.errors[place] = text
        elif text not in self.other_errors:
            self.other_errors.append(f"{problem.field}: {text}" if problem.field else text)

    def input_of(self, number: int, field: str) -> str:
        """The name of the input a spec's field comes from; empty when the form has none."""
        part, _, rest = field.partition(".")
        if part in ("training", "evaluation"):
            name = f"stages.{number}.{field}"
        elif part == "policy":
            inputs = {"path": "policy.folder"} | POLICY_INPUTS
            name = inputs.get(rest, "policy")
            if self.values.get("policy") == "run" and rest == "folder":
                name = "policy.run"
        elif part == "task":
            name = f"task.{self.values.get('task')}.{rest}" if rest and rest != "name" else "task"
        elif part in ("base", "methods"):
            return composer.input_of(self.catalog, number, self._plain_stages[number].trainer, self.values, field)
        elif part == "dataset":
            name = "dataset"
        else:
            name = field
        return name if name in self.input_names or name in ("policy", "task", "dataset", "lora", "human") else ""

    @cached_property
    def input_names(self) -> frozenset[str]:
        return frozenset(self.initial) | frozenset(("name", *POLICY_INPUTS.values()))
