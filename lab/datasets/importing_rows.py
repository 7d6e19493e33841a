"""Rows of an uploaded file: looked at before it becomes a dataset, read again by the build."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from lab.datasets import uploads
from lab.datasets.cleaning import Evidence
from lab.datasets.composing import Composed
from lab.datasets.models import Version
from lab.datasets.raw import Broken, Unreadable, records
from lab.datasets.rows import Made, digest_of
from lab.datasets.rules import Refused
from lab.datasets.shapes import Mapped, convert

LISTED = 50  # broken rows that are named
LOOKED_AT = 50  # rows a guess is made from
SAMPLES = 5
BROKEN = "broken rows of the file"


@dataclass
class Seen:
    """What a file gives under a mapping. ``broken``: (line, reason) of the first LISTED."""

    rows: int = 0
    wrong: int = 0
    broken: list[tuple[int, str]] = field(default_factory=list)
    samples: list[Made] = field(default_factory=list)


def head(path: Path, kind: str) -> list[Any]:
    """The first rows as they are. Raises Unreadable."""
    return [raw for _, raw in islice(records(path, kind), LOOKED_AT)]


def look(path: Path, kind: str, mapped: Mapped, name: str) -> Seen:
    """Raises Unreadable."""
    seen = Seen()
    for made in converted(path, kind, mapped, name):
        if isinstance(made, Made):
            seen.rows += 1
            if len(seen.samples) < SAMPLES:
                seen.samples.append(made)
        else:
            seen.wrong += 1
            if len(seen.broken) < LISTED:
                seen.broken.append(made)
    return seen


def converted(path: Path, kind: str, mapped: Mapped, name: str) -> Iterator[Made | tuple[int, str]]:
    """Each row of the file, or its line and what is wrong with it. Raises Unreadable."""
    for line, raw in records(path, kind):
        try:
            row, scores = convert(raw, mapped)
            digest = digest_of(row)
        except Broken as error:
            yield line, str(error)
        except RecursionError:
            yield line, "is nested too deeply"
        else:
            gap = scores["chosen"] - scores["rejected"] if len(scores) == 2 else None
            told = {"file": name, "line": line, "sides": {}, **({"scores": scores} if scores else {})}
            yield Made(row, digest, None, [], None, None, [], told, evidence=Evidence(gap=gap))


def described(upload: uploads.Upload, mapped: Mapped, skip: bool) -> dict[str, Any]:
    """What a version's rule says about its file."""
    return {"import": {**asdict(upload), "shape": mapped.shape, "form": str(mapped.form), "columns": dict(mapped.columns), "skip": skip}}


def rows_of(version: Version, found: Composed) -> list[Made]:
    """The rows of the file that ``rule["import"]`` names. Raises Refused."""
    own = version.rule["import"]
    team = version.dataset.team
    upload = uploads.find(team, str(own.get("token", "")))
    if upload is None:
        raise Refused("The uploaded file is gone: uploads are kept for a day. Upload it again.")
    mapped = Mapped(own["shape"], own["form"], own["columns"])
    rows = []
    try:
        for made in converted(uploads.path_of(team, upload), upload.kind, mapped, upload.name):
            found.items += 1
            if isinstance(made, Made):
                rows.append(made)
                continue
            if not own.get("skip"):
                raise Refused(f"Line {made[0]} of {upload.name} {made[1]}. Nothing was made.")
            found.left_out[BROKEN] += 1
    except Unreadable as error:
        raise Refused(f"{upload.name} {error.message}. {error.fix[:1].upper()}{error.fix[1:]}.") from None
    return rows


def forget(version: Version) -> None:
    """The uploaded file is not needed any more: its rows are in the version."""
    if own := version.rule.get("import"):
        uploads.forget(version.dataset.team, str(own.get("token", "")))
