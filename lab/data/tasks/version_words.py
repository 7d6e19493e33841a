"""A version of a task in words: its columns, its rewards, and what is otherwise than in another version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.data.tasks.models import TaskVersion
from lab.data.tasks.rows import COLUMN, RowPlan
from lab.lib.diff import DiffSpan, diff_words
from lab.rollouts.trajectories.text_pieces import escape_invisible_text
from lab.teams.accounts.models import Team
from lab.training.runs.reward_choices import KnownVersion, find_known_versions, read_origin
from lab.training.runs.reward_words import describe_stored_definition


@dataclass(frozen=True)
class VersionChange:
    """``text``: one sentence. ``spans``: of a text that changed, its words with what went and what came."""

    title: str
    text: str
    spans: list[DiffSpan] | None = None


def describe_columns(version: TaskVersion) -> list[tuple[str, str]]:
    """(what, from where)"""
    plan = RowPlan.read(version.plan)
    reference = f"{show_column(plan.reference)}, after the last {plan.after}" if plan.reference and plan.after else show_column(plan.reference)
    rows = [("Prompt", show_column(plan.prompt)), ("Reference", reference), ("Demonstration", show_column(plan.demonstration))]
    rows.append(("Extra fields", ", ".join(map(escape_invisible_text, plan.data)) or "none"))
    return [*rows, ("Held out", describe_split(plan))]


def show_column(column: str) -> str:
    return escape_invisible_text(column) or "none"


def describe_split(plan: RowPlan) -> str:
    if plan.split == COLUMN:
        return f"rows whose {show_column(plan.split_column)} is {' or '.join(plan.heldout)}"
    return f"{100 * plan.share:g} % of the prompts, by their hash" if plan.share else "none"


def list_reward_columns(team: Team, version: TaskVersion) -> list[tuple[dict[str, Any], str, KnownVersion | None, str]]:
    """Each column with its definition in words, the version of the team's reward function that it is, and its weight as text."""
    columns = version.definition["rewards"]
    known = find_known_versions(team, [origin for column in columns if (origin := read_origin(column))])
    return [(column, describe_reward(column), known.get(read_origin(column) or (0, 0)), f"{column['weight']:g}") for column in columns]


def describe_reward(column: dict[str, Any]) -> str:
    """What a column's definition does, in one line."""
    return escape_invisible_text(describe_stored_definition(column["definition"]))


def describe_changes(old: TaskVersion, new: TaskVersion) -> list[VersionChange]:
    """What ``new`` has otherwise than ``old``. Never empty for two versions of a task: their files differ."""
    changes = [*compare_rows(old, new), *compare_columns(old, new), *compare_prompts(old, new), *compare_rewards(old, new)]
    return changes or [VersionChange("Rows", "The rows are others; nothing else changed.")]


def compare_rows(old: TaskVersion, new: TaskVersion) -> list[VersionChange]:
    changes = []
    if old.definition["name"] != new.definition["name"]:
        changes.append(VersionChange("Name", f"“{old.definition['name']}” became “{new.definition['name']}”."))
    if old.source.get("sha256") != new.source.get("sha256") or old.source.get("version") != new.source.get("version"):
        changes.append(VersionChange("Source", f"{old.source['name']} became {new.source['name']}."))
    for key, title in (("train", "Rows to train on"), ("heldout", "Held-out rows"), ("demonstrations", "Rows with a demonstration")):
        if old.counts[key] != new.counts[key]:
            changes.append(VersionChange(title, f"{old.counts[key]:,} became {new.counts[key]:,} ({new.counts[key] - old.counts[key]:+,})."))
    return changes


def compare_columns(old: TaskVersion, new: TaskVersion) -> list[VersionChange]:
    pairs = zip(describe_columns(old), describe_columns(new), strict=True)
    return [VersionChange(title, f"{before} became {after}.") for (title, before), (_, after) in pairs if before != after]


def compare_prompts(old: TaskVersion, new: TaskVersion) -> list[VersionChange]:
    changes = []
    before, after = old.definition["system"], new.definition["system"]
    if before != after:
        text = "A system prompt was added." if not before else "The system prompt was removed." if not after else "The system prompt changed."
        changes.append(VersionChange("System prompt", text, diff_words(before, after)))
    shots, others = old.definition["examples"], new.definition["examples"]
    if shots != others:
        kept = sum(shot in shots for shot in others)
        text = f"{len(shots)} became {len(others)}; {kept} {'is' if kept == 1 else 'are'} the same."
        changes.append(VersionChange("Few-shot examples", text))
    return changes


def compare_rewards(old: TaskVersion, new: TaskVersion) -> list[VersionChange]:
    before, after = ({column["name"]: column for column in version.definition["rewards"]} for version in (old, new))
    changes = [VersionChange("Rewards", f"{name} was removed.") for name in before if name not in after]
    for name, column in after.items():
        if name not in before:
            changes.append(VersionChange("Rewards", f"{name} was added: {describe_reward(column)}, weight {column['weight']:g}."))
            continue
        was, now = describe_reward(before[name]), describe_reward(column)
        if was != now:
            changes.append(VersionChange("Rewards", f"{name}: {was} became {now}."))
        elif before[name]["definition"] != column["definition"]:
            changes.append(VersionChange("Rewards", f"{name}: its code changed."))
        elif before[name]["origin"] != column["origin"]:
            changes.append(VersionChange("Rewards", f"{name}: another version of the team’s function that does the same."))
        if before[name]["weight"] != column["weight"]:
            changes.append(VersionChange("Rewards", f"The weight of {name}: {before[name]['weight']:g} became {column['weight']:g}."))
    if list(before)[:1] != list(after)[:1]:
        changes.append(VersionChange("Rewards", f"The accuracy is {next(iter(after))} now."))
    return changes
