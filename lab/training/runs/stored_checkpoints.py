"""Where a run's checkpoints and final policy are: in its folder on this machine, in the store, or nowhere any more.

In the store each has a name of its own attempt, ``runs/<run>/<path>/attempt-<n>``: an attempt that saves the same step again replaces nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from lab.lib.artifact_cache import ArtifactCache
from lab.lib.artifact_store import ArtifactStore, StoreError, open_store
from lab.teams.accounts.models import Team
from lab.training.runs.models import Checkpoint, Run
from trainers.contract.spec import FINAL, Limits

WEIGHTS = (".safetensors",)
POLICY_FILES = (*WEIGHTS, ".json", ".txt", ".model", ".jinja")  # what a policy is: no optimiser, nothing pickled
PATH = re.compile(r"final|checkpoints/checkpoint-[0-9]{1,10}", re.ASCII)


def get_store() -> ArtifactStore | None:
    """The lab's store; None where machines share folders. Raises StoreError."""
    return open_store(settings.STORE_URL)


def require_store() -> ArtifactStore:
    """Raises StoreError."""
    store = get_store()
    if store is None:
        raise StoreError("this process has no LAB_STORE")
    return store


def get_cache() -> ArtifactCache:
    return ArtifactCache(Path(settings.STORE_CACHE), settings.STORE_CACHE_BYTES)


def is_policy_file(name: str) -> bool:
    return name.endswith(POLICY_FILES)


def name_run(run_id: object) -> str:
    """In the store: below it lies all of a run."""
    return f"runs/{run_id}"


def name_checkpoint(checkpoint: Checkpoint) -> str:
    return f"{name_run(checkpoint.run_id)}/{checkpoint.path}/attempt-{checkpoint.attempt}"


def find_local_folder(checkpoint: Checkpoint) -> Path | None:
    """Its folder on this machine; None when that is gone, or when anything below the runs' root is a link or no folder."""
    return find_run_part(checkpoint.run_id, checkpoint.path)


def find_run_part(run_id: object, path: str) -> Path | None:
    if not PATH.fullmatch(path):
        return None
    folder = Path(settings.RUNS_ROOT)
    for part in (str(run_id), *path.split("/")):
        folder /= part
        try:
            status = os.lstat(folder)
        except OSError:
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
    return folder


def find_stored(checkpoint: Checkpoint) -> Checkpoint | None:
    """The row whose files the store has: this one, or that of the newest attempt that saved under the same path."""
    if checkpoint.stored_at is not None:
        return checkpoint
    if not settings.STORE_URL or not PATH.fullmatch(checkpoint.path):
        return None
    return Checkpoint.objects.filter(run=checkpoint.run, path=checkpoint.path).exclude(stored_at=None).order_by("-attempt").first()


def is_checkpoint_there(checkpoint: Checkpoint) -> bool:
    """Whether its files can be had: from this machine's folder or from the store, which is not asked."""
    return find_local_folder(checkpoint) is not None or find_stored(checkpoint) is not None


def find_checkpoints_there(team: Team, checkpoints: Sequence[Checkpoint]) -> set[int]:
    """Keys of those of a team whose files can be had, as ``is_checkpoint_there`` says it of each, with one query for all."""
    found = {checkpoint.pk for checkpoint in checkpoints if checkpoint.stored_at is not None or find_local_folder(checkpoint) is not None}
    missing = [checkpoint for checkpoint in checkpoints if checkpoint.pk not in found and PATH.fullmatch(checkpoint.path)]
    if not missing or not settings.STORE_URL:
        return found
    rows = Checkpoint.objects.of(team).filter(run__in={checkpoint.run_id for checkpoint in missing}).exclude(stored_at=None)
    stored = set(rows.values_list("run", "path"))
    return found | {checkpoint.pk for checkpoint in missing if (checkpoint.run_id, checkpoint.path) in stored}


def list_steps_there(run: Run, rows: Iterable[Checkpoint]) -> list[int]:
    """Steps, ascending, of the run's checkpoints to resume from whose files can be had."""
    return sorted({row.step for row in rows if not row.final and (row.stored_at is not None or find_run_part(run.pk, row.path) is not None)})


def is_policy_there(run: Run, checkpoint: str | int) -> bool:
    """The same for what a spec calls it: ``final`` or a step."""
    path = FINAL if checkpoint == FINAL else f"checkpoints/checkpoint-{checkpoint}"
    return find_run_part(run.pk, path) is not None or Checkpoint.objects.filter(run=run, path=path).exclude(stored_at=None).exists()


def is_policy_elsewhere(policy: Mapping[str, Any]) -> bool:
    """Whether a launched spec's policy is a run's that this machine has not, and the store has: a worker fetches it."""
    if policy.get("kind") != "run" or not settings.STORE_URL:
        return False
    try:
        run = Run(pk=UUID(Path(policy["folder"]).name))
    except ValueError:
        return False
    path = FINAL if policy["checkpoint"] == FINAL else f"checkpoints/checkpoint-{policy['checkpoint']}"
    return not (Path(policy["folder"]) / path).is_dir() and is_policy_there(run, policy["checkpoint"])


def list_resumable_checkpoints(run: Run) -> list[Checkpoint]:
    """Stored checkpoints that the run can go on from, best first: those of a step that no later attempt went back behind."""
    rows = run.checkpoints.filter(final=False).exclude(stored_at=None)
    return sorted(drop_superseded_rows(run, rows), key=lambda row: (-row.step, -row.attempt))


def drop_superseded_rows(run: Run, rows: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Without those of steps that a later attempt, which began before them, does again."""
    starts = dict(run.attempts.values_list("number", "from_step"))
    return [row for row in rows if all(row.step <= step for number, step in starts.items() if number > row.attempt)]


def list_kept_checkpoints(run: Run, rows: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Of ``rows`` those that a run keeps, newest first: as many checkpoints as its spec says, its final policy, of one path the newest attempt's."""
    newest: dict[str, Checkpoint] = {}
    for row in sorted(drop_superseded_rows(run, rows), key=lambda row: (row.attempt, row.step)):
        newest[row.path] = row
    final = [row for row in newest.values() if row.final]
    others = sorted((row for row in newest.values() if not row.final), key=lambda row: (-row.step, -row.attempt))
    return final + others[: count_kept(run)]


def count_kept(run: Run) -> int:
    """How many checkpoints the trainer leaves on its disk (``limits.keep_checkpoints``)."""
    limits = run.spec.get("limits")
    count = limits.get("keep_checkpoints") if isinstance(limits, dict) else None
    return count if isinstance(count, int) and count > 0 else Limits().keep_checkpoints


def describe_storage(run: Run, rows: Iterable[Checkpoint]) -> dict[int, str]:
    """Checkpoint → where its files stand with the store, in words; nothing in a lab without one, and of what the run no longer keeps."""
    rows = list(rows)
    if not settings.STORE_URL or run.outside:
        return {}
    kept = {row.pk for row in list_kept_checkpoints(run, rows) if not row.forgotten}
    return {row.pk: describe_row(row) for row in rows if row.stored_at or row.pk in kept}


def describe_row(row: Checkpoint) -> str:
    if row.stored_at:
        return "stored"
    return f"upload failed, will be retried: {row.store_problem}" if row.store_problem else "being uploaded"
