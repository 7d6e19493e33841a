"""The launch form: what its inputs show, and the specs they stand for. The specs are checked by ``launch.check`` and the trainers' preflight."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from django.conf import settings
from django.forms import BoundField, CheckboxInput, HiddenInput, TextInput
from django.forms import Select as PlainSelect
from django.utils.html import format_html

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts import projects
from lab.teams.accounts.models import Project, Team
from lab.training.catalog.catalog import Catalog
from lab.training.runs import drafts, placement, references, team_tasks
from lab.training.runs.drafts import Draft, Spec
from lab.training.runs.form_parts import PolicyForm, SaveForm, Stage, names_in
from lab.training.runs.models import Run
from lab.training.runs.more_rewards import ColumnForm, MoreRewards
from lab.training.runs.placement import Place
from lab.training.runs.problem_words import format_problem_sentence
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_fields import NO_AUTOFILL, ChoiceField, SwitchField, TextField
from lab.training.runs.spec_form import Input, SpecForm
from lab.training.runs.task_forms import TaskForm, TaskForms
from lab.training.runs.team_tasks import TeamTask
from trainers.contract.hyperparameters import GROUP_TRAINERS
from trainers.contract.spec import FINAL, Problem

DISTILLATION = "gkd"  # the trainer with a teacher
MACHINE = ("seed", "device", "precision", "attn_implementation", "use_liger_kernel")
PARTS = {
    "limits": "Limits",
    "telemetry": "Telemetry",
    "resources": "Resources",
    "lora": "Lora",
    "human": "HumanReward",
}  # part of the spec → its model in the schema
FROZEN = "dataset.frozen"  # hidden input "<sha256>:<file>": the digest of the file that the form began with
POLICY_INPUTS = {"run": "run", "checkpoint": "run", "name": "hub", "revision": "revision", "folder": "folder", "path": "folder"}
OWN_FILE = (
    "Or a .jsonl or .parquet file of your own: prompt and completion for SFT, chosen and rejected for DPO, prompt and reference for GRPO. "
    "The lab lists the files in <code>{}</code>."
)


class LaunchForm(SpecForm):
    """A form of forms: its own fields are what all stages share, ``parts``, ``stages`` and ``tasks`` have the parameters of the schema.

    ``data``: what a browser sent; without it the form shows the draft, and of ``initial`` what is otherwise than there.
    """

    name = TextField(
        label="Name", max_length=100, widget=TextInput(NO_AUTOFILL), help_text="Shown to your team. Leave empty to use the recipe's name."
    )
    project = ChoiceField(label="Project", widget=PlainSelect)
    queue = ChoiceField(label="Queue", widget=PlainSelect)
    policy = TextField(label="Policy")
    teacher = ChoiceField(label="Teacher", widget=PlainSelect, help_text="It must have the policy's tokenizer.")
    teacher_hub = TextField(
        label="Or a model of the hub",
        widget=TextInput(NO_AUTOFILL),
        help_text="Its id, for example Qwen/Qwen2.5-1.5B-Instruct; if given, it is the teacher.",
    )
    task = TextField(label="Task")
    dataset = ChoiceField(label="Data")
    lora = SwitchField(label="LoRA adapters")
    human = SwitchField(label="Human reward")
    follows = TextField(widget=HiddenInput)  # what is to follow the run, signed (lab.training.runs.follow_ups)
    follow = SwitchField(widget=CheckboxInput({"aria-describedby": False}))  # its words stand in its label, and nothing is wrong with it

    def __init__(
        self, team: Team, catalog: Catalog, draft: Draft, data: Mapping[str, Any] | None = None, initial: Mapping[str, Any] | None = None
    ) -> None:
        self.team, self.catalog, self.draft, self.sent = team, catalog, draft, data
        machine = build_schema_fields({"properties": {key: catalog.schema["properties"][key] for key in MACHINE}})
        super().__init__(data, initial=self._build_initial() | dict(initial or {}), fields={**machine, FROZEN: TextField(widget=HiddenInput)})
        self._offer_choices()
        first = draft.stages[0][1]
        values = first | {"human": self._human_reward}
        schemas = {part: catalog.schema["$defs"][model] for part, model in PARTS.items()}
        self.parts = {part: SpecForm(data, part, values.get(part), build_schema_fields(schema)) for part, schema in schemas.items()}
        self.stages = [Stage(catalog, number, title, data, spec) for number, (title, spec) in enumerate(draft.stages)]
        self.source = PolicyForm(data, first.get("policy") or {}, lambda: self.run_choices, lambda: [(name, name) for name in self.folder_choices])
        self.more = MoreRewards(team, data, next((spec["rewards"] for _, spec in draft.stages if spec.get("rewards")), []))
        self.save = SaveForm(data, "save", {"name": draft.saved.recipe.name} if draft.saved else None)

    @property
    def _human_reward(self) -> Spec | None:
        """The settings of the first stage in which people rank groups."""
        return next((spec["human"] for _, spec in self.draft.stages if spec.get("human")), None)

    def _build_initial(self) -> dict[str, Any]:
        """The draft's values of the form's own fields."""
        draft, first = self.draft, self.draft.stages[0][1]
        policy, dataset = first.get("policy") or {}, first.get("dataset") or {}
        kind = policy.get("kind", "tiny")
        project = placement.inherit_place(draft.clone, draft.after).project
        return {
            "name": draft.clone.name if draft.clone else draft.saved.recipe.name if draft.saved else "",
            "project": project.pk if project else "",
            "queue": self._find_initial_queue,
            "policy": "tiny-untrained" if kind == "tiny" and not policy.get("cold_start", True) else kind,
            "task": self._initial_task,
            **write_teacher_inputs(next((spec["teacher"] for _, spec in draft.stages if spec.get("teacher")), {})),
            "dataset": dataset.get("file", ""),
            FROZEN: f"{dataset['sha256']}:{dataset.get('file', '')}" if dataset.get("sha256") else "",
            "lora": bool(first.get("lora")),
            "human": bool(self._human_reward),
            **{key: first[key] for key in MACHINE if key in first},
        }

    @property
    def _initial_task(self) -> str:
        """The key of the draft's task; of a version that is gone nothing."""
        task = self.draft.stages[0][1].get("task") or {}
        if not task.get("file"):
            return str(task.get("name", ""))
        return self.drafted_task.key if self.drafted_task else ""

    @cached_property
    def drafted_task(self) -> TeamTask | None:
        """The team's own task that the draft names, which may be an old version."""
        return team_tasks.find_spec_task(self.team, self.draft.stages[0][1])

    def _find_initial_queue(self) -> str:
        """The queue of the run that it comes from, else the usual one."""
        before = placement.inherit_place(self.draft.clone, self.draft.after).queue
        return before if before in self.queue_choices else (self.queue_choices or [before])[0]

    def _offer_choices(self) -> None:
        """What can be chosen now, asked for only where it is shown."""
        fields: Any = self.fields
        fields["name"].widget.attrs["placeholder"] = self.draft.recipe
        fields["project"].choices = lambda: [("", "No project"), *((project.pk, project.name) for project in self.project_choices)]
        fields["queue"].choices = lambda: (
            [(queue, queue) for queue in self.queue_choices] or [(self.values["queue"], f"{self.values['queue']} (not allowed)")]
        )
        fields["teacher"].choices = lambda: [
            ("tiny", "Tiny, cold-started"),
            *((f"run:{value}", label) for value, label in self.run_choices),
            *((f"folder:{name}", f"Folder {name}") for name in self.folder_choices),
        ]
        fields["dataset"].choices = lambda: [("", "Generated by the task"), *((name, name) for name in self.dataset_choices)]
        fields["dataset"].help_text = format_html(OWN_FILE, references.datasets_of(self.team))

    # What the page shows.

    @property
    def nested(self) -> list[SpecForm]:
        stages = [form for stage in self.stages for form in (stage.training, stage.evaluation, stage.stack, *stage.stack.nested)]
        return [self.source, self.save, *self.parts.values(), *stages, *self.tasks, *self.more.nested]

    @property
    def frozen(self) -> BoundField:
        return self[FROZEN]

    @property
    def machine(self) -> list[BoundField]:
        return [self[key] for key in MACHINE]

    @property
    def samples_groups(self) -> bool:
        """Whether a stage has groups that people can be asked about."""
        return any(stage.trainer in GROUP_TRAINERS for stage in self.stages)

    @property
    def takes_file(self) -> bool:
        """Whether a file of one's own can be chosen: of a chain one does for all stages that learn from preference pairs."""
        return not self.draft.is_chain or all(stage.trainer in ("sft", "dpo", "reward") for stage in self.stages)

    @property
    def learns_from_teacher(self) -> bool:
        """Whether a stage learns from a teacher."""
        return any(stage.trainer == DISTILLATION for stage in self.stages)

    @cached_property
    def task_forms(self) -> TaskForms:
        own = {task.key: task for task in ([self.drafted_task] if self.drafted_task else []) + self.team_tasks}
        return TaskForms(self.catalog, self.sent, self.draft.stages[0][1].get("task") or {}, own, self.drafted_task)

    @property
    def tasks(self) -> list[TaskForm]:
        return self.task_forms.list_all()

    @property
    def listed_tasks(self) -> list[TaskForm]:
        """What is offered at once: a chosen world, the team's own tasks, and those of one turn or one tool."""
        return sorted((task for task in self.tasks if not task.is_world or task is self.chosen_task), key=lambda task: not task.is_world)

    @property
    def folded_worlds(self) -> list[TaskForm]:
        """The other worlds: too many to stand between the tasks."""
        return [task for task in self.tasks if task.is_world and task is not self.chosen_task]

    @cached_property
    def team_tasks(self) -> list[TeamTask]:
        """The newest versions, and the one that is chosen."""
        listed = team_tasks.list_team_tasks(self.team)
        key = str(self.sent.get("task", "") if self.sent else self.initial.get("task", ""))
        also = team_tasks.find_team_task(self.team, key) if key.startswith(team_tasks.VERSION) and all(key != one.key for one in listed) else None
        return [also, *listed] if also else listed

    @property
    def chosen_task(self) -> TaskForm | None:
        return self.task_forms.find(self.values["task"])

    @cached_property
    def run_choices(self) -> list[tuple[str, str]]:
        return drafts.runs_with_policies(self.team, self.draft.after or self.parent)

    @cached_property
    def folder_choices(self) -> list[str]:
        return names_in(Path(settings.POLICIES_ROOT), folders=True)

    @property
    def dataset_choices(self) -> list[str]:
        return [name for name in names_in(references.datasets_of(self.team), folders=False) if name.endswith((".jsonl", ".parquet"))]

    @cached_property
    def queue_choices(self) -> list[str]:
        return placement.list_usable_queues(self.team)

    @cached_property
    def project_choices(self) -> list[Project]:
        return projects.list_project_choices(self.team, self.values["project"])

    # What it stands for.

    @property
    def place(self) -> Place:
        """Raises Refusal."""
        return Place(projects.parse_project(self.team, self.values["project"]), self.values["queue"].strip() or placement.QUEUE)

    @property
    def policy_run(self) -> tuple[str, str | int]:
        """The chosen run's id and checkpoint, as written in the input."""
        run, _, checkpoint = self.source.values["run"].partition(":")
        step = parse_whole_number(checkpoint)
        return run, step if step is not None else checkpoint or FINAL

    @cached_property
    def parent(self) -> Run | None:
        """The run whose final policy is chosen: the new run is the next stage of its chain."""
        run, checkpoint = self.policy_run
        if self.values["policy"] != "run" or checkpoint != FINAL:
            return None
        try:
            return Run.objects.of(self.team).filter(pk=uuid.UUID(run)).first()
        except ValueError:
            return None

    def list_used_parts(self, stage: Stage) -> dict[str, SpecForm]:
        """The parts that a stage's spec has: adapters and people only where they are ticked."""
        unused = {"lora": not self.values["lora"], "human": not self.values["human"] or stage.trainer not in GROUP_TRAINERS}
        return {name: part for name, part in self.parts.items() if not unused.get(name)}

    def list_columns(self, stage: Stage) -> list[ColumnForm]:
        """The reward functions besides the task's that a stage has."""
        return self.more.list_columns(shadows=stage.trainer in GROUP_TRAINERS or not self.draft.is_chain)

    def specs(self) -> list[Spec]:
        """One spec a stage, without output. Later stages have no policy: they go on from the stage before."""
        return [self._spec(stage) for stage in self.stages]

    def _spec(self, stage: Stage) -> Spec:
        spec = copy.deepcopy(stage.spec) | {key: self.values[key] for key in MACHINE} | {"recipe": self.draft.recipe} | stage.stack.read_stack()
        spec |= {"training": stage.read_training(), "evaluation": dict(stage.evaluation.values)}
        spec |= dict.fromkeys(PARTS) | {name: dict(part.values) for name, part in self.list_used_parts(stage).items()}
        spec["task"] = self.chosen_task.read_task() if self.chosen_task else {"name": self.values["task"]}
        spec["rewards"] = [column.read_column() for column in self.list_columns(stage)]
        spec["dataset"] = self._dataset_spec(spec.get("dataset"))
        spec.pop("teacher", None)
        if stage.trainer == DISTILLATION:
            spec["teacher"] = read_teacher(self.values["teacher"], self.values["teacher_hub"].strip())
        if stage.number == 0:
            spec["policy"] = self._policy_spec()
        else:
            spec.pop("policy", None)
        return spec

    def _dataset_spec(self, before: Spec | None) -> Spec | None:
        """The chosen file; with the digest it was frozen under while it is the one the form began with."""
        name = self.values["dataset"]
        if not name or not self.takes_file:
            return None
        digest, _, file = self.values[FROZEN].partition(":")
        frozen = before if before and before.get("sha256") else {"file": file, "sha256": digest}
        return {"file": name, "sha256": frozen["sha256"]} if frozen["sha256"] and frozen.get("file") == name else {"file": name}

    def _policy_spec(self) -> Spec:
        kind, typed = self.values["policy"], self.source.values
        if kind in ("tiny", "tiny-untrained"):
            return {"kind": "tiny", "cold_start": kind == "tiny"}
        if kind == "run":
            run, checkpoint = self.policy_run
            return {"kind": "run", "run": run, "checkpoint": checkpoint}
        if kind == "hub":
            return {"kind": "hub", "name": typed["hub"], "revision": typed["revision"]}
        return {"kind": "folder", "folder": typed["folder"]} if kind == "folder" else {"kind": kind}

    # What a person does to its methods.

    def add(self, name: str) -> None:
        """Puts a method into every stage whose trainer it works on. Raises Refusal when there is none."""
        problems: list[Refusal] = []
        for stage in self.stages:
            try:
                stage.stack.add(name)
            except Refusal as error:
                problems.append(error)
        if len(problems) == len(self.stages):
            raise problems[0]

    def edit(self, act: str) -> Stage:
        """Does what a button of the method section says (``0:up:rs-grpo``) and tells the stage. Raises ValueError for what no button says."""
        place, _, rest = act.partition(":")
        verb, _, name = rest.partition(":")
        wanted = parse_whole_number(place, len(self.stages) - 1)
        if wanted is None:
            raise ValueError(act)
        self.stages[wanted].stack.edit(verb, name)
        return self.stages[wanted]

    # What is wrong with it.

    def refuse_unfinished(self) -> bool:
        """Refuses what was typed to be added and was not; True when there is such text."""
        return bool([stage for stage in self.stages if stage.stack.refuse_unfinished()])  # each of them says so

    def refuse(self, number: int, problem: Problem) -> None:
        """Shows a problem with stage ``number`` at its input, or on top of the form when there is none."""
        text = format_problem_sentence(problem)
        if target := self.find_input(number, problem.field):
            target.refuse(text)
        elif text not in self.non_field_errors():
            self.add_error(None, f"{problem.field}: {text}" if problem.field else text)

    def find_input(self, number: int, field: str) -> Input | None:
        """The input a spec's field comes from; None when the form has none."""
        part, _, rest = field.partition(".")
        stage = self.stages[number]
        if part in ("base", "methods"):
            return stage.stack.find_input(field)
        if part == "policy" and rest in POLICY_INPUTS:
            is_run = rest == "folder" and self.values["policy"] == "run"
            return Input(self.source, "run" if is_run else POLICY_INPUTS[rest])
        if part == "rewards" and rest:
            place, _, path = rest.partition(".")
            columns = self.list_columns(stage)
            return columns[int(place)].find_input(path) if place.isdigit() and int(place) < len(columns) else None
        if part == "teacher":
            return Input(self, "teacher_hub" if rest in ("name", "revision") else "teacher")
        if part in ("policy", "dataset") or field in ("task.name", "task.version") or field.startswith("task.file"):
            return Input(self, part)
        form: SpecForm | None = {"training": stage.training, "evaluation": stage.evaluation, "task": self.chosen_task, **self.parts}.get(part)
        target = Input(self, field) if not rest else Input(form, rest) if form else None
        return target if target and target.name in target.form.fields else None


def write_teacher_inputs(teacher: Spec) -> dict[str, str]:
    """What the form's inputs hold for a teacher, as ``read_teacher`` reads it."""
    kind = teacher.get("kind")
    if kind == "hub":
        revision = teacher.get("revision", "main")
        return {"teacher": "tiny", "teacher_hub": teacher["name"] if revision == "main" else f"{teacher['name']}@{revision}"}
    chosen = {"run": f"run:{teacher.get('run')}:{teacher.get('checkpoint', FINAL)}", "folder": f"folder:{teacher.get('folder')}"}
    return {"teacher": chosen.get(kind or "", "tiny"), "teacher_hub": ""}


def read_teacher(chosen: str, hub: str) -> Spec:
    """``chosen``: tiny, ``run:<id>:<checkpoint>`` or ``folder:<name>``; ``hub``: an id, with a revision behind an @ if any, which goes first."""
    if hub:
        name, _, revision = hub.partition("@")
        return {"kind": "hub", "name": name, "revision": revision or "main"}
    kind, _, name = chosen.partition(":")
    if kind == "run":
        run, _, checkpoint = name.partition(":")
        step = parse_whole_number(checkpoint)
        return {"kind": "run", "run": run, "checkpoint": checkpoint or FINAL if step is None else step}
    return {"kind": "folder", "folder": name} if kind == "folder" else {"kind": "tiny"}
