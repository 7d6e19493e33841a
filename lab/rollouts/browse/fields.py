"""What rollouts can be filtered and sorted by: an allow-list. No other name, and no operator a field does not have, ever reaches a query."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from lab.lib.numbers import parse_ids, parse_whole_number
from lab.lib.registry import Registry
from lab.rollouts.trajectories.steps import PHASE_LABELS

COMPARISONS = {"eq": "=", "ne": "≠", "lt": "<", "le": "≤", "gt": ">", "ge": "≥"}
OPERATOR_LABELS = {**COMPARISONS, "is": "is", "not": "is not", "has": "has", "lacks": "lacks", "contains": "contains", "in": "is one of"}
FINISH_REASONS = {"stop": "Stopped (EOS)", "length": "Cut off at the length limit", "turns": "Cut off at the turn limit"}
YES_NO = {"yes": "Yes", "no": "No"}
COMPONENT = "component."  # before the name of a reward function
MAX_VALUE = 200  # characters of a filter's value
MOST_IDS = 100  # rollouts that a filter names


@dataclass(frozen=True)
class Field:
    """``kind`` is number, choice, text, flag or ids; ``choices`` value → label; ``whole`` numbers have no fraction. ``pattern``: what a text has to
    be, a regular expression, with ``sample`` as an example.
    """

    name: str
    label: str
    kind: str
    unit: str = ""
    help: str = ""
    operators: tuple[str, ...] = tuple(COMPARISONS)
    choices: dict[str, str] = field(default_factory=dict)
    sortable: bool = False
    whole: bool = False
    pattern: str = ""
    sample: str = ""

    @property
    def example(self) -> str:
        if self.kind == "ids":
            return "17,42"
        if self.sample:
            return self.sample
        return "algebra" if self.kind != "number" else "10" if self.whole else "0.5"

    def problem(self, value: str) -> tuple[str, str] | None:
        """What is wrong with a filter's value and how to mend it; None when it can be used."""
        if self.kind in ("choice", "flag"):
            if value not in self.choices:
                return f"{self.label}: {value!r} is not one of its values", f"choose one of {', '.join(self.choices)}"
        elif not value.strip():
            return f"{self.label}: no value given", f"give one such as {self.example}"
        elif self.kind == "number":
            return self.not_a_number(value)
        elif self.kind == "ids":
            return self.no_ids(value)
        elif "\0" in value or len(value) > MAX_VALUE:
            return f"{self.label}: the value is too long or contains an invalid character", f"give at most {MAX_VALUE} characters of text"
        elif self.pattern and not re.fullmatch(self.pattern, value, re.ASCII):
            return f"{self.label}: {value[:20]!r} is none", f"give one such as {self.example}"
        return None

    def not_a_number(self, value: str) -> tuple[str, str] | None:
        number = parse_finite_number(value)
        if number is None:
            return f"{self.label}: {value!r} is not a number", f"give one such as {self.example}"
        if self.whole and number != int(number):
            return f"{self.label}: {value!r} is not a whole number", f"give one such as {self.example}"
        return None

    def no_ids(self, value: str) -> tuple[str, str] | None:
        texts = value.split(",")
        if len(texts) > MOST_IDS:
            return f"{self.label}: {len(texts):,} IDs are too many", f"give at most {MOST_IDS}, separated by commas"
        wrong = [text for text in texts if parse_whole_number(text.strip()) is None]
        if wrong:
            return f"{self.label}: {wrong[0][:20]!r} is not an ID", f"give IDs such as {self.example}"
        return None


def parse_finite_number(text: str) -> float | None:
    """The finite number a person wrote, or None."""
    if len(text) > 40 or "_" in text or not text.isascii():
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def parse_rollout_ids(value: str) -> list[int]:
    """The ids of a filter by rollouts."""
    return parse_ids(text.strip() for text in value.split(","))


def make_number_field(name: str, label: str, unit: str = "", help: str = "", whole: bool = False) -> Field:
    return Field(name, label, "number", unit, help, sortable=True, whole=whole)


def make_choice_field(name: str, label: str, choices: dict[str, str], help: str = "") -> Field:
    return Field(name, label, "choice", help=help, operators=("is", "not"), choices=choices)


def make_text_field(name: str, label: str, operators: tuple[str, ...], help: str) -> Field:
    return Field(name, label, "text", help=help, operators=operators)


def make_flag_field(name: str, label: str, help: str) -> Field:
    return Field(name, label, "flag", help=help, operators=("is",), choices=YES_NO)


FIELDS: Registry[Field] = Registry.of(
    "field",
    (
        make_number_field("reward", "Reward", help="The total reward from which the advantage is computed."),
        make_number_field("advantage", "Advantage", help="After all methods, as used in the loss."),
        make_number_field("length", "Length", "tokens", "Of the completion.", whole=True),
        make_number_field("mean_entropy", "Mean entropy", "nats", "Of the policy's next-token distribution, over the completion's tokens."),
        make_number_field("max_entropy", "Max entropy", "nats", "Of the completion's most uncertain token."),
        make_number_field("step", "Step", whole=True),
        make_number_field("group", "Group", help="Which prompt of the step, from 0.", whole=True),
        make_number_field("sample", "Sample", help="Which answer to the prompt, from 0.", whole=True),
        make_number_field("rating", "Rating", help="Mean rating from 1 to 5; empty if nobody rated the rollout."),
        make_choice_field("finish", "Finish reason", FINISH_REASONS, "Why the completion ended."),
        make_choice_field("phase", "Phase", dict(PHASE_LABELS), "What the rollout was sampled for."),
        make_text_field("tag", "Tag", ("has", "lacks"), "Tag name, not case-sensitive."),
        make_text_field("prompt", "Prompt", ("contains",), 'Words of the prompt\'s last user message; "in quotes" for a phrase, -word to exclude.'),
        make_text_field("filtered", "Drop reason", ("contains",), "Part of the reason, not case-sensitive."),
        make_flag_field("zero_variance", "Zero-variance group", "All members of the group got the same reward, so there is no learning signal."),
        make_flag_field("filtered_out", "Dropped or filtered", "Stored with the reason, but not trained on."),
        make_flag_field("commented", "Commented", "Has at least one comment."),
        make_flag_field("rated", "Rated", "Has at least one rating."),
        Field("rollout", "Rollout", "ids", help=f"Up to {MOST_IDS} rollout IDs, separated by commas.", operators=("in",)),
    ),
)


def field_named(name: str) -> Field | None:
    """The field of that name; of ``component.<reward function>`` whatever the function is called, because runs bring their own."""
    if name.startswith(COMPONENT):
        component = name.removeprefix(COMPONENT)
        if not component or len(component) > MAX_VALUE or "\0" in component:
            return None
        return make_number_field(name, component, help="Value of this reward function.")
    return FIELDS.get(name)
