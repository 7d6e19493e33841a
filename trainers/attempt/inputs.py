"""What an attempt trains and on what, by hash: its rows as they reach the trainer, its held-out prompts, its policy's weights.

Every task draws its rows, a number of them, with the run's seed before training; the hash is over exactly those.
"""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.contract.hyperparameters import Demonstrated, Rollouts
from trainers.contract.steering_file import VECTOR_FILE
from trainers.data.identity import example_digest, row_digest

log = logging.getLogger(__name__)

HASHED_BYTES = 16 << 30  # of weights at most: hashing takes a second or two for each GiB, before training starts


def describe_inputs(attempt: Attempt, rows: Sequence[Any], heldout: HeldOut | None) -> dict[str, Any]:
    """Fields of the event ``Inputs``."""
    training = attempt.spec.training
    digests = map(example_digest, rows) if isinstance(training, Rollouts) else (row_digest(row, training.trainer) for row in rows)
    drawn = isinstance(training, Rollouts | Demonstrated)
    revision = find_hub_revision(attempt.policy.folder)
    return {
        "source": "dataset" if attempt.spec.dataset else "task" if drawn else "policy",
        "rows": len(rows),
        "sha256": digest_rows(digests),
        "heldout_rows": len(heldout.examples) if heldout else 0,
        "heldout_sha256": digest_rows(map(example_digest, heldout.examples)) if heldout else "",
        "revision": revision,
        "weights": "" if revision else digest_weights(attempt.policy.folder),
    }


def digest_rows(digests: Iterable[str]) -> str:
    """SHA-256 over the rows' digests in order, 64 hex digits and a newline each: ``jq -r '.digests[]' dataset.json | sha256sum``.

    Empty where an installed task's examples hold what JSON cannot say: that does not end a run.
    """
    whole = hashlib.sha256()
    try:
        for digest in digests:
            whole.update(f"{digest}\n".encode())
    except TypeError as error:
        log.warning("no hash of the rows is recorded: %s", error)
        return ""
    return whole.hexdigest()


def find_hub_revision(folder: Path) -> str:
    """The commit, where the folder is one of the hub's cache."""
    return folder.name if folder.parent.name == "snapshots" else ""


def digest_weights(folder: Path, most: int = HASHED_BYTES) -> str:
    """What ``LC_ALL=C sha256sum *.safetensors | sha256sum`` says in the folder; empty above ``most`` bytes. A steering vector is not counted."""
    files = sorted((file for file in folder.glob("*.safetensors") if file.name != VECTOR_FILE), key=lambda file: file.name.encode())
    if not files or sum(file.stat().st_size for file in files) > most:
        return ""
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            whole.update(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n".encode())
    return whole.hexdigest()
