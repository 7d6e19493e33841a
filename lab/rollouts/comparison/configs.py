"""The configurations of several runs as one table: a row a setting, the changed ones first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab.training.edits.rows import summarize_run_edits
from lab.training.runs.form_changes import flatten_spec_leaves
from lab.training.runs.models import Run
from lab.training.runs.stack import stack_of

HIDDEN = ("version", "output", "policy", "base", "methods")  # a path, or said in words of our own
NOTHING = "–"
SEED = "seed"
EDITS = "edited while training"


@dataclass(frozen=True)
class ComparedSetting:
    """``values``: one text a run, in the order of the runs. ``marks``: for each, whether it differs from the first run's."""

    key: str
    values: list[str]

    @property
    def changed(self) -> bool:
        return len(set(self.values)) > 1

    @property
    def cells(self) -> list[tuple[str, bool]]:
        return [(value, value != self.values[0]) for value in self.values]


def settings_of(run: Run) -> dict[str, str]:
    """Dotted path → value as text; the stack by its names, each method's parameters under its name."""
    spec = run.spec if isinstance(run.spec, dict) else {}
    stack = stack_of(spec)
    values = {"recipe": run.recipe, "policy": run.policy, "base": stack.base, "methods": ", ".join(stack.methods)}
    values |= {
        path: format_setting_value(value) for path, value in flatten_spec_leaves(spec).items() if path.split(".")[0] not in (*HIDDEN, "recipe")
    }
    for choice in [spec.get("base"), *(spec.get("methods") or [])]:
        config = choice.get("config") if isinstance(choice, dict) else None
        values |= (
            {f"method.{choice.get('name', '')}.{key}": format_setting_value(value) for key, value in (config or {}).items()}
            if isinstance(choice, dict)
            else {}
        )
    return {path: value or NOTHING for path, value in values.items()}


def format_setting_value(value: Any) -> str:
    return value if isinstance(value, str) else "" if value in (None, {}, []) else json.dumps(value, ensure_ascii=False)


def build_settings_table(runs: Sequence[Run]) -> list[ComparedSetting]:
    """Every setting of any of the runs; changed ones first, and what was edited while a run trained; each part in the order the specs have them."""
    edits = summarize_run_edits(runs)
    edited = {EDITS: NOTHING} if edits else {}
    configs = [settings_of(run) | edited | ({EDITS: "; ".join(edits[str(run.pk)])} if str(run.pk) in edits else {}) for run in runs]
    rows = [
        ComparedSetting(key, [config.get(key, NOTHING) for config in configs]) for key in dict.fromkeys(key for config in configs for key in config)
    ]
    return sorted(rows, key=lambda row: not row.changed)


def list_groupable_settings(rows: Sequence[ComparedSetting]) -> list[ComparedSetting]:
    """The settings runs can be grouped by: changed ones, the seed last, because grouping by it groups nothing."""
    return sorted((row for row in rows if row.changed), key=lambda row: row.key == SEED)
