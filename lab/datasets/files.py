"""The files of a version: canonical JSON lines, written beside and moved into place, then read-only."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from django.utils.text import slugify

from lab.datasets.models import Version
from lab.datasets.rows import Made, canonical
from lab.runs.references import datasets_of

SPLITS = ("train", "test")


def lines(rows: Iterable[Made], split: str) -> bytes:
    return b"".join(canonical(one.row).encode() + b"\n" for one in rows if one.split == split)


def write(version: Version, rows: list[Made]) -> tuple[str, dict[str, str]]:
    """The version's digest and its file names by split. The bytes depend on the rows alone. Raises OSError."""
    content = {split: lines(rows, split) for split in SPLITS}
    digest = hashlib.sha256(content["train"] + content["test"]).hexdigest()
    folder = datasets_of(version.dataset.team)
    folder.mkdir(parents=True, exist_ok=True)
    slug = f"{slugify(version.dataset.name)[:60].strip('-') or 'dataset'}-{version.dataset_id}"
    names = {}
    for split in SPLITS:
        names[split] = f"{slug}-v{version.number}-{digest[:8]}-{split}.jsonl"
        put(folder / names[split], content[split])
    return digest, names


def put(path: Path, content: bytes) -> None:
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


def sha256(rows: Iterable[Made], split: str) -> str:
    """Of the bytes of one file: what a run names beside it, so that a changed file is refused."""
    return hashlib.sha256(lines(rows, split)).hexdigest()
