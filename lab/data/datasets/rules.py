"""How labels become rows: everything that decides what is in a version. It is stored complete with the version, so that the same labels under the
same rule give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from lab.data.datasets.models import Form
from lab.lib.refusals import InputRefusal, Problem

AGGREGATIONS = {
    "majority": "Majority of the labellers; an adjudicated answer decides",
    "adjudicated": "Adjudicated answers only",
    "weighted": "Votes weighted by each labeller's gold accuracy; an adjudicated answer decides",
}
MARGINS = {"none": "No margin", "strength": "Mean strength (1 to 3)", "votes": "Vote margin (share for minus share against)"}
CORRECTIONS = {
    "off": "Not used",
    "use": "A corrected answer replaces the chosen one",
    "only": "Only items with a corrected answer",
}
CLEANERS = {
    "labellers": "Labeller reliability (expectation maximisation)",
    "rewards": "Vote of the reward functions",
    "gap": "Lowest reward gap",
    "speed": "Labelled too fast",
}
NEUTRALS = {
    "good": "As good: only bad marks make a step wrong",
    "bad": "As bad: only good marks make a step right",
    "leave": "As neither: the row ends before a neutral step",
}
WEIGHTED_FORMS = (Form.PREFERENCE, Form.KTO)  # whose rows may have a column ``weight``
VOTES = {"majority": "fewer than half of the reward functions agree with the label", "all": "no reward function agrees with the label"}
ACTIONS = {"report": "Report only", "drop": "Leave out", "flip": "Swap chosen and rejected", "down-weight": "Give a smaller weight (column weight)"}


class RuleError(InputRefusal):
    """Settings of a rule that have to change."""

    location = "rule"


@dataclass(frozen=True)
class Cleaning:
    """``by``: names of CLEANERS. A pair is suspect above ``threshold`` (its highest score, 0 to 1)."""

    by: tuple[str, ...] = ()
    action: str = "report"
    threshold: float = 0.5
    vote: str = "majority"
    gap_share: float = 0.1  # of the pairs, those with the lowest reward gap
    min_seconds: float = 2.0


@dataclass(frozen=True)
class DatasetRule:
    queues: tuple[int, ...] = ()
    runs: tuple[int, ...] = ()  # numbers of the runs whose turns are meant, of a dataset of labels on turns; empty: all
    form: str = Form.PREFERENCE
    aggregation: str = "majority"
    min_agreement: float = 0.0  # share of the votes for the side that won; adjudicated answers are not asked for it
    min_labels: int = 1
    ties_against: bool = True  # a tie counts as a vote that does not agree
    finished_only: bool = True  # items that still wait for labels are left out
    heldout: bool = False  # answers to held-out prompts may be trained on
    max_age: int | None = None  # steps older than the newest labelled step of the same run, or than ``age_from``
    age_from: int | None = None
    age_half_life: int | None = None  # steps of policy age after which a label weighs half (column weight)
    first_step: int | None = None
    last_step: int | None = None
    margin: str = "none"
    corrections: str = "off"
    neutral: str = "good"  # what a neutral mark of a step counts as; form stepwise only
    test_share: float = 0.1
    salt: str = "0"
    dedupe: bool = True
    max_per_prompt: int | None = None
    cleaning: Cleaning = field(default_factory=Cleaning)

    def as_json(self) -> dict[str, Any]:
        """Complete, with lists for tuples: what Version.rule holds."""
        data = asdict(self)
        data["queues"], data["runs"] = list(self.queues), list(self.runs)
        data["form"] = str(self.form)
        data["cleaning"]["by"] = list(self.cleaning.by)
        return data

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> DatasetRule:
        """From JSON that a version keeps; unknown keys are ignored, missing ones have their defaults. Raises RuleError."""
        known = {field.name for field in fields(cls)} - {"cleaning", "queues", "runs"}
        cleaning = dict(data.get("cleaning") or {})
        own = {name: value for name, value in cleaning.items() if name in {field.name for field in fields(Cleaning)} - {"by"}}
        try:
            rule = cls(
                **{name: value for name, value in data.items() if name in known},
                queues=tuple(sorted({int(pk) for pk in data.get("queues") or ()})),
                runs=tuple(sorted({int(number) for number in data.get("runs") or ()})),
                cleaning=Cleaning(**own, by=tuple(name for name in CLEANERS if name in (cleaning.get("by") or ()))),
            )
            rule.check()
        except RuleError:
            raise
        except (TypeError, AttributeError, ValueError) as error:
            raise RuleError([Problem("rule", f"cannot be read: {error}", "create the rule again on the dataset's page")]) from None
        return rule

    @classmethod
    def changed(cls, before: DatasetRule, changes: Mapping[str, Any]) -> DatasetRule:
        """``before`` with the settings that a program sends. Raises RuleError for those that there are not, or that are no such values."""
        if problems := list(find_unknown_settings(changes)):
            raise RuleError(problems)
        cleaning = {**asdict(before.cleaning), **(changes.get("cleaning") or {})}
        return cls.read({**before.as_json(), **changes, "cleaning": cleaning})

    def check(self) -> None:
        """Raises RuleError naming every field that cannot work. Which queues there are is for the caller to look at."""
        if problems := list(problems_of(self)):
            raise RuleError(problems)


def find_unknown_settings(changes: Mapping[str, Any]) -> Iterator[Problem]:
    """Settings that no rule has, and values of another type than the setting's."""
    cleaning = changes.get("cleaning") if isinstance(changes.get("cleaning"), Mapping) else {}
    for prefix, known, given in (("", TYPES, changes), ("cleaning.", CLEANING_TYPES, cleaning)):
        for name, value in (given or {}).items():
            if name not in known:
                yield Problem(f"{prefix}{name}"[:100], "unknown setting", f"remove it, or use one of {', '.join(known)}")
            elif not known[name](value):
                yield Problem(
                    f"{prefix}{name}", f"{json.dumps(value, default=str)[:40]} has the wrong type", "see the dataset's rule for the expected type"
                )


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def whole_or_none(value: Any) -> bool:
    return value is None or is_whole(value)


def is_whole_list(value: Any) -> bool:
    return isinstance(value, list) and all(is_whole(number) for number in value)


def is_cleaner_list(value: Any) -> bool:
    return isinstance(value, list) and all(is_text(name) and name in CLEANERS for name in value)


CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": is_text,
    "int": is_whole,
    "int | None": whole_or_none,
    "float": is_number,
    "bool": is_truth,
    "tuple[int, ...]": is_whole_list,
    "tuple[str, ...]": is_cleaner_list,
    "Cleaning": lambda value: isinstance(value, Mapping),
}
TYPES = {field.name: CHECKS[str(field.type)] for field in fields(DatasetRule)}
CLEANING_TYPES = {field.name: CHECKS[str(field.type)] for field in fields(Cleaning)}


def problems_of(rule: DatasetRule) -> list[Problem]:
    problems = []

    def refuse(name: str, message: str, fix: str) -> None:
        problems.append(Problem(name, message, fix))

    choices = {"form": Form.values, "aggregation": AGGREGATIONS, "margin": MARGINS, "corrections": CORRECTIONS, "neutral": NEUTRALS}
    for name, known in choices.items():
        if getattr(rule, name) not in known:
            refuse(name, f"{getattr(rule, name)!r} is not a valid choice", f"use one of {', '.join(known)}")
    for name, least, most in (("min_agreement", 0, 1), ("test_share", 0, 0.9)):
        if not least <= getattr(rule, name) <= most:
            refuse(name, f"{getattr(rule, name)} is out of range", f"use {least} to {most}")
    for name in ("min_labels", "max_per_prompt", "age_half_life", "max_age", "age_from", "first_step", "last_step"):
        low = 1 if name in ("min_labels", "max_per_prompt", "age_half_life") else 0
        value = getattr(rule, name)
        if value is not None and not low <= value < 2**31:
            refuse(name, f"{value} is out of range", f"use a whole number from {low}")
    if rule.first_step is not None and rule.last_step is not None and rule.first_step > rule.last_step:
        refuse("last_step", f"{rule.last_step} is before the first step {rule.first_step}", "swap them")
    if rule.form == Form.STEPWISE and rule.corrections != "off":
        refuse("corrections", "step marks refer to the original answer", "do not use corrected answers")
    if rule.age_half_life is not None and rule.form not in WEIGHTED_FORMS:
        refuse("age_half_life", f"rows of the form {rule.form} have no weight", "leave it empty, or leave old answers out with the max age")
    if len(rule.salt) > 40:
        refuse("salt", "is longer than 40 characters", "shorten it")
    return problems + cleaning_problems(rule)


def cleaning_problems(rule: DatasetRule) -> list[Problem]:
    cleaning, problems = rule.cleaning, []
    for name, known in (("action", ACTIONS), ("vote", VOTES)):
        if getattr(cleaning, name) not in known:
            problems.append(Problem(f"cleaning_{name}", f"{getattr(cleaning, name)!r} is not a valid choice", f"use one of {', '.join(known)}"))
    for name, most in (("threshold", 1.0), ("gap_share", 1.0), ("min_seconds", 3600.0)):
        if not 0 <= getattr(cleaning, name) <= most:
            problems.append(Problem(f"cleaning_{name}", f"{getattr(cleaning, name)} is out of range", f"use 0 to {most:g}"))
    if cleaning.by and rule.form != Form.PREFERENCE:
        problems.append(
            Problem("cleaning_by", "suspect labels are found in preference pairs only", "choose the form preference, or turn cleaning off")
        )
    return problems
