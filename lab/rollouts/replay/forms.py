"""The form of a question: which rollouts, and the recipe to put them through; its inputs and what they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Avg, Count, Max, Min, StdDev

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.lib.refusals import Refusal
from lab.rollouts.replay.batch_span import select_trained_rollouts
from lab.rollouts.replay.models import Replay
from lab.rollouts.replay.questions import spec_of
from lab.rollouts.trajectories.steps import Steps, locate_step
from lab.training.catalog.catalog import Catalog
from lab.training.runs import composer
from lab.training.runs.composer import Stack
from lab.training.runs.form_parts import task_fields
from lab.training.runs.models import Run
from lab.training.runs.schema_form import Field, as_text, from_text
from trainers.contract import stacking
from trainers.contract.spec import Problem, SpecError, parse_spec

STAGE = 0  # the method section is that of a launch form with one stage
TRAINER = "grpo"
REPLAYED = frozenset({"rewards", "advantages", "token_weights"})  # hooks
HIDDEN = "It needs hidden states of the policy, which are not stored, so it cannot be replayed: remove it."


@dataclass(frozen=True)
class GroupChoice:
    number: int
    count: int
    reward: float | None
    flat: bool  # every member has the same reward


class QuestionForm:
    """``values``: the text of every input, from the browser, from an earlier question or from the run. ``errors``: input -> what is wrong."""

    def __init__(self, run: Run, catalog: Catalog, data: Mapping[str, str] | None = None, earlier: Replay | None = None) -> None:
        self.run, self.catalog = run, catalog
        self.spec = dict(run.spec)
        if earlier is not None:
            self.spec |= {"base": earlier.base, "methods": earlier.methods}
        self.weights = self._weights(earlier.weights if earlier else {})
        self.values = {**self._initial(earlier), **(data or {})}
        if data is not None:
            self.values |= composer.fill_base_defaults(catalog, STAGE, TRAINER, self.values)
        self.errors: dict[str, str] = {}
        self.other_errors: list[str] = []

    def _weights(self, changed: Mapping[str, float]) -> list[Field]:
        """The inputs of the reward weights, with the run's own as their defaults."""
        task = next((task for task in self.catalog.tasks if task["name"] == self.run.task), None)
        return task_fields(task)[1] if task else []

    def _own_weight(self, made: Field) -> Any:
        own = (self.spec.get("task") or {}).get("rewards") or {}
        return own.get(made.key, made.default)

    def _initial(self, earlier: Replay | None) -> dict[str, str]:
        values = composer.build_stack_values(self.catalog, STAGE, self.spec)
        changed = earlier.weights if earlier else {}
        values |= {made.name: as_text(changed.get(made.key, self._own_weight(made))) for made in self.weights}
        if earlier is not None:
            values |= {"step": str(earlier.step), "group": "" if earlier.group is None else str(earlier.group)}
        return values

    # What the page shows.

    @property
    def stack(self) -> Stack:
        return composer.build_stack_section(self.catalog, STAGE, TRAINER, self.values, self.errors)

    @property
    def weight_fields(self) -> list[Field]:
        return [made.bound(self.values, self.errors) for made in self.weights]

    @property
    def changed_weights(self) -> int:
        return sum(self.values.get(made.name, "") != as_text(self._own_weight(made)) for made in self.weights)

    def steps(self) -> Steps:
        return locate_step(self.run, "train", parse_whole_number(self.values.get("step", ""), MAX_INTEGER))

    def groups(self, step: int | None) -> list[GroupChoice]:
        if step is None:
            return []
        rows = select_trained_rollouts(self.run).filter(step=step).values("group").order_by("group")
        facts = rows.annotate(count=Count("id"), mean=Avg("reward"), spread=StdDev("reward"), low=Min("reward"), high=Max("reward"))
        return [GroupChoice(row["group"], row["count"], row["mean"], row["low"] is not None and row["low"] == row["high"]) for row in facts]

    # What a person does.

    def edit(self, act: str) -> None:
        """Does what a button of the method section says (``0:up:rs-grpo``). Raises ValueError for what no button says."""
        place, _, rest = act.partition(":")
        verb, _, name = rest.partition(":")
        if place != str(STAGE) or verb not in ("add", "up", "down", "remove", "base"):
            raise ValueError(act)
        if verb == "add":
            self.add(self.values.get(f"{composer.make_stage_prefix(STAGE)}.add", ""))
        elif verb != "base":
            self.values |= composer.move_stack_method(STAGE, self.values, name, {"up": -1, "down": 1, "remove": 0}[verb])

    def add(self, name: str) -> None:
        try:
            self.values |= composer.add_stack_method(self.catalog, STAGE, TRAINER, self.values, name)
        except Refusal as error:
            self.errors[f"{composer.make_stage_prefix(STAGE)}.add"] = str(error)

    def question(self) -> Replay | None:
        """The question that the inputs stand for, not saved; None with ``errors`` when it cannot be asked."""
        step, group = self._place()
        if self.values.get(f"{composer.make_stage_prefix(STAGE)}.add", "").strip():
            self.errors[f"{composer.make_stage_prefix(STAGE)}.add"] = "This method has not been added yet: press Add, or clear the field."
        recipe = composer.parse_stack_inputs(self.catalog, STAGE, self.values, {**self.spec, "training": {"trainer": TRAINER}})
        base = recipe["base"] or {"name": composer.base_of(self.values, STAGE, TRAINER), "config": {}}
        weights = self._changed()
        if not self.errors:
            self._check(spec_of(self.run, base, recipe["methods"], weights))
        if self.errors or self.other_errors or step is None:
            return None
        return Replay(team=self.run.team, run=self.run, step=step, group=group, base=base, methods=recipe["methods"], weights=weights)

    def _place(self) -> tuple[int | None, int | None]:
        step = parse_whole_number(self.values.get("step", ""), MAX_INTEGER)
        if step is None or not select_trained_rollouts(self.run).filter(step=step).exists():
            near = self.steps()
            around = " and ".join(str(one) for one in dict.fromkeys((near.step, near.after)) if one is not None)
            self.errors["step"] = f"This step has no training rollouts; the nearest steps are {around}."
            return None, None
        text = self.values.get("group", "")
        if not text:
            return step, None
        group = parse_whole_number(text, MAX_INTEGER)
        if group is None or not select_trained_rollouts(self.run).filter(step=step, group=group).exists():
            self.errors["group"] = f"Step {step} has no such group: choose one from the list."
        return step, group

    def _changed(self) -> dict[str, float]:
        """Weights that are not the run's."""
        changed: dict[str, float] = {}
        for made in self.weights:
            value = from_text(made, self.values.get(made.name, ""))
            if not isinstance(value, float):
                self.errors[made.name] = f"Enter a number; the run used {as_text(self._own_weight(made))}."
            elif value != self._own_weight(made):
                changed[made.key] = value
        return changed

    @property
    def inert(self) -> list[str]:
        """Methods of the recipe that act nowhere but inside the loss or while sampling: nothing of them is replayed."""
        known = self.catalog.methods_by_name
        return [name for name in composer.names_of(self.values, STAGE) if name in known and not REPLAYED & set(known[name]["hooks"])]

    def _refuse_hidden(self) -> None:
        """What the catalogue already tells cannot be replayed."""
        for name in composer.names_of(self.values, STAGE):
            entry = self.catalog.methods_by_name.get(name, {})
            if "hidden" in entry.get("needs", ()) and REPLAYED & set(entry["hooks"]):
                self.errors.setdefault(composer.method_place(STAGE, name), HIDDEN)

    def _check(self, data: dict[str, Any]) -> None:
        self._refuse_hidden()
        try:
            spec = parse_spec(data)
            problems = stacking.check_stack(spec, self.catalog.methods_by_name).problems
        except SpecError as error:
            problems = error.problems
        for problem in problems:
            self.refuse(problem)

    def refuse(self, problem: Problem) -> None:
        """Shows a problem at its input, or on top of the form when there is none."""
        text = f"{problem.message[:1].upper()}{problem.message[1:]}{f': {problem.fix}' if problem.fix else ''}."
        place = composer.input_of(self.catalog, STAGE, TRAINER, self.values, problem.field) if problem.field.startswith(("base", "methods")) else ""
        if place:
            self.errors[place] = f"{self.errors[place]} {text}" if place in self.errors else text
        else:
            self.other_errors.append(f"{problem.field}: {text}" if problem.field else text)
