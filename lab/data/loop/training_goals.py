"""The ways to train on a dataset version, and which of them fit its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.data.datasets.models import Form, Source, Version
from lab.data.datasets.rule_words import ROW_WORDS
from trainers.contract.dataset_tools.registry import TOOLS
from trainers.contract.hyperparameters import GROUP_TRAINERS
from trainers.contract.steering_file import METHOD as STEERING


@dataclass(frozen=True)
class TrainingGoal:
    """A way to train on a version. ``form``: what its rows must be; ``recipe``: whose launch form holds all its settings.

    ``rate``: learning rate that is prefilled, unless the policy was last trained with a smaller one. Of 37 pairs in 30 steps of DPO on the built-in
    policy, 3e-5 changed 11 of 256 held-out answers, 5e-5 17 and 1e-4 29; the last one cost accuracy (.81 to .79), the others did not.
    ``large_rate``: for a model from a folder or the hub, hundreds of times larger; TRL's default of the trainer.
    """

    trainer: str
    title: str
    summary: str
    form: Form
    recipe: str
    rate: float
    large_rate: float
    reads_spans: bool = False  # its loss can weigh the tokens of marked spans
    learns: bool = True  # it changes weights, at a learning rate
    methods: tuple[str, ...] = ()  # stacked on the base
    answers: bool = True  # the result writes answers, so that it can be compared with its parent
    instead: str = ""
    base: str = ""  # empty: the trainer's default
    settings: Mapping[str, float] = field(default_factory=dict)  # of the trainer, where its defaults do not suit the base

    @property
    def compares(self) -> bool:
        """Whether its answers can be compared blindly with those from before: they must be the new policy's own, not those of a vector beside it."""
        return self.answers and self.learns

    @property
    def samples_groups(self) -> bool:
        return self.trainer in GROUP_TRAINERS


GOALS = (
    TrainingGoal(
        "dpo",
        "DPO",
        "Moves the policy towards the chosen answers and away from the rejected ones.",
        Form.PREFERENCE,
        "dpo",
        5e-5,
        1e-6,
        reads_spans=True,
    ),
    TrainingGoal(
        "orpo", "ORPO", "Learns the chosen answers and their odds over the rejected ones; needs no reference.", Form.PREFERENCE, "orpo", 5e-5, 1e-6
    ),
    TrainingGoal(
        "cpo",
        "SimPO",
        "Raises the mean log-probability of the chosen answers over the rejected ones; needs no reference.",
        Form.PREFERENCE,
        "simpo",
        5e-5,
        1e-6,
        base="simpo",
        settings={"beta": 2.0},
    ),
    TrainingGoal("kto", "KTO", "Learns from single answers marked good or bad.", Form.KTO, "kto", 5e-5, 1e-6),
    TrainingGoal(
        "reward",
        "Reward model",
        "Learns to score answers like your labellers; it generates no text.",
        Form.PREFERENCE,
        "reward",
        1e-4,
        1e-4,
        answers=False,
    ),
    TrainingGoal(
        "procedure",
        "Steering vector",
        "Takes the mean difference between chosen and rejected answers as a vector that is added while the policy writes; changes no weights.",
        Form.PREFERENCE,
        "procedure",
        0.0,
        0.0,
        learns=False,
        methods=(STEERING,),
    ),
    TrainingGoal(
        "grpo", "GRPO", "Samples answers to the prompts; the task's rewards score them against the references.", Form.PROMPT, "grpo", 5e-5, 1e-6
    ),
    TrainingGoal(
        "rloo", "RLOO", "Compares each sampled answer with the mean of the others to its prompt; scored as in GRPO.", Form.PROMPT, "rloo", 5e-5, 1e-6
    ),
    TrainingGoal(
        "online-dpo",
        "Online DPO",
        "Samples two answers to each prompt in every step; the rewards say which is preferred.",
        Form.PROMPT,
        "online-dpo",
        5e-5,
        5e-7,
    ),
    TrainingGoal(
        "sft", "SFT on corrections", "Imitates the corrected and chosen answers.", Form.COMPLETION, "cold-start", 1e-4, 2e-5, reads_spans=True
    ),
)


def explain_goal_refusal(goal: TrainingGoal, version: Version) -> str:
    """Why the goal does not fit the version; empty when it does."""
    form, imported = Form(version.dataset.form), version.dataset.source == Source.IMPORT
    if goal.form == form or (goal.trainer == "kto" and form == Form.STEPWISE and imported):  # of the lab's own marks an answer may lack its end
        return ""
    is_file = version.dataset.source != Source.QUEUES
    needed = ROW_WORDS[goal.form]
    is_made = any(kind.forms.get(str(form)) == goal.form for kind in TOOLS.values())  # type: ignore[call-overload]  # forms have the same names
    if is_file and is_made:
        fix = f"Apply a dataset tool that makes {needed}, or import a file of them."
    else:
        fix = f"Import a file of {needed}." if is_file or goal.form == Form.PROMPT else "Create a dataset of that form from the same queues."
    return f"Needs {needed}; this version holds {ROW_WORDS[form]}. {fix}"
