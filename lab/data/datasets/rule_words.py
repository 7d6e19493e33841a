"""A rule in words, for people who did not make it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab.data.datasets.formats.reading import FORMATS
from lab.data.datasets.models import Form, Source, Version
from lab.data.datasets.rules import ACTIONS, AGGREGATIONS, CLEANERS, CORRECTIONS, MARGINS, NEUTRALS, VOTES, DatasetRule

ROW_WORDS = {
    Form.PREFERENCE: "preference pairs",
    Form.KTO: "labelled answers",
    Form.COMPLETION: "prompts with completions",
    Form.STEPWISE: "marked steps",
    Form.PROMPT: "prompts with references",
}


def describe_rule(rule: DatasetRule, queues: Iterable[str], source: str = Source.QUEUES) -> list[tuple[str, str]]:
    """(setting, what it does), without settings that do nothing."""
    lines = [("Form", Form(rule.form).label)]
    if source == Source.QUEUES:
        lines += of_labels(rule, queues)
    if source == Source.TURNS:
        lines += describe_turn_labels(rule)
    lines += [("Split", describe_split(rule))]
    if rule.dedupe:
        lines.append(("Duplicates", "Duplicates: first one kept; contradictory rows excluded"))
    if rule.max_per_prompt is not None:
        lines.append(("Per prompt", f"At most {rule.max_per_prompt}, highest agreement first"))
    return lines + list(describe_cleaning(rule))


def import_words(version: Version) -> list[tuple[str, str]]:
    """How the file of an import was read, and which of its columns are not in the rows."""
    own = version.rule.get("import") or {}
    if own.get("format") not in FORMATS:
        return []
    lines = [("Format", FORMATS[own["format"]].title)]
    lines += [("Columns", ", ".join(f"{column} as {part.replace('_', ' ')}" for part, column in own.get("columns", {}).items()))]
    return [*lines, ("Left out", ", ".join(own["left_out"]))] if own.get("left_out") else lines


def of_labels(rule: DatasetRule, queues: Iterable[str]) -> Iterator[tuple[str, str]]:
    yield "Queues", ", ".join(queues) or "none"
    yield "Labels", AGGREGATIONS[rule.aggregation]
    if rule.min_agreement > 0:
        ties = "a tie counts against" if rule.ties_against else "ties are not counted"
        yield "Agreement", f"At least {rule.min_agreement:.0%} of the votes ({ties}); adjudicated answers are exempt"
    if rule.min_labels > 1:
        yield ("Marks per step" if rule.form == Form.STEPWISE else "Labels per item"), f"At least {rule.min_labels}"
    yield "Items", "Only fully labelled items" if rule.finished_only else "Including items with missing labels"
    if rule.form == Form.STEPWISE:
        yield "Neutral steps", NEUTRALS[rule.neutral]
        yield "Steps", "Up to the first one that is unmarked or has split votes; the rest is excluded"
    else:
        yield "Ties", "Excluded: a tie has no preference"
    if age := describe_policy_age(rule):
        yield "Policy age", age
    yield "Held-out prompts", "Included: do not evaluate on them afterwards" if rule.heldout else "Left out"
    if rule.margin != "none":
        yield "Margin", MARGINS[rule.margin]
    if rule.corrections != "off":
        yield "Corrections", CORRECTIONS[rule.corrections]


def describe_turn_labels(rule: DatasetRule) -> Iterator[tuple[str, str]]:
    yield "Runs", ", ".join(f"#{number}" for number in rule.runs) or "all"
    yield "Labels", "Majority of the labellers of a pair of branches"
    if rule.min_agreement > 0:
        yield "Agreement", f"At least {rule.min_agreement:.0%} of the votes"
    if rule.min_labels > 1:
        yield "Labels per pair", f"At least {rule.min_labels}"
    if age := describe_policy_age(rule):
        yield "Policy age", age
    yield "Held-out prompts", "Included: do not evaluate on them afterwards" if rule.heldout else "Left out"
    if rule.margin != "none":
        yield "Margin", MARGINS[rule.margin]


def describe_policy_age(rule: DatasetRule) -> str:
    parts = []
    if rule.max_age is not None:
        than = "the newest labelled step of their run" if rule.age_from is None else f"step {rule.age_from}"
        parts.append(f"answers at most {rule.max_age} steps older than {than}")
    if rule.first_step is not None:
        parts.append(f"from step {rule.first_step}")
    if rule.last_step is not None:
        parts.append(f"to step {rule.last_step}")
    if rule.age_half_life is not None:
        parts.append(f"weight halved for every {rule.age_half_life} step{'' if rule.age_half_life == 1 else 's'} of age (column weight)")
    return ", ".join(parts).capitalize()


def describe_split(rule: DatasetRule) -> str:
    if not rule.test_share:
        return "All rows are for training"
    return f"{rule.test_share:.0%} of the prompts for testing, by prompt text and split seed {rule.salt!r}; no prompt is in both splits"


def describe_cleaning(rule: DatasetRule) -> Iterator[tuple[str, str]]:
    own = rule.cleaning
    if not own.by:
        return
    details = {"rewards": VOTES[own.vote], "gap": f"the lowest {own.gap_share:.0%}", "speed": f"in less than {own.min_seconds:g} s"}
    names = [f"{CLEANERS[name]}{f' ({details[name]})' if name in details else ''}" for name in own.by]
    yield "Cleaning", f"{'; '.join(names)}. Above {own.threshold:g}: {ACTIONS[own.action].lower()}"
