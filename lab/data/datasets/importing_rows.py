"""Rows of an uploaded file: looked at before it becomes a dataset, read again by the build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.data.datasets import uploads
from lab.data.datasets.cleaning import LabelEvidence
from lab.data.datasets.file_reader import BUILD, PAGE, read_records_in_child
from lab.data.datasets.formats.base import ColumnMapping
from lab.data.datasets.formats.reading import FORMATS, convert_row, left_out
from lab.data.datasets.models import Version
from lab.data.datasets.raw import RowError, UnreadableFile
from lab.data.datasets.row_building import Composition
from lab.data.datasets.rows import BuiltRow, hash_row_content
from lab.lib.bounded_process import ProcessLimits
from lab.lib.refusals import Refusal

LISTED = 50  # broken rows that are named
LOOKED_AT = 50  # rows a guess is made from
SAMPLES = 3
BROKEN = "invalid rows of the file"
ROW_NUMBERED = ("json", "parquet")  # kinds whose records are counted by rows and not by lines


@dataclass
class ImportPreview:
    """What a file gives under a mapping. ``broken``: (line, reason) of the first LISTED; ``left_out``: column -> rows in which it holds something."""

    rows: int = 0
    wrong: int = 0
    broken: list[tuple[int, str]] = field(default_factory=list)
    samples: list[BuiltRow] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_first_rows(path: Path, kind: str) -> list[Any]:
    """The first rows as they are. Raises UnreadableFile, also where none of them can be used: there would be no column to choose."""
    records = list(read_records_in_child(path, kind, LOOKED_AT))
    if not records:
        raise UnreadableFile("has no rows", "choose a file with at least one row")
    if all(isinstance(raw, RowError) for _, raw in records):
        line, error = records[0]
        raise UnreadableFile(f"has no valid row: {'row' if kind in ROW_NUMBERED else 'line'} {line} {error}", "correct the file and upload it again")
    return [raw for _, raw in records]


def inspect_import(path: Path, kind: str, mapped: ColumnMapping, name: str) -> ImportPreview:
    """Raises UnreadableFile."""
    seen = ImportPreview()
    for row, unused in convert_file_rows(path, kind, mapped, name):
        if isinstance(row, BuiltRow):
            seen.rows += 1
            seen.left_out.update(unused)
            if len(seen.samples) < SAMPLES:
                seen.samples.append(row)
        else:
            seen.wrong += 1
            if len(seen.broken) < LISTED:
                seen.broken.append(row)
    return seen


def convert_file_rows(
    path: Path, kind: str, mapped: ColumnMapping, name: str, limits: ProcessLimits = PAGE
) -> Iterator[tuple[BuiltRow | tuple[int, str], list[str]]]:
    """Each row of the file with the columns that it leaves out, or its line and what is wrong with it. Raises UnreadableFile."""
    for line, raw in read_records_in_child(path, kind, limits=limits):
        try:
            converted = convert_row(raw, mapped)
            digest, unused = hash_row_content(converted.row), left_out(raw, mapped)
        except RowError as error:
            yield (line, str(error)), []
        except RecursionError:
            yield (line, "is nested too deeply"), []
        except ValueError as error:  # canonical JSON has no NaN and no infinity
            yield (line, f"cannot be written as JSON: {error}"), []
        else:
            scores = dict(converted.scores)
            gap = scores["chosen"] - scores["rejected"] if {"chosen", "rejected"} <= scores.keys() else None
            told = {"file": name, "line": line, "sides": {}, **({"scores": scores} if scores else {})}
            yield BuiltRow(converted.row, digest, None, [], None, None, [], told, evidence=LabelEvidence(gap=gap)), unused


def describe_import(upload: uploads.Upload, mapped: ColumnMapping, skip: bool, leaves: Iterable[str]) -> dict[str, Any]:
    """What a version's rule says about its file. ``leaves``: the columns that somebody agreed to leave out."""
    return {"import": {**asdict(upload), **asdict(mapped), "skip": skip, "left_out": sorted(leaves)}}


def rows_of(version: Version, composed: Composition) -> list[BuiltRow]:
    """The rows of the file that ``rule["import"]`` names. Raises Refusal."""
    own = version.rule["import"]
    team = version.dataset.team
    upload = uploads.find_upload(team, str(own.get("token", "")))
    if upload is None:
        raise Refusal("The upload has expired: uploads are kept for a day. Upload the file again.")
    if own.get("format") not in FORMATS:
        raise Refusal("This import was started with another version of the lab. Upload the file again.")
    mapped, agreed = ColumnMapping(own["format"], own["columns"], own["settings"]), set(own["left_out"])
    rows = []
    try:
        for row, unused in convert_file_rows(uploads.path_of(team, upload), upload.kind, mapped, upload.name, BUILD):
            composed.items += 1
            if isinstance(row, BuiltRow):
                if more := sorted(set(unused) - agreed):
                    raise Refusal(f"{upload.name} has unconfirmed unused columns: {', '.join(more)}. Nothing was imported.")
                rows.append(row)
                continue
            if not own.get("skip"):
                raise Refusal(f"Import failed: line {row[0]} of {upload.name} {row[1]}. Nothing was imported.")
            composed.left_out[BROKEN] += 1
    except UnreadableFile as error:
        raise Refusal(f"{upload.name} {error.message}. {error.fix[:1].upper()}{error.fix[1:]}.") from None
    return rows


def delete_version_upload(version: Version) -> None:
    """The uploaded file is not needed any more: its rows are in the version."""
    if own := version.rule.get("import"):
        uploads.delete_upload(version.dataset.team, str(own.get("token", "")))
