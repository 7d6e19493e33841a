"""The files of a version: canonical JSON lines, written beside and moved into place, then read-only."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from django.utils.text import slugify

from lab.data.datasets.models import Version
from lab.data.datasets.rows import BuiltRow, to_canonical_json
from lab.training.runs.references import datasets_of

SPLITS = ("train", "test")


def encode_split_rows(rows: Iterable[BuiltRow], split: str) -> bytes:
    return b"".join(to_canonical_json(row.row).encode() + b"\n" for row in rows if row.split == split)


def write_version_files(version: Version, rows: list[BuiltRow]) -> tuple[str, dict[str, str]]:
    """The version's digest and its file names by split. The bytes depend on the rows alone. Raises OSError."""
    content = {split: encode_split_rows(rows, split) for split in SPLITS}
    digest = hashlib.sha256(content["train"] + content["test"]).hexdigest()
    folder = datasets_of(version.dataset.team)
    folder.mkdir(parents=True, exist_ok=True)
    slug = f"{slugify(version.dataset.name)[:60].strip('-') or 'dataset'}-{version.dataset_id}"
    names = {}
    for split in SPLITS:
        names[split] = f"{slug}-v{version.number}-{digest[:8]}-{split}.jsonl"
        write_file_atomically(folder / names[split], content[split])
    return digest, names


def write_file_atomically(path: Path, content: bytes) -> None:
    """All of it or nothing, never changed afterwards."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o444)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def hash_split_rows(rows: Iterable[BuiltRow], split: str) -> str:
    """Of the bytes of one file: what a run names beside it, so that a changed file is refused."""
    return hashlib.sha256(encode_split_rows(rows, split)).hexdigest()
