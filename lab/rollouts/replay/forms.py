"""The form of a question: which rollouts, and the recipe to put them through; its inputs and what they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Avg, Count, Max, Min, StdDev
from django.forms import BoundField

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.rollouts.replay.batch_span import select_trained_rollouts
from lab.rollouts.replay.models import Replay
from lab.rollouts.replay.questions import HIDDEN, REPLAYED, TRAINER, find_recipe_problems, needs_hidden_states
from lab.rollouts.trajectories.steps import Steps, locate_step
from lab.training.catalog.catalog import Catalog
from lab.training.runs.composer import StackForm
from lab.training.runs.models import Run
from lab.training.runs.spec_fields import TextField
from lab.training.runs.spec_form import SpecForm
from lab.training.runs.task_forms import REWARDS, TaskForm
from lab.training.runs.team_tasks import find_spec_task
from trainers.contract.spec import Problem

STAGE = 0  # the method section is that of a launch form with one stage


@dataclass(frozen=True)
class GroupChoice:
    number: int
    count: int
    reward: float | None
    flat: bool  # every member has the same reward


class QuestionForm(SpecForm):
    """``data``: what a browser sent; without it the form shows an earlier question, or the run as it was trained, at ``place`` (step and group)."""

    step = TextField()
    group = TextField()

    def __init__(
        self,
        run: Run,
        catalog: Catalog,
        data: Mapping[str, str] | None = None,
        earlier: Replay | None = None,
        place: Mapping[str, str] | None = None,
    ) -> None:
        self.run, self.catalog = run, catalog
        self.spec = dict(run.spec)
        asked = {"step": earlier.step, "group": earlier.group} if earlier else {}
        super().__init__(data, initial={**asked, **(place or {})})
        if earlier is not None:
            self.spec |= {"base": earlier.base, "methods": earlier.methods}
        self.stack = StackForm(catalog, STAGE, TRAINER, data, self.spec)
        self.weights = self._build_weights(data, earlier.weights if earlier else {})

    def _build_weights(self, data: Mapping[str, str] | None, changed: Mapping[str, float]) -> TaskForm | None:
        """The inputs of the reward weights, with the run's own where they were not changed; None for a task that is not in the catalogue."""
        team_task = find_spec_task(self.run.team, self.run.spec)
        entry = team_task.entry if team_task else next((task for task in self.catalog.tasks if task["name"] == self.run.task), None)
        own = (self.spec.get("task") or {}).get("rewards") or {}
        self.own_weights = {reward["name"]: own.get(reward["name"], reward["weight"]) for reward in entry["rewards"]} if entry else {}
        return TaskForm(entry, data, {"rewards": self.own_weights | dict(changed)}) if entry else None

    # What the page shows.

    @property
    def nested(self) -> list[SpecForm]:
        return [self.stack, *self.stack.nested, *([self.weights] if self.weights else [])]

    @property
    def weight_fields(self) -> list[BoundField]:
        return self.weights.weights if self.weights else []

    @property
    def changed_weights(self) -> int:
        return sum(bound.field.has_changed(self._own_weight(bound), bound.data) for bound in self.weight_fields)

    def _own_weight(self, bound: BoundField) -> float:
        return self.own_weights[bound.name.removeprefix(REWARDS)]

    def steps(self) -> Steps:
        return locate_step(self.run, "train", parse_whole_number(self.values["step"], MAX_INTEGER))

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
        if place != str(STAGE):
            raise ValueError(act)
        self.stack.edit(verb, name)

    def question(self) -> Replay | None:
        """The question that the inputs stand for, not saved; None with ``errors`` when it cannot be asked."""
        step, group = self._place()
        self.stack.refuse_unfinished()
        recipe = self.stack.read_stack()
        base = recipe["base"] or {"name": self.stack.base_card.name, "config": {}}
        weights = self._read_changed_weights()
        if not self.refused_count:
            self._refuse_hidden()
            for problem in find_recipe_problems(self.run, self.catalog, base, recipe["methods"], weights):
                self.refuse(problem)
        if self.refused_count or self.non_field_errors() or step is None:
            return None
        return Replay(team=self.run.team, run=self.run, step=step, group=group, base=base, methods=recipe["methods"], weights=weights)

    def _place(self) -> tuple[int | None, int | None]:
        step = parse_whole_number(self.values["step"], MAX_INTEGER)
        if step is None or not select_trained_rollouts(self.run).filter(step=step).exists():
            near = self.steps()
            around = " and ".join(str(one) for one in dict.fromkeys((near.step, near.after)) if one is not None)
            self.add_error("step", f"This step has no training rollouts; the nearest steps are {around}.")
            return None, None
        text = self.values["group"]
        if not text:
            return step, None
        group = parse_whole_number(text, MAX_INTEGER)
        if group is None or not select_trained_rollouts(self.run).filter(step=step, group=group).exists():
            self.add_error("group", f"Step {step} has no such group: choose one from the list.")
        return step, group

    def _read_changed_weights(self) -> dict[str, float]:
        """Weights that are not the run's."""
        changed: dict[str, float] = {}
        for bound in self.weight_fields:
            value, own = bound.field.clean(bound.data), self._own_weight(bound)
            if not isinstance(value, float):
                bound.form.add_error(bound.name, f"Enter a number; the run used {bound.field.prepare_value(own)}.")
            elif value != own:
                changed[bound.name.removeprefix(REWARDS)] = value
        return changed

    @property
    def inert(self) -> list[str]:
        """Methods of the recipe that act nowhere but inside the loss or while sampling: nothing of them is replayed."""
        known = self.catalog.methods_by_name
        return [name for name in self.stack.names if name in known and not REPLAYED & set(known[name]["hooks"])]

    def _refuse_hidden(self) -> None:
        """What the catalogue already tells cannot be replayed."""
        for card in self.stack.cards:
            if card.method and needs_hidden_states(card.method.data):
                card.form.add_error(None, HIDDEN)

    def refuse(self, problem: Problem) -> None:
        """Shows a problem at its input, or on top of the form when there is none."""
        text = f"{problem.message[:1].upper()}{problem.message[1:]}{f': {problem.fix}' if problem.fix else ''}."
        target = self.stack.find_input(problem.field) if problem.field.startswith(("base", "methods")) else None
        if target:
            target.refuse(text)
        else:
            self.add_error(None, f"{problem.field}: {text}" if problem.field else text)
