"""Where a task's rows come from: a file that was uploaded, a frozen dataset version, what a worker fetched, or the rows of the version before."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.data.datasets import uploads
from lab.data.datasets.file_reader import read_records_in_child
from lab.data.datasets.models import Version, VersionState
from lab.data.datasets.raw import KINDS, RowError, UnreadableFile
from lab.data.tasks.models import Fetch, FetchState, Task, TaskVersion, find_task_folder
from lab.lib.numbers import MAX_ID, parse_whole_number
from lab.lib.refusals import Refusal
from lab.rollouts.trajectories.text_pieces import escape_invisible_text
from lab.teams.accounts.models import Team

LOOKED_AT = 50  # rows that the columns are read from
MOST_SHOWN = 300  # columns offered
INPUTS = ("upload", "dataset", "fetch")  # that name a source
FILE, DATASET, HUB, GYM = "file", "dataset", "hub", "gym"
# Names people give to columns, by what they become; the first that is there is chosen.
KNOWN = {
    "prompt": ("prompt", "question", "problem", "instruction", "input", "query", "messages"),
    "reference": ("reference", "answer", "solution", "ground_truth", "target", "expected", "label", "output"),
    "demonstration": ("demonstration", "completion", "response", "worked_solution"),
    "split_column": ("split", "subset"),
}
HELDOUT_VALUES = ("test", "heldout", "held-out", "validation", "valid", "eval", "dev")


@dataclass(frozen=True)
class Source:
    """``key`` and ``value`` are the hidden input that names it; ``about``: what the version will say of it. ``upload``: taken over by the version."""

    kind: str
    name: str
    path: Path
    file_kind: str
    size: int
    key: str
    value: str
    about: dict[str, Any] = field(default_factory=dict)
    upload: uploads.Upload | None = None

    @property
    def words(self) -> str:
        return KINDS[self.file_kind]


@dataclass(frozen=True)
class Columns:
    """``names`` in the order of the file; ``values``: of each the first, shortened. ``hidden``: how many more there are than are offered."""

    names: list[str]
    values: dict[str, str]
    distinct: dict[str, list[str]]  # of columns with few values, all that were seen
    hidden: int

    @property
    def examples(self) -> list[tuple[str, str, str]]:
        """(name, name as text, an example)"""
        return [(name, escape_invisible_text(name) or "(no name)", self.values[name]) for name in self.names]


def find_source(team: Team, params: Mapping[str, str], task: Task | None = None) -> Source | None:
    """The source that an address or a form names; without one that of the task's newest version. Raises Refusal for one that is gone."""
    if token := params.get("upload", ""):
        return find_uploaded(team, token)
    if text := params.get("dataset", ""):
        return find_dataset_source(team, text)
    if text := params.get("fetch", ""):
        fetch = find_fetch(team, text)
        if fetch is None or fetch.state != FetchState.READY:
            raise Refusal("These rows are not fetched.", "Fetch them again.", "source", status=404)
        return find_fetched(team, fetch)
    newest = task.newest if task else None
    return find_kept_source(newest) if newest else None


def find_uploaded(team: Team, token: str) -> Source:
    upload = uploads.find_upload(team, token)
    if upload is None:
        raise Refusal("This upload has expired: uploads are kept for a day.", "Choose the file again.", "source", status=404)
    return Source(FILE, upload.name, uploads.path_of(team, upload), upload.kind, upload.size, "upload", token, upload=upload)


def find_dataset_source(team: Team, text: str) -> Source:
    key = parse_whole_number(text, MAX_ID, 1)
    version = Version.objects.of(team).filter(pk=key, state=VersionState.READY).select_related("dataset").first() if key else None
    if version is None or not version.path().is_file():
        raise Refusal("Your team has no such dataset version.", "Choose one from the list.", "source", status=404)
    return Source(DATASET, str(version), version.path(), "jsonl", version.path().stat().st_size, "dataset", str(version.pk), {"version": version.pk})


def find_fetch(team: Team, text: str) -> Fetch | None:
    try:
        return Fetch.objects.of(team).filter(pk=uuid.UUID(text)).first()
    except ValueError:
        return None


def find_fetched(team: Team, fetch: Fetch) -> Source:
    found = find_uploaded(team, fetch.token)
    about = {**fetch.settings, **fetch.about}
    return Source(fetch.kind, found.name, found.path, found.file_kind, found.size, "fetch", str(fetch.pk), about, found.upload)


def find_kept_source(version: TaskVersion) -> Source:
    """What a version was made of. Raises Refusal where that is gone."""
    own = version.source
    if own["kind"] == DATASET:
        return find_dataset_source(version.task.team, str(own["version"]))
    path = find_task_folder(version.task.team_id) / own["file"]
    if not path.is_file():
        raise Refusal(f"The rows that {version} was made of are gone.", "Choose a file.", "source", status=404)
    about = {name: value for name, value in own.items() if name not in ("kind", "name", "file", "file_kind", "size", "sha256")}
    return Source(own["kind"], own["name"], path, own["file_kind"], own["size"], "", "", about)


def read_columns(source: Source) -> Columns:
    """Of its first rows. Raises UnreadableFile."""
    names: dict[str, str] = {}
    distinct: dict[str, dict[str, None]] = {}
    problem = ""
    for line, row in read_records_in_child(source.path, source.file_kind, LOOKED_AT):
        if isinstance(row, RowError) or not isinstance(row, dict):
            problem = problem or f"{line} {row if isinstance(row, RowError) else 'is not an object with columns'}"
            continue
        for name, value in row.items():
            if value is not None and value != "" and not names.get(name):
                names[name] = shorten_value(value)
            elif name not in names:
                names[name] = ""
            if isinstance(value, str | int | bool) and len(str(value)) <= 60:
                distinct.setdefault(name, {}).setdefault(str(value).strip(), None)
    if not names:
        raise UnreadableFile(f"has no valid row: row {problem}" if problem else "has no rows", "correct the file and upload it again")
    offered = list(names)[:MOST_SHOWN]
    few = {name: sorted(distinct[name]) for name in offered if name in distinct and len(distinct[name]) <= 12}
    return Columns(offered, {name: names[name] for name in offered}, few, len(names) - len(offered))


def shorten_value(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)[:400]
    text = escape_invisible_text(" ".join(text[:400].split()))
    return text if len(text) <= 120 else f"{text[:119]}…"


def guess_plan(columns: Columns) -> dict[str, Any]:
    """Columns by their usual names. A column called split, with values that say so, holds rows out."""
    lower = {name.lower().strip().replace(" ", "_"): name for name in reversed(columns.names)}
    plan: dict[str, Any] = {}
    for part, usual in KNOWN.items():
        found = next((lower[name] for name in usual if name in lower and lower[name] not in plan.values()), "")
        plan[part] = found
    values = [value for value in columns.distinct.get(plan["split_column"], []) if value.lower() in HELDOUT_VALUES]
    plan |= {"split": "column", "heldout": values} if values else {"split": "share"}
    used = {plan[part] for part in KNOWN}
    plan["data"] = [name for name in columns.names if name not in used][:20] if len(columns.names) <= 20 else []
    return plan
