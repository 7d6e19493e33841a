"""The form that makes a dataset version into a run: its inputs with their prefilled texts, and the spec they stand for."""

from __future__ import annotations

import copy
import hashlib
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lab.accounts.models import Membership, Project, User
from lab.accounts.permissions import LABELLERS
from lab.datasets.models import Form, Version
from lab.loop import checkpoints
from lab.loop.checkpoints import Candidate, Choice, Sampled
from lab.runs import drafts
from lab.runs.models import Run
from trainers.spec import FINAL, Problem

BATCH = 32  # pairs in an optimiser step
EPOCHS = 3
LEAST_STEPS, LEAST_PAIRS = 20, 20
FAR_SHARE = 0.25  # of the answers, from which on the form warns
COMMON = ("task", "lora", "seed", "device", "precision")  # parts of a spec that go on from the policy's run
MATCH_PROMPTS, MOST_PROMPTS, MOST_OVERLAP = 50, 2000, 9
INPUTS = {
    "training.per_device_train_batch_size": "batch",
    "training.max_steps": "max_steps",
    "training.learning_rate": "learning_rate",
    "evaluation.prompts": "evaluation",
}


@dataclass(frozen=True)
class Goal:
    """A way to train on a version. ``form``: what its rows must be; ``recipe``: whose launch form holds all its settings.

    ``rate``: learning rate that is prefilled, unless the policy was last trained with a smaller one. Of 37 pairs in 30 steps of DPO on the built-in
    policy, 3e-5 changed 11 of 256 held-out answers, 5e-5 17 and 1e-4 29; the last one cost accuracy (.81 to .79), the others did not.
    """

    trainer: str
    title: str
    summary: str
    form: Form
    recipe: str
    rate: float
    answers: bool = True  # the result writes answers, so that it can be compared with its parent
    instead: str = ""


GOALS = (
    Goal("dpo", "DPO", "Moves the policy towards the chosen answers and away from the rejected ones.", Form.PREFERENCE, "dpo", 5e-5),
    Goal("kto", "KTO", "Learns from single answers marked good or bad.", Form.KTO, "kto", 5e-5),
    Goal("reward", "Reward model", "Learns to score answers as your labellers do; it writes none.", Form.PREFERENCE, "reward", 1e-4, answers=False),
    Goal("sft", "SFT on corrections", "Imitates the corrected and the chosen answers.", Form.COMPLETION, "cold-start", 1e-4),
)
NEEDED = {
    Form.PREFERENCE: "preference pairs",
    Form.KTO: "labelled answers",
    Form.COMPLETION: "prompts with completions",
    Form.STEPWISE: "marked steps",
}


def input_of(field: str) -> str:
    """The input that stands for a field of the spec; empty for one without."""
    return "policy" if field.startswith("policy") else INPUTS.get(field, "")


def refusal(goal: Goal, version: Version) -> str:
    """Why the goal does not fit the version; empty when it does."""
    form = Form(version.dataset.form)
    if goal.form == form:
        return ""
    return f"Needs {NEEDED[goal.form]}; this version holds {NEEDED[form]}. Make a dataset of that form from the same queues."


@dataclass
class TrainForm:
    """``values``: the text of every input by name. ``errors``: by name; what has no input is in ``other_errors``."""

    version: Version
    goal: Goal
    data: Mapping[str, str] | None = None
    assigned: tuple[int, ...] = ()  # people who are to label the match; nobody: whoever may
    errors: dict[str, str] = field(default_factory=dict)
    other_errors: list[str] = field(default_factory=list)

    @cached_property
    def values(self) -> dict[str, str]:
        return {**self.prefilled, **(self.data or {})}

    @cached_property
    def sources(self) -> list[Sampled]:
        return checkpoints.sampled(self.version)

    @cached_property
    def choices(self) -> list[Choice]:
        return checkpoints.choices(self.sources)

    @cached_property
    def elsewhere(self) -> list[tuple[str, str]]:
        """Policies of other runs, for imports and for those who know better."""
        own = {choice.candidate.value for choice in self.choices}
        return [one for one in drafts.runs_with_policies(self.version.dataset.team) if one[0] not in own]

    @cached_property
    def rows(self) -> int:
        return int(self.version.counts.get("train") or 0)

    @cached_property
    def best(self) -> Candidate | None:
        return checkpoints.prefilled(self.sources)

    @cached_property
    def prefilled(self) -> dict[str, str]:
        best = self.best.value if self.best else (self.elsewhere[0][0] if self.elsewhere else "")
        size = max(2, min(BATCH, self.rows))
        steps = max(LEAST_STEPS, math.ceil(EPOCHS * self.rows / size))
        return {
            "trainer": self.goal.trainer,
            "policy": best,
            "name": f"{self.goal.title} on {self.version}"[:100],
            "learning_rate": f"{self.usual_rate(best):g}",
            "max_steps": str(steps),
            "batch": str(size),
            "evaluation": self.measured(best),
            "prompts": str(MATCH_PROMPTS),
            "overlap": "1",
        }

    def measured(self, policy: str) -> str:
        """Held-out prompts of the run the policy is from, so that its figures can be compared."""
        run = self.run_of(policy)
        own = (run.spec.get("evaluation") or {}).get("prompts") if run else None
        return str(own or 256)

    def usual_rate(self, policy: str) -> float:
        run = self.run_of(policy)
        own = (run.spec.get("training") or {}).get("learning_rate") if run else None
        return min(self.goal.rate, own) if isinstance(own, int | float) else self.goal.rate

    @property
    def wants_match(self) -> bool:
        return self.goal.answers and (self.data is None or "match" in self.data)

    @property
    def wish(self) -> dict[str, Any]:
        """The match that is to follow; only of a form whose ``spec`` was not refused."""
        numbers = {name: int(self.values[name]) for name in ("prompts", "overlap")}
        return {"version": self.version.pk, **numbers, "labellers": list(self.assigned)}

    @cached_property
    def labellers(self) -> list[User]:
        members = Membership.objects.filter(team=self.version.dataset.team, role__in=LABELLERS, active=True, user__is_active=True)
        return [one.user for one in members.select_related("user").order_by("user__email")]

    def run_of(self, value: str) -> Run | None:
        """The team's run of a choice ``<run>:<checkpoint>``."""
        try:
            key = uuid.UUID(value.partition(":")[0])
        except ValueError:
            return None
        return Run.objects.of(self.version.dataset.team).select_related("team").filter(pk=key).first()

    @cached_property
    def chosen(self) -> Candidate | None:
        """The policy that is chosen; None when there is no such run."""
        value = self.values["elsewhere"] if self.values["policy"] == "elsewhere" and "elsewhere" in self.values else self.values["policy"]
        run, checkpoint = self.run_of(value), value.partition(":")[2]
        if run is None:
            return None
        if checkpoint.isascii() and checkpoint.isdigit() and len(checkpoint) < 10:
            return Candidate(run, int(checkpoint), int(checkpoint))
        known = {FINAL: run.step, checkpoints.START: 0}
        return Candidate(run, checkpoint, known[checkpoint]) if checkpoint in known else None

    @property
    def parent(self) -> Run | None:
        """The run whose final policy is chosen: the new run is the next stage of its chain."""
        policy = self.chosen.policy if self.chosen else {}
        if policy.get("kind") != "run" or policy.get("checkpoint") != FINAL:
            return None
        return self.run_of(f"{policy.get('run')}:{FINAL}")

    @property
    def project(self) -> Project | None:
        """Of the dataset, else of the run it starts from."""
        start = self.chosen.run if self.chosen else None
        return self.version.dataset.project or (start.project if start else None)

    def whole(self, name: str, least: int, most: int) -> int:
        """The whole number of an input; one that is none, or out of range, is an error at its field."""
        text = self.values.get(name, "").strip()
        if text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most:
            return int(text)
        self.errors[name] = f"“{text[:40]}” is not a whole number from {least} to {most:,}."
        return least

    def spec(self) -> dict[str, Any] | None:
        """What is launched; None when inputs are wrong. A reward model is not measured: it answers nothing."""
        rate = self.rate()
        prompts = self.whole("evaluation", 0, 100_000) if self.goal.answers else 0
        steps = self.whole("max_steps", 1, 10_000_000)
        training = {"trainer": self.goal.trainer, "max_steps": steps, "learning_rate": rate, "lr_scheduler_type": "linear"}
        training["per_device_train_batch_size"] = self.whole("batch", 2 if self.goal.trainer == "kto" else 1, 65_536)
        if self.wants_match:
            self.whole("prompts", 1, MOST_PROMPTS)
            self.whole("overlap", 1, MOST_OVERLAP)
            if not prompts and "evaluation" not in self.errors:
                self.errors["evaluation"] = "A blind A/B compares answers to held-out prompts: measure some, or leave the A/B off."
        if self.chosen is None:
            self.errors["policy"] = "Choose a policy to start from."
        if self.errors or self.chosen is None:
            return None
        return self.of_run(self.chosen.run) | {
            "recipe": self.goal.recipe if self.goal.trainer != "sft" else drafts.CUSTOM,
            "policy": self.chosen.policy,
            "training": training | self.lengths(self.chosen.run),
            "evaluation": {**(self.chosen.run.spec.get("evaluation") or {}), "prompts": prompts, "every": max(1, steps // 2)},
            "dataset": self.dataset(),
        }

    def of_run(self, run: Run) -> dict[str, Any]:
        """What the new run has in common with the run its policy is from: task, adapters, machine, and the seed that draws the held-out prompts."""
        return {key: copy.deepcopy(run.spec[key]) for key in COMMON if run.spec.get(key) is not None}

    def lengths(self, run: Run) -> dict[str, int]:
        """Answers as long as the run's own may be are not cut."""
        longest = (run.spec.get("training") or {}).get("max_completion_length")
        if not isinstance(longest, int) or longest <= 64:
            return {}
        room = {"max_length": 2 * longest + 256}
        return room if self.goal.trainer == "sft" else room | {"max_completion_length": longest}

    def dataset(self) -> dict[str, str]:
        """With the digest it was frozen with, so that a trainer refuses a file that is another one by now."""
        frozen = (self.version.counts.get("sha256") or {}).get("train")
        return {"file": self.version.train_file, "sha256": frozen or hashlib.sha256(self.version.path().read_bytes()).hexdigest()}

    def rate(self) -> float:
        text = self.values.get("learning_rate", "").strip()
        try:
            rate = float(text)
        except ValueError:
            rate = 0.0
        if not 0 < rate <= 1:
            self.errors["learning_rate"] = f"“{text[:40]}” is not a number above 0 and up to 1; usual is {self.goal.rate:g}."
        return rate

    def refuse(self, problem: Problem) -> None:
        """Shows a problem of the spec at its input, or on top."""
        place = input_of(problem.field)
        text = f"{problem.message[:1].upper()}{problem.message[1:]}{f': {problem.fix}' if problem.fix else ''}."
        if place:
            self.errors[place] = text
        else:
            self.other_errors.append(f"{problem.field}: {text}" if problem.field else text)

    @property
    def warnings(self) -> list[str]:
        found = []
        if self.rows < LEAST_PAIRS:
            found.append(f"Only {self.rows} rows to train on: from fewer than {LEAST_PAIRS} a policy learns the rows, not what they have in common.")
        total = sum(source.answers for source in self.sources)
        choice = next((one for one in self.choices if self.chosen and one.candidate.value == self.chosen.value), None)
        far = choice.far if choice else total
        if total and far > FAR_SHARE * total:
            found.append(
                f"{far:,} of {total:,} answers were sampled by another run, or more than {checkpoints.FAR} steps away from this policy. "
                "What the policy no longer writes teaches it less; label answers of a kept checkpoint, or freeze with a policy-age filter."
            )
        return found
