"""Freezing: a version is queued with its complete rule and built by a worker.

Until it is ready nothing of it can be seen; afterwards it never changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

from django.db import transaction
from django.db.models import Max

from lab.data.datasets import files, importing_rows, storage_room, tool_rows
from lab.data.datasets.models import Dataset, Form, Row, Source, Version, VersionState
from lab.data.datasets.row_building import BATCH, Composition, Progress, compose_rows, finalize_rows
from lab.data.datasets.rows import BuiltRow
from lab.data.datasets.rules import DatasetRule, RuleError
from lab.data.datasets.sides import SourceRollout, read_sides, read_token_edges
from lab.data.datasets.tool_plan import KEY as TOOL
from lab.data.datasets.tool_plan import ToolPlan
from lab.data.datasets.turn_pairs import compose_turn_labels, select_labelled_rollouts
from lab.data.datasets.votes import gold_scores, items_of, read_judged_items
from lab.labelling.labels.models import Queue
from lab.lib.clock import database_now
from lab.lib.refusals import Problem, Refusal
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.workers.messages import send_task_message

log = logging.getLogger(__name__)

TASK = "freeze"
PREVIEWED = 10_000  # items that a preview looks at


def freeze_next_version(dataset: Dataset, user: User | None, rule: DatasetRule, notes: str = "", **more: Any) -> Version:
    """The next version, queued. Raises RuleError. ``more`` is stored with the rule."""
    if TOOL not in more:
        refuse_tool_dataset(dataset)
    rule = resolve_dataset_rule(dataset, rule)
    with transaction.atomic():
        Dataset.objects.select_for_update().same_row(dataset).get()
        if full := storage_room.find_storage_problem(
            dataset.team, 0 if "import" in more else 1
        ):  # an upload is stored already; what labels give, the build will know
            raise RuleError([full])
        number = (dataset.versions.aggregate(newest=Max("number"))["newest"] or 0) + 1
        version = Version.objects.create(
            dataset=dataset, number=number, rule={**rule.as_json(), **more}, notes=notes, created_by=user, beat_at=database_now()
        )
        Dataset.objects.same_row(dataset).update(rule=rule.as_json())
        record_audit_entry("dataset.freeze", version, team=dataset.team, actor=user, dataset=dataset.pk)
        enqueue_version_build(version)
    return version


def refuse_tool_dataset(dataset: Dataset) -> None:
    """Raises RuleError for a dataset whose rows no rule makes."""
    if dataset.source == Source.TOOL:
        raise RuleError([Problem("rule", "versions of this dataset are made by dataset tools", "apply a tool to one of its sources again")])


def resolve_dataset_rule(dataset: Dataset, rule: DatasetRule) -> DatasetRule:
    """The rule as it will be stored: form and queues are the dataset's. Raises RuleError."""
    queues = set(dataset.queues.values_list("pk", flat=True))
    chosen = (set(rule.queues) or queues) & queues if dataset.source == Source.QUEUES else set[int]()
    rule = replace(rule, form=dataset.form, queues=tuple(sorted(chosen)))
    if dataset.source == Source.QUEUES and not rule.queues:
        raise RuleError([Problem("queues", "no queue is chosen", "choose at least one")])
    rule.check()
    return rule


def enqueue_version_build(version: Version) -> None:
    """Tells the workers once the transaction is committed. A message that cannot be sent now is sent by the next worker's sweep."""
    transaction.on_commit(lambda: send_task_message(TASK, version.pk))


def build_version(version_id: int) -> None:
    """Builds a queued version; one that is claimed, ready or gone is left alone."""
    version = Version.across_teams.select_related("dataset__team").filter(pk=version_id).first()
    if version is None or not version.claim(total_of(version)):
        return
    try:
        composed = composed_of(version)
        version.beat(version.total)
        store_version_rows(version, composed)
    except Refusal as error:
        version.fail(str(error), error.counts)
    except Exception as error:
        log.exception("version %s was not built", version_id)
        version.fail(f"The build failed: {type(error).__name__}: {error}. Nothing was saved; try again.")


def total_of(version: Version) -> int:
    if plan := ToolPlan.read(version.rule):
        return tool_rows.count_source_rows(version, plan)
    if version.dataset.source == Source.IMPORT:
        return 0
    if version.dataset.source == Source.TURNS:
        return select_labelled_rollouts(version.dataset.team, DatasetRule.read(version.rule)).count()
    return int(items_of(version.dataset.team, version.rule.get("queues") or ()).count())


def composed_of(version: Version) -> Composition:
    """What the version will hold. Raises Refusal when that is nothing."""
    if TOOL in version.rule:
        return tool_rows.compose_tool_rows(version, version.beat)
    rule = DatasetRule.read(version.rule)
    if version.dataset.source == Source.IMPORT:
        composed = compose_import(version, rule)
    elif version.dataset.source == Source.TURNS:
        composed = compose_turn_labels(version.dataset.team, rule, progress=version.beat)
    else:
        composed = compose_current_labels(version.dataset.team, rule, progress=version.beat)
    refuse_empty(composed, rule)
    return composed


def compose_current_labels(team: Team, rule: DatasetRule, most: int | None = None, progress: Progress | None = None) -> Composition:
    """The labels as they are now under a rule. ``most``: items that are looked at."""

    def load(ids: Iterable[int]) -> dict[int, SourceRollout]:
        return read_sides(team, ids, steps=rule.form == Form.STEPWISE)

    def edges(ids: Iterable[int]) -> dict[int, list[int]]:
        return read_token_edges(team, ids)

    # Tenancy: queues of a stored rule are looked up in the team again.
    queues = list(Queue.objects.of(team).filter(pk__in=rule.queues).values_list("pk", flat=True))
    scores = gold_scores(team, queues) if rule.aggregation == "weighted" else {}
    return compose_rows(read_judged_items(team, queues, most), rule, load, edges, scores, progress)


def compose_import(version: Version, rule: DatasetRule) -> Composition:
    """Rows of an uploaded file, or of the dataset's first version under other settings."""
    composed = Composition()
    if "import" in version.rule:
        rows = importing_rows.rows_of(version, composed)
    else:
        rows = imported_before(version.dataset)
    finalize_rows(rows, rule, composed)
    return composed


def imported_before(dataset: Dataset) -> list[BuiltRow]:
    """The rows of an imported dataset's first version, in the order of its file."""
    first = dataset.versions.filter(state=VersionState.READY).order_by("number").first()
    rows = [made_of(row) for row in first.rows.iterator(chunk_size=BATCH)] if first else []
    return sorted(rows, key=lambda row: row.provenance.get("line", 0))


def made_of(row: Row) -> BuiltRow:
    return BuiltRow(
        row=row.row,
        digest=row.digest,
        prompt=row.prompt,
        rollouts=list(row.rollouts),
        item=row.item,
        queue=row.queue,
        labellers=list(row.labellers),
        provenance=row.provenance,
        split=row.split,
        suspect=row.suspect,
    )


def refuse_empty(composed: Composition, rule: DatasetRule) -> None:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in composed.left_out.most_common())
    if not composed.rows:
        why = f" Excluded: {reasons}." if reasons else " There are no labels yet."
        raise Refusal(f"No rows are left, so there is nothing to freeze.{why} Relax the rule or label more items.", counts=composed.counts())
    if all(row.split == "test" for row in composed.rows):
        words = f"All {len(composed.rows)} rows fell into the test split (share {rule.test_share:g}). Lower the test share or change the split seed."
        raise Refusal(words, counts=composed.counts())


def store_version_rows(version: Version, composed: Composition) -> None:
    """Files, rows and the state, in this order: a version that is ready is whole. Raises Refusal."""
    uploaded = version.rule.get("import", {}).get("size", 0)  # forgotten at the end
    with storage_room.reserve_storage(
        version.dataset.team, sum(len(files.encode_split_rows(composed.rows, split)) for split in files.SPLITS) - uploaded
    ):
        digest, names = files.write_version_files(version, composed.rows)
    counts = {**composed.counts(), "sha256": {split: files.hash_split_rows(composed.rows, split) for split in files.SPLITS}}
    with transaction.atomic():
        fields = {"digest": digest, "train_file": names["train"], "test_file": names["test"], "counts": counts}
        if not version.finish(**fields, done=version.total):
            return  # somebody else has built it, or it is gone
        every = iter(number_rows_by_split(composed.rows))
        while batch := list(islice(every, BATCH)):
            Row.objects.bulk_create(row_of(version, row, index) for row, index in batch)
    importing_rows.delete_version_upload(version)


def number_rows_by_split(rows: list[BuiltRow]) -> Iterable[tuple[BuiltRow, int]]:
    places = dict.fromkeys(files.SPLITS, 0)
    for row in rows:
        yield row, places[row.split]
        places[row.split] += 1


def row_of(version: Version, built_row: BuiltRow, index: int) -> Row:
    return Row(
        version=version,
        place=index,
        split=built_row.split,
        row=built_row.row,
        digest=built_row.digest,
        prompt=built_row.prompt,
        rollouts=built_row.rollouts,
        item=built_row.item,
        queue=built_row.queue,
        labellers=built_row.labellers,
        provenance=built_row.provenance,
        suspect=built_row.suspect,
    )


def preview_next_version(dataset: Dataset, rule: DatasetRule, most: int | None = None) -> Composition:
    """What the next version of the dataset would hold under a rule; its queues may be others than the dataset's, of the same team.

    Raises RuleError.
    """
    refuse_tool_dataset(dataset)
    rule = replace(rule, form=dataset.form)
    if dataset.source == Source.IMPORT:
        composed = Composition()
        finalize_rows(imported_before(dataset), rule, composed)
        return composed
    if dataset.source == Source.TURNS:
        return compose_turn_labels(dataset.team, rule, most)
    return compose_current_labels(dataset.team, rule, most)
