"""The rows that a dataset tool makes of a version: made in children with limits, and put together with where each row came from.

A made row is in the split of its source row, so that nothing the source held out is trained on. It keeps the labellers, prompt, queue and rollouts of
its source row: a recall of what is behind it flags the version made of it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.data.datasets import uploads
from lab.data.datasets.models import Row, Version, VersionState
from lab.data.datasets.row_building import Composition
from lab.data.datasets.rows import BuiltRow, hash_row_content, to_canonical_json
from lab.data.datasets.tool_plan import KEY, ToolPlan
from lab.lib import bounded_process
from lab.lib.bounded_process import BoundedError, ProcessLimits, TooManyChildren, TooMuchMemory, TooSlow
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team
from trainers.contract.dataset_tools.application import RowOutcome, ToolCounts
from trainers.contract.dataset_tools.base import MadeRow

BATCH = 500  # rows of one child
PREVIEWED, PREVIEW_BYTES = 300, 8_000_000  # the first rows, while they are short
SAMPLES = 5
MOST_MADE = 500_000
PAGE = ProcessLimits(seconds=20, cpu_seconds=10, result=64 << 20)  # while somebody waits for a page
BUILD = ProcessLimits(seconds=60, cpu_seconds=60, result=512 << 20, patience=60)  # of a batch, by a worker
ANSWERS = ("chosen", "rejected", "completion")
KEPT = ("file", "line")  # of the provenance of a row whose answers a tool changed: what people said of it they did not say of the new one


def make_rows_in_child(team: Team, plan: ToolPlan, rows: Sequence[dict[str, Any]], limits: ProcessLimits) -> list[RowOutcome]:
    """What becomes of each row. Raises Refusal where the limits do not suffice."""
    data = b"".join(to_canonical_json(row).encode() + b"\n" for row in rows)
    asked = {"tool": plan.name, "config": plan.config, "form": plan.form, "seed": plan.seed}
    owner = str(uploads.folder_of(team))  # files and tools of a team have one share of the children
    try:
        found = bounded_process.call_in_child("lab.data.datasets.tool_lines:outcome_lines", owner, limits, data, **asked)
        return [RowOutcome([MadeRow(row, note) for row, note in line["made"]], line["dropped"]) for line in found]
    except TooManyChildren:
        raise Refusal("The tool cannot run now: too much is being read at once.", "Try again in a minute.", status=503) from None
    except TooSlow:
        raise Refusal(f"The tool took longer than {limits.cpu_seconds:g} s for {len(rows):,} rows.", "Make fewer rows of each.") from None
    except TooMuchMemory:
        raise Refusal(f"The tool needs more than {limits.memory >> 20:,} MiB of memory for {len(rows):,} rows.", "Make fewer rows of each.") from None
    except BoundedError as error:
        raise Refusal(f"The tool failed: the rows {error.message}.", "Change its settings.") from None


# Looking at what it would do.


@dataclass
class ToolPreview:
    """``counts`` are of the first rows of ``total``; ``samples`` are some of what is made of them."""

    total: int
    counts: ToolCounts = field(default_factory=ToolCounts)
    samples: list[BuiltRow] = field(default_factory=list)

    @property
    def is_cut(self) -> bool:
        return self.counts.read < self.total


def preview_tool(source: Version, plan: ToolPlan) -> ToolPreview:
    """Of the first rows of the train split. Raises Refusal. Nothing is stored."""
    rows = read_preview_rows(source)
    preview = ToolPreview(source.rows.count())
    for row, outcome in zip(rows, make_rows_in_child(source.dataset.team, plan, [row.row for row in rows], PAGE), strict=True):
        preview.counts.add(outcome)
        preview.samples += [build_made_row(row, made, plan) for made in outcome.made[: SAMPLES - len(preview.samples)]]
    return preview


def read_preview_rows(source: Version) -> list[Row]:
    rows, size = list[Row](), 0
    for row in source.rows.order_by("-split", "place")[:PREVIEWED].iterator(chunk_size=50):
        rows.append(row)
        size += len(to_canonical_json(row.row))
        if size > PREVIEW_BYTES:
            break
    return rows


# Building a version of it.


def find_source_version(version: Version, plan: ToolPlan) -> Version:
    """Raises Refusal for a source that is gone or holds other rows, which a version that is ready never does."""
    source = Version.objects.of(version.dataset.team).filter(pk=plan.version, state=VersionState.READY, digest=plan.digest).first()
    if source is None:
        raise Refusal(f"{plan.source} is not there any more.", "Apply the tool to another version.")
    return source


def count_source_rows(version: Version, plan: ToolPlan) -> int:
    return int(Row.objects.of(version.dataset.team).filter(version=plan.version).count())


def compose_tool_rows(version: Version, progress: Callable[[int], object]) -> Composition:
    """The rows of a version made by a tool. Raises Refusal, also where there would be none."""
    plan = ToolPlan(**version.rule[KEY])
    plan.load()  # a tool that is gone is told before a child fails with it
    source, composed = find_source_version(version, plan), Composition()
    seen = set[str]()
    for rows in batch_source_rows(source):
        outcomes = make_rows_in_child(version.dataset.team, plan, [row.row for row in rows], BUILD)
        for row, outcome in zip(rows, outcomes, strict=True):
            add_outcome(row, outcome, plan, composed, seen)
        composed.items += len(rows)
        progress(composed.items)
        if len(composed.rows) > MOST_MADE:
            raise Refusal(f"The tool makes more than {MOST_MADE:,} rows.", "Make fewer of each row.", counts=composed.counts())
    refuse_useless(composed)
    return composed


def batch_source_rows(source: Version) -> Iterator[list[Row]]:
    """In the order they were frozen in. No cursor stays open: a call in a child gives the database connection back."""
    last = 0
    while rows := list(source.rows.filter(pk__gt=last).order_by("pk")[:BATCH]):
        last = rows[-1].pk
        yield rows


def add_outcome(row: Row, outcome: RowOutcome, plan: ToolPlan, composed: Composition, seen: set[str]) -> None:
    """Of made rows that say the same the first one is kept."""
    if outcome.dropped:
        composed.left_out[outcome.dropped] += 1
    for made in outcome.made:
        built = build_made_row(row, made, plan)
        if built.digest in seen:
            composed.left_out["duplicates"] += 1
            continue
        seen.add(built.digest)
        composed.rows.append(built)


def build_made_row(source: Row, made: MadeRow, plan: ToolPlan) -> BuiltRow:
    return BuiltRow(
        row=made.row,
        digest=hash_row_content(made.row),
        prompt=source.prompt,
        rollouts=list(source.rollouts),
        item=source.item,
        queue=source.queue,
        labellers=list(source.labellers),
        provenance=derive_provenance(source, made, plan),
        split=source.split,
    )


def derive_provenance(source: Row, made: MadeRow, plan: ToolPlan) -> dict[str, Any]:
    """Where a made row came from: of each answer that stayed as it was its rollout, and under ``tool`` what was done to which row of the source.

    Where an answer was changed, votes and strength are left out: they were given to other answers.
    """
    before = {to_canonical_json(source.row[side]): side for side in ANSWERS if side in source.row}
    origins = {side: before.get(to_canonical_json(made.row[side])) for side in ANSWERS if side in made.row}
    changed = [side for side, origin in origins.items() if origin is None]
    told = {"name": plan.name, "note": made.note, "split": source.split, "row": source.place + 1, "changed": changed}
    if all(side == origin for side, origin in origins.items()):
        return {**source.provenance, "tool": told}
    sides = source.provenance.get("sides") or {}
    kept = {}
    for side, origin in origins.items():
        known = "chosen" if origin == "completion" and "chosen" in sides else origin  # completions are under the side that they were
        if known in sides:
            kept[side] = sides[known]
    return {**{name: source.provenance[name] for name in KEPT if name in source.provenance}, "sides": kept, "tool": told}


def refuse_useless(composed: Composition) -> None:
    """Raises Refusal where nobody could train on the rows."""
    words = ""
    if not composed.rows:
        words = "The tool made no rows."
    elif all(row.split == "test" for row in composed.rows):
        words = f"All {len(composed.rows):,} rows that the tool made are in the test split, as in the source."
    if words:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in composed.left_out.most_common())
        left_out = f" Left out: {reasons}." if reasons else ""
        raise Refusal(f"{words}{left_out}", "Change its settings or choose other rows.", counts=composed.counts())
