"""A version of a task is made: its rows read in a child with limits, its file written beside and moved into place, then read-only."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from django.db.models.functions import Now
from django.utils.text import slugify

from lab.data.datasets import storage_room, uploads
from lab.data.tasks.models import Task, TaskVersion, find_task_folder
from lab.data.tasks.rows import MOST_ROWS, RowPlan
from lab.data.tasks.sources import DATASET, Source
from lab.lib import bounded_process
from lab.lib.bounded_process import BoundedError, ProcessLimits, TooManyChildren
from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.teams.accounts.models import Project, Team, User
from lab.teams.audit.recording import record_audit_entry
from trainers.contract.task_files import SUFFIX

READ = "lab.data.tasks.rows:iterate_task_rows"
PAGE = ProcessLimits(seconds=60, cpu_seconds=45, result=512 << 20)  # while somebody waits for a page that says so
Row = dict[str, Any]


@dataclass(frozen=True)
class TaskWish:
    """What is asked for, checked but for the rows. ``definition``: as JSON, of the contract."""

    name: str
    definition: dict[str, Any]
    plan: RowPlan
    note: str = ""
    project: Project | None = None


def read_rows(source: Source, plan: RowPlan, most: int | None = None) -> Iterator[Row]:
    """The rows of a task, and last ``{"end": …}``. Raises Refusal, also after some rows."""
    try:
        asked: dict[str, Any] = {"path": str(source.path), "kind": source.file_kind, "plan": plan.as_json(), "most": most}
        for row in bounded_process.call_in_child(READ, str(source.path.parent), PAGE, **asked):
            if "unreadable" in row:
                message, fix = row["unreadable"]
                raise Refusal(f"{source.name} {message}.", f"{fix[:1].upper()}{fix[1:]}.", "source", status=422)
            yield row
    except BoundedError as error:
        status = 503 if isinstance(error, TooManyChildren) else 422
        raise Refusal(f"{source.name} {error.message}.", f"{error.fix[:1].upper()}{error.fix[1:]}.", "source", status=status) from None


def find_row_problems(counts: Row, plan: RowPlan, file_kind: str) -> list[Problem]:
    """What the rows as a whole lack for a task."""
    where = "Row" if file_kind in ("json", "parquet") else "Line"
    problems = []
    if counts["skipped"] and not plan.skip:
        line, why = counts["invalid"][0]
        what = "1 row is invalid" if counts["skipped"] == 1 else f"{counts['skipped']:,} rows are invalid"
        problems.append(Problem("skip", f"{what}. {where} {line}: {why}.", "Skip them, or correct the file."))
    if counts["crossings"]:
        first = counts["crossing"][0]
        what = "1 prompt is" if counts["crossings"] == 1 else f"{counts['crossings']:,} prompts are"
        fix = "Split by share, which keeps equal prompts together, or correct the column."
        problems.append(Problem("split_column", f"{what} both held out and trained on. The first: {where.lower()} {first}.", fix))
    if not counts["rows"]:
        problems.append(Problem("column_prompt", "No row has a prompt in this column.", "Choose another column."))
    elif not counts["train"]:
        problems.append(Problem("share", "Every row is held out: none is left to train on.", "Hold out less."))
    return problems


def create_version(team: Team, user: User | None, wish: TaskWish, source: Source, task: Task | None = None) -> TaskVersion:
    """The next version of ``task``, or version 1 of a new one. Raises Refusal, then nothing is made."""
    folder = find_task_folder(team.pk)
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            digest, counts = write_task_file(file, wish, source)
        if problems := find_row_problems(counts, wish.plan, source.file_kind):
            raise InputRefusal(problems)
        size = Path(temporary).stat().st_size
        with storage_room.reserve_storage(team, size + (0 if source.kind == DATASET else source.size)):
            version = store_version(team, user, wish, source, task, digest, size, counts)
            os.chmod(temporary, 0o444)
            os.replace(temporary, version.path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    if source.upload is not None:
        uploads.delete_upload(team, source.upload.token)
    return version


def write_task_file(file: IO[bytes], wish: TaskWish, source: Source) -> tuple[str, Row]:
    """The file's SHA-256 and what its rows hold. Raises Refusal."""
    whole, counts = hashlib.sha256(), dict[str, Any]()
    for row in iterate_lines(wish, source):
        if "end" in row:
            counts = row["end"]
            continue
        line = json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        whole.update(line)
        file.write(line)
    file.flush()
    os.fsync(file.fileno())
    return whole.hexdigest(), counts


def iterate_lines(wish: TaskWish, source: Source) -> Iterator[Row]:
    yield wish.definition
    yield from read_rows(source, wish.plan)


def store_version(
    team: Team, user: User | None, wish: TaskWish, source: Source, task: Task | None, digest: str, size: int, counts: Row
) -> TaskVersion:
    """The row of the version, its task made or renamed. Needs a transaction. Raises Refusal."""
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)  # two people who save at once get two numbers
    refuse_used_name(team, wish.name, task)
    if task is None:
        task = Task.objects.create(team=team, name=wish.name, project=wish.project, created_by=user)
        record_audit_entry("task.create", task, source=source.kind, file=source.name, rows=counts["rows"])
    newest = task.versions.first()
    if newest is not None and newest.sha256 == digest:
        raise Refusal(f"Nothing has changed since {newest}.", "Change something, or leave.", "note", status=422)
    number = newest.number + 1 if newest else 1
    slug = slugify(wish.name)[:60].strip("-") or "task"
    version = task.versions.create(
        number=number,
        definition=wish.definition,
        plan=wish.plan.as_json(),
        source=keep_source(team, source),
        counts=counts,
        file=f"{slug}-{task.pk}-v{number}-{digest[:8]}{SUFFIX}",
        sha256=digest,
        size=size,
        note=wish.note,
        created_by=user,
    )
    Task.objects.same_row(task).update(name=wish.name, project=wish.project, changed_at=Now())
    task.refresh_from_db()
    record_audit_entry("task.version", task, version=number, rows=counts["rows"], sha256=digest)
    return version


def refuse_used_name(team: Team, name: str, task: Task | None) -> None:
    other = Task.objects.filter(team=team, name=name).first()
    if other is None or other == task:
        return
    if other.binned_at:
        raise Refusal("A deleted task has this name.", "Restore that one, or choose another name.", "name", status=422)
    raise Refusal("A task of the team has this name.", "Make a new version of it, or choose another name.", "name", status=422)


def keep_source(team: Team, source: Source) -> dict[str, Any]:
    """What the version says of its source, whose file is kept with it so that its columns can be chosen anew. Equal files are kept once."""
    told = {**source.about, "kind": source.kind, "name": source.name, "file_kind": source.file_kind, "size": source.size}
    if source.kind == DATASET:
        return told
    with source.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    name = f"{digest[:32]}.source"
    target = find_task_folder(team.pk) / name
    if not target.exists():
        part = target.with_name(f".{name}.part")
        shutil.copyfile(source.path, part)
        os.chmod(part, 0o444)
        os.replace(part, target)
    return {**told, "file": name, "sha256": digest}


def describe_limits() -> str:
    """What may be uploaded, said before somebody does."""
    return f"up to {uploads.MOST_BYTES // 1_000_000} MB and {MOST_ROWS:,} rows"
