"""What exactly a run was trained on: the digest of its dataset's file, and of every row as it reached the trainer.

A row's digest is the SHA-256 of its canonical JSON: keys sorted, no spaces, UTF-8, only the columns that are trained on. Whoever froze the
dataset can work it out from the rows alone and compare.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainers.contract import spans
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import DatasetChoice
from trainers.data import datasets
from trainers.tasks.base import Example

FILE = "dataset.json"
FIX = "freeze a new version, or take the sha256 out to train on the file as it is now"


def check_dataset_digest(choice: DatasetChoice) -> str:
    """The SHA-256 of the dataset's file. Raises SpecError when the spec names another one, or when the file cannot be read."""
    path = Path(choice.path)
    try:
        if not path.is_file():
            raise datasets.make_dataset_error(
                path, "is not a regular file" if path.exists() else "does not exist", "name one .jsonl or .parquet file"
            )
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise datasets.make_dataset_error(path, f"cannot be read: {error.strerror or error}", "check the path and its permissions") from None
    if choice.sha256 is not None and found != choice.sha256:
        message = f"the file has changed since it was frozen: its SHA-256 is now {found}"
        raise SpecError([Problem("dataset.sha256", choice.sha256, message, FIX)])
    return found


def row_digest(row: Mapping[str, Any], trainer: str) -> str:
    """SHA-256 of the columns that ``trainer`` trains on; of dpo also weight and margin, of dpo and sft the marked spans, where the row has them."""
    trained = {column: row[column] for column in datasets.COLUMNS[trainer]}
    if trainer in ("dpo", "sft"):
        trained |= {name: row[name] for name in map(spans.span_column, datasets.COLUMNS[trainer]) if row.get(name)}
    if trainer == "dpo":
        trained |= {column: float(row[column]) for column in datasets.NUMBERS if row.get(column) is not None}
    return digest_canonical_json(trained)


def example_digest(example: Example) -> str:
    """SHA-256 of an example of a task: its prompt, its reference, and the data that its reward functions read."""
    told = {"prompt": [{"role": message.role, "content": message.content} for message in example.prompt]}
    return digest_canonical_json({**told, "reference": example.reference, "data": example.data})


def digest_canonical_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")).hexdigest()


def write_dataset_identity(folder: Path, choice: DatasetChoice, rows: Iterable[Mapping[str, Any]], trainer: str) -> None:
    """``dataset.json`` of a run folder, whole or not at all: the file, its digest, and the rows' digests in the order they are numbered in.

    Raises SpecError as ``check_dataset_digest`` does: the file may have changed while it was read.
    """
    digests = [row_digest(row, trainer) for row in rows]
    told = {"path": choice.path, "sha256": check_dataset_digest(choice), "rows": len(digests), "digests": digests}
    part = folder / f".{FILE}"
    part.write_text(json.dumps(told))
    os.replace(part, folder / FILE)
