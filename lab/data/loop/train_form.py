"""The form that makes a dataset version into a run: its inputs with their prefilled texts, and the spec they stand for."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lab.data.datasets.models import Form, Version
from lab.data.loop import checkpoints
from lab.data.loop import start_policies as starting
from lab.data.loop.checkpoints import PolicyCandidate, PolicyChoice, RunAnswers
from lab.data.loop.start_policies import StartPolicy, read_start
from lab.data.loop.training_goals import TrainingGoal
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Membership, Project, User
from lab.teams.accounts.permissions import LABELLERS
from lab.training.catalog.catalog import load_catalog
from lab.training.runs import drafts
from lab.training.runs.models import Run
from lab.training.runs.problem_words import format_problem_sentence
from trainers.contract.spans import METHOD
from trainers.contract.spec import FINAL, TINY_CONTEXT, Problem

ROUNDS, ANSWERS = 13, 64  # of a goal that changes no weights: strengths that are tried, and answers sampled with each
BATCH = 32  # rows in an optimiser step; where it samples groups, completions, GROUP to a prompt
GROUP = 8
EPOCHS = 3
LEAST_STEPS, LEAST_PAIRS = 20, 20
FAR_SHARE = 0.25  # of the answers, from which on the form warns
COMMON = (
    "task",
    "lora",
    "seed",
    "device",
    "precision",
    "attn_implementation",
    "use_liger_kernel",
)  # parts of a spec that go on from the policy's run
SHARED = ("task", "seed", "device", "precision")  # from the run that sampled the rows, where the policy is of no run
MATCH_PROMPTS, MOST_PROMPTS, MOST_OVERLAP = 50, 2000, 9
INPUTS = {
    "training.per_device_train_batch_size": "batch",
    "training.max_steps": "max_steps",
    "training.learning_rate": "learning_rate",
    "evaluation.prompts": "evaluation",
}


@dataclass
class TrainForm:
    """``values``: the text of every input by name. ``errors``: by name; what has no input is in ``other_errors``."""

    version: Version
    goal: TrainingGoal
    data: Mapping[str, str] | None = None
    assigned: tuple[int, ...] = ()  # people who are to label the match; nobody: whoever may
    errors: dict[str, str] = field(default_factory=dict)
    other_errors: list[str] = field(default_factory=list)

    @cached_property
    def values(self) -> dict[str, str]:
        return {**self.prefilled, **(self.data or {})}

    @cached_property
    def sources(self) -> list[RunAnswers]:
        return checkpoints.list_sampling_runs(self.version)

    @cached_property
    def choices(self) -> list[PolicyChoice]:
        return checkpoints.list_policy_choices(self.sources)

    @cached_property
    def elsewhere(self) -> list[tuple[str, str]]:
        """Policies of other runs, for imports and for those who know better."""
        own = {choice.candidate.value for choice in self.choices}
        return [run for run in drafts.runs_with_policies(self.version.dataset.team) if run[0] not in own]

    @cached_property
    def rows(self) -> int:
        return int(self.version.counts.get("train") or 0)

    @cached_property
    def best(self) -> PolicyCandidate | None:
        return checkpoints.suggest_start_policy(self.sources)

    @cached_property
    def prefilled(self) -> dict[str, str]:
        policy = (self.data or {}).get("policy") or (self.best.value if self.best else "")
        size = max(2, min(BATCH, self.rows)) if not self.goal.samples_groups else GROUP * max(1, min(BATCH // GROUP, self.rows))
        steps = max(LEAST_STEPS, math.ceil(EPOCHS * self.rows / (size if not self.goal.samples_groups else size // GROUP)))
        if not self.goal.learns:
            size, steps = ANSWERS, ROUNDS
        return {
            "trainer": self.goal.trainer,
            "policy": policy,
            "revision": "main",
            "task": self.sampled_task or self.tasks[0][0],
            "name": f"{self.goal.title} on {self.version}"[:100],
            "learning_rate": f"{self.usual_rate(policy):g}" if policy and self.goal.learns else "",
            "max_steps": str(steps),
            "batch": str(size),
            "evaluation": self.measured(policy),
            "prompts": str(MATCH_PROMPTS),
            "overlap": "1",
        }

    def measured(self, policy: str) -> str:
        """Held-out prompts of the run the policy is from, so that its figures can be compared."""
        run = starting.find_chosen_run(self.version.dataset.team, policy)
        own = (run.spec.get("evaluation") or {}).get("prompts") if run else None
        return str(own or 256)

    def usual_rate(self, policy: str) -> float:
        if policy in (starting.FOLDER, starting.HUB):
            return self.goal.large_rate
        run = starting.find_chosen_run(self.version.dataset.team, policy)
        own = (run.spec.get("training") or {}).get("learning_rate") if run else None
        return min(self.goal.rate, own) if isinstance(own, int | float) else self.goal.rate

    @property
    def wants_match(self) -> bool:
        return self.goal.compares and (self.data is None or "match" in self.data)

    @property
    def marked_rows(self) -> int:
        """Rows to train on that have marked spans."""
        return int((self.version.counts.get("spans") or {}).get("rows") or 0)

    @property
    def wants_spans(self) -> bool:
        return self.goal.reads_spans and self.marked_rows > 0 and "span_credit" in (self.data or {})

    @property
    def wish(self) -> dict[str, Any]:
        """The match that is to follow; only of a form whose ``spec`` was not refused."""
        numbers = {name: int(self.values[name]) for name in ("prompts", "overlap")}
        return {"version": self.version.pk, **numbers, "labellers": list(self.assigned)}

    @cached_property
    def labellers(self) -> list[User]:
        members = Membership.objects.filter(team=self.version.dataset.team, role__in=LABELLERS, active=True, user__is_active=True)
        return [member.user for member in members.select_related("user").order_by("user__email")]

    @cached_property
    def _start(self) -> StartPolicy | Refusal:
        try:
            return read_start(self.version.dataset.team, self.values)
        except Refusal as problem:
            return problem

    @property
    def start(self) -> StartPolicy | None:
        """The policy that is chosen; None while none is."""
        return self._start if isinstance(self._start, StartPolicy) else None

    @property
    def chosen(self) -> PolicyCandidate | None:
        """Where the policy that is chosen is one of a run."""
        return self.start.candidate if self.start else None

    @property
    def chosen_elsewhere(self) -> str:
        """The choice of another run's policy, where an address or a body names it itself."""
        value = self.chosen.value if self.chosen else ""
        return value if value in dict(self.elsewhere) else ""

    @property
    def tiny_context(self) -> int:
        return TINY_CONTEXT

    @property
    def folders(self) -> list[str]:
        return starting.list_policy_folders()

    @cached_property
    def sampler(self) -> Run | None:
        """The run of the lab that sampled most of the rows."""
        return next((source.run for source in self.sources if not source.run.outside), None)

    @cached_property
    def tasks(self) -> list[tuple[str, str]]:
        """``<task>:<difficulty>`` and what it is called: what a policy that is of no run can be measured on."""
        return [(f"{task['name']}:{name}", f"{task['title']}: {name}") for task in load_catalog().tasks for name in task["difficulties"]]

    @cached_property
    def sampled_task(self) -> str:
        """The task of the run that sampled the rows; empty where there is none, or it is no longer installed."""
        own = self.sampler.spec.get("task") if self.sampler else None
        text = f"{own.get('name')}:{own.get('difficulty')}" if isinstance(own, dict) else ""
        return text if text in dict(self.tasks) else ""

    @property
    def parent(self) -> Run | None:
        """The run whose final policy is chosen: the new run is the next stage of its chain."""
        policy = self.chosen.policy if self.chosen else {}
        if policy.get("kind") != "run" or policy.get("checkpoint") != FINAL:
            return None
        return starting.find_chosen_run(self.version.dataset.team, f"{policy.get('run')}:{FINAL}")

    @property
    def project(self) -> Project | None:
        """Of the dataset, else of the run it starts from."""
        start = self.chosen.run if self.chosen else None
        return self.version.dataset.project or (start.project if start else None)

    def whole(self, name: str, least: int, most: int) -> int:
        """The whole number of an input; one that is none, or out of range, is an error at its field."""
        text = self.values.get(name, "").strip()
        number = parse_whole_number(text, most, least)
        if number is not None:
            return number
        self.errors[name] = f"“{text[:40]}” is not a whole number from {least} to {most:,}."
        return least

    def spec(self) -> dict[str, Any] | None:
        """What is launched; None when inputs are wrong. A reward model is not measured: it answers nothing."""
        schedule = {"learning_rate": self.rate(), "lr_scheduler_type": "linear"} if self.goal.learns else {}
        prompts = self.whole("evaluation", 0, 100_000) if self.goal.answers else 0
        steps = self.whole("max_steps", 1, 10_000_000)
        training = {**self.goal.settings, "trainer": self.goal.trainer, "max_steps": steps, **schedule}
        if self.goal.samples_groups:
            training["num_generations"] = GROUP
        training["per_device_train_batch_size"] = self.whole("batch", 2 if self.goal.trainer == "kto" else 1, 65_536)
        if self.wants_match:
            self.whole("prompts", 1, MOST_PROMPTS)
            self.whole("overlap", 1, MOST_OVERLAP)
            if not prompts and "evaluation" not in self.errors:
                self.errors["evaluation"] = "A blind A/B needs held-out prompts: enter at least 1, or turn the blind A/B off."
        if isinstance(self._start, Refusal):
            self.errors[self._start.field] = self._start.message
        common = self.common()
        if self.errors or self.start is None:
            return None
        before = self.run_before
        spec = common | {
            "recipe": self.goal.recipe if self.goal.trainer != "sft" else drafts.CUSTOM,
            "policy": self.start.policy,
            "training": training | self.lengths(before),
            "evaluation": {**((before.spec.get("evaluation") if before else None) or {}), "prompts": prompts, "every": max(1, steps // 2)},
            "dataset": self.dataset(),
        }
        if self.goal.base:
            spec["base"] = {"name": self.goal.base}
        methods = [*self.goal.methods, *([METHOD] if self.wants_spans else [])]
        return spec | {"methods": [{"name": name} for name in methods]} if methods else spec

    @property
    def run_before(self) -> Run | None:
        """The run whose settings the new one goes on from: the policy's, else the one that sampled the rows."""
        return self.chosen.run if self.chosen else self.sampler

    def common(self) -> dict[str, Any]:
        """What the new run has in common with the run its policy is from: task, adapters, machine, and the seed that draws the held-out prompts.
        A policy of no run gets the chosen task, and what else it can share with the run that sampled the rows.
        """
        run = self.run_before
        shared = COMMON if self.chosen and self.goal.learns else SHARED  # without weights to change there are no adapters
        parts = {key: copy.deepcopy(run.spec[key]) for key in shared if run.spec.get(key) is not None} if run else {}
        if self.chosen is None:
            text = self.values["task"]
            if text not in dict(self.tasks):
                self.errors["task"] = f"There is no task “{text[:60]}”; choose one from the list."
            elif text != self.sampled_task:  # else with the weights of its rewards
                name, _, difficulty = text.partition(":")
                parts["task"] = {"name": name, "difficulty": difficulty}
        return parts

    def lengths(self, run: Run | None) -> dict[str, int]:
        """Answers as long as the run's own may be are not cut; the built-in policy reads no more than it can."""
        longest = (run.spec.get("training") or {}).get("max_completion_length") if run else None
        if not isinstance(longest, int) or longest <= 64:
            return {}
        if self.goal.form == Form.PROMPT or not self.goal.learns:
            return {"max_completion_length": longest}
        room = {"max_length": 2 * longest + 256}
        if self.start and self.start.is_built_in:
            room = {"max_length": min(TINY_CONTEXT, room["max_length"])}
        return room if self.goal.trainer == "sft" else room | {"max_completion_length": longest}

    def dataset(self) -> dict[str, str]:
        """With the digest it was frozen with, so that a trainer refuses a file that is another one by now."""
        frozen = (self.version.counts.get("sha256") or {}).get("train")
        return {"file": self.version.train_file, "sha256": frozen or hashlib.sha256(self.version.path().read_bytes()).hexdigest()}

    def rate(self) -> float:
        text = self.values.get("learning_rate", "").strip() or f"{self.usual_rate(self.values['policy']):g}"
        try:
            rate = float(text)
        except ValueError:
            rate = 0.0
        if not 0 < rate <= 1:
            self.errors["learning_rate"] = f"“{text[:40]}” is not a number above 0 and up to 1; the default is {self.goal.rate:g}."
        return rate

    def input_of(self, field: str) -> str:
        """The input that stands for a field of the spec; empty for one without."""
        kind = self.start.kind if self.start else ""
        if kind == starting.FOLDER and field in ("policy.folder", "policy.path"):
            return "folder"
        if kind == starting.HUB and field in ("policy.name", "policy.revision"):
            return "hub" if field == "policy.name" else "revision"
        if field.startswith("task.") and kind in (starting.TINY, starting.FOLDER, starting.HUB):
            return "task"
        return "policy" if field.startswith("policy") else INPUTS.get(field, "")

    def refuse(self, problem: Problem) -> None:
        """Shows a problem of the spec at its input, or on top."""
        input_name, text = self.input_of(problem.field), format_problem_sentence(problem)
        if input_name:
            self.errors[input_name] = text
        else:
            self.other_errors.append(f"{problem.field}: {text}" if problem.field else text)

    @property
    def warnings(self) -> list[str]:
        warnings = []
        if self.rows < LEAST_PAIRS:
            warnings.append(f"Only {self.rows} rows to train on: from fewer than {LEAST_PAIRS} a policy overfits.")
        if self.goal.trainer == "kto" and self.version.dataset.form == Form.STEPWISE:
            warnings.append("The steps of a row are joined into one answer, which counts as good if every step is right.")
        total = sum(source.answers for source in self.sources) if self.start else 0
        choice = next((choice for choice in self.choices if self.chosen and choice.candidate.value == self.chosen.value), None)
        far = choice.far if choice else total
        if total and far > FAR_SHARE * total:
            warnings.append(
                f"{far:,} of {total:,} answers were sampled by another run, or more than {checkpoints.FAR} steps away from this policy. "
                "Off-policy answers teach less; label answers of a kept checkpoint, or freeze with a policy-age filter."
            )
        return warnings
