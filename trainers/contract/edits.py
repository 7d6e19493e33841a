"""Edits of a running run: which settings may be changed while it trains, from which boundary each holds, and the two files they travel in.

``edits/requests.jsonl`` is appended by whoever asks (the lab, or a person), one EditRequest a line. ``edits/applied.jsonl`` is the trainer's own
record of what it did with each, one AppliedEdit a line: a resumed attempt changes the same settings at the same steps again. Settings are named by
their path in the spec; ``task.mix.<difficulty>``, which no spec has, is how often a prompt is of that difficulty. A shadow column's weight is 0 until
an edit of ``task.rewards.<name>`` gives it one: that promotes it, and from the next generation batch on it is a reward like the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from trainers.contract.hyperparameters import CPO, DPO, KTO, ORPO, GroupRollouts, OnlineDPO, Procedure, Strict
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import HUMAN, RunSpec, parse_spec

REQUESTS, APPLIED = "edits/requests.jsonl", "edits/applied.jsonl"  # inside a run folder
LEARNING_RATE, BETA, TEMPERATURE = "training.learning_rate", "training.beta", "training.temperature"
HUMAN_WEIGHT, REWARD, MIX = f"{HUMAN}.weight", "task.rewards.", "task.mix."
PER_STEP = (LEARNING_RATE, BETA)  # hold from the next optimiser step; every other setting from the next generation batch
MOST_MIX = 1000.0  # largest weight of a difficulty
WITHDRAWN = "withdrawn"
NOT_MEANWHILE = "Only GRPO and RLOO can change it while they train."
KEY = r"^[A-Za-z0-9_-]{1,64}$"
MOST_CHANGES = 100  # settings in one edit

Values = dict[str, float]


class EditRequest(Strict):
    """``changes``: setting -> its new value. ``withdrawn``: the edit of this key is not wanted any more, unless it holds already."""

    key: str = Field(pattern=KEY)
    changes: dict[str, float] = Field({}, max_length=MOST_CHANGES)
    withdrawn: bool = False


class AppliedEdit(Strict):
    """``changes`` hold from optimiser step ``step`` (1-based) on; with ``refused`` none of the edit does."""

    key: str = Field(pattern=KEY)
    step: int = Field(ge=0)
    changes: dict[str, float] = Field({}, max_length=MOST_CHANGES)
    refused: str = ""


@dataclass(frozen=True)
class TaskOffer:
    """What of a run's task an edit can name: its reward functions with the task's weights, and its difficulties."""

    rewards: Mapping[str, float]
    difficulties: Sequence[str]


@dataclass(frozen=True)
class EditableSettings:
    """``launched``: what an edit may change, with the values at launch. ``refused``: the title of what it may not, and why."""

    launched: Values
    refused: dict[str, str] = field(default_factory=dict)


def holds_from_step(name: str) -> bool:
    """Whether the setting holds from the next optimiser step. The others wait for the next generation batch, which is sampled and scored whole."""
    return name in PER_STEP


def list_editable_settings(spec: RunSpec, offer: TaskOffer, hooks: Mapping[str, Iterable[str]]) -> EditableSettings:
    """``hooks``: of each method of the run, the hooks it fills (catalogue)."""
    training = spec.training
    if isinstance(training, Procedure):
        refused = dict.fromkeys(("Learning rate", "KL coefficient (beta)"), "A procedure changes no weights.")
        return EditableSettings({TEMPERATURE: training.temperature}, refused | dict.fromkeys(("Reward weights", "Prompt mix"), NOT_MEANWHILE))
    launched: Values = {LEARNING_RATE: training.learning_rate}
    refused = dict[str, str]()
    if isinstance(training, DPO | KTO | ORPO | CPO | OnlineDPO) or (isinstance(training, GroupRollouts) and training.beta > 0):
        launched[BETA] = training.beta
    elif isinstance(training, GroupRollouts):
        refused["KL coefficient (beta)"] = "The run was launched with 0, so no reference policy is loaded."
    else:
        refused["KL coefficient (beta)"] = "This trainer has no reference policy."
    if not isinstance(training, GroupRollouts):
        return EditableSettings(launched, refused | dict.fromkeys(("Temperature", "Reward weights", "Prompt mix"), NOT_MEANWHILE))
    launched[TEMPERATURE] = training.temperature
    weights = {**offer.rewards, **{column.name: 0.0 if column.shadow else column.weight for column in spec.rewards}}
    launched |= {f"{REWARD}{name}": spec.task.rewards.get(name, weight) for name, weight in weights.items()}
    if spec.human is not None:
        launched[HUMAN_WEIGHT] = spec.human.weight
    if why := refuse_mix(spec, offer, hooks):
        refused["Prompt mix"] = why
    else:
        launched |= {f"{MIX}{name}": float(name == spec.task.difficulty) for name in offer.difficulties}
    return EditableSettings(launched, refused)


def refuse_mix(spec: RunSpec, offer: TaskOffer, hooks: Mapping[str, Iterable[str]]) -> str:
    """Why the run has no mix of prompts to change; empty where it has one."""
    if spec.dataset is not None:
        return "The prompts come from a dataset, which has no difficulties."
    if len(offer.difficulties) < 2:
        return "The task has a single difficulty."
    choosing = [name for name, filled in hooks.items() if {"data", "curriculum"} & set(filled)]
    return f"{choosing[0]} chooses the prompts." if choosing else ""


def find_edit_problems(spec: RunSpec, settings: EditableSettings, current: Mapping[str, float], changes: Mapping[str, float]) -> list[Problem]:
    """What is wrong with an edit of a run whose settings are ``current`` now; the bounds are those of a launch."""
    problems = [
        Problem(name, value, "cannot be changed while the run trains", f"use {', '.join(settings.launched)}")
        for name, value in changes.items()
        if name not in settings.launched
    ]
    if problems:
        return problems
    if not changes:
        return [Problem("changes", None, "is empty", "change at least one setting", given=False)]
    return [*find_bound_problems(spec, changes), *find_mix_problems({**current, **changes}, changes)]


def find_bound_problems(spec: RunSpec, changes: Mapping[str, float]) -> list[Problem]:
    """What a launch with these values would refuse."""
    data = spec.model_dump(mode="json")
    for name, value in changes.items():
        if name.startswith(MIX):
            continue
        part, _, rest = name.partition(".")
        inner = data[part]
        if name.startswith(REWARD):
            inner, rest = inner["rewards"], name.removeprefix(REWARD)
        inner[rest] = value
    try:
        parse_spec(data)
    except SpecError as error:
        return error.problems
    return []


def find_mix_problems(merged: Mapping[str, float], changes: Mapping[str, float]) -> list[Problem]:
    problems = [
        Problem(name, value, f"must be from 0 to {MOST_MIX:g}")
        for name, value in changes.items()
        if name.startswith(MIX) and not 0 <= value <= MOST_MIX
    ]
    touched = [name for name in changes if name.startswith(MIX)]
    if touched and not problems and not sum(value for name, value in merged.items() if name.startswith(MIX)) > 0:
        problems.append(
            Problem(touched[0], merged[touched[0]], "leaves no prompts: every difficulty would have weight 0", "give one a weight above 0")
        )
    return problems


def pick_reward_weights(changes: Mapping[str, float]) -> dict[str, float]:
    """Of the changes those that are weights, by the name of the reward function; that of people's ranking among them."""
    found = {name.removeprefix(REWARD): value for name, value in changes.items() if name.startswith(REWARD)}
    return found | ({HUMAN: changes[HUMAN_WEIGHT]} if HUMAN_WEIGHT in changes else {})
