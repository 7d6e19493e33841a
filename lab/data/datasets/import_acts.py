"""An uploaded file becomes a dataset with a frozen version 1: kept, checked against what the person agreed to, made. By whomever it is asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from django.db import transaction

from lab.data.datasets import importing_rows, storage_room, uploads
from lab.data.datasets.file_reader import detect_kind_in_child
from lab.data.datasets.formats.base import ColumnMapping
from lab.data.datasets.formats.reading import form_of
from lab.data.datasets.freezing import freeze_next_version
from lab.data.datasets.importing_rows import ImportPreview
from lab.data.datasets.models import Dataset, Source, Version
from lab.data.datasets.raw import UnreadableFile
from lab.data.datasets.rules import DatasetRule
from lab.lib.refusals import Refusal
from lab.rollouts.trajectories.text_pieces import escape_invisible_text
from lab.teams.accounts.models import Project, Team, User
from lab.teams.audit.recording import record_audit_entry


def keep_file(team: Team, name: str, pieces: Iterable[bytes], size: int) -> uploads.Upload:
    """The file with its kind told by its content. ``size``: bytes that are announced. Raises Refusal, then nothing is kept."""
    with storage_room.reserve_storage(team, size):
        upload = uploads.save_upload(team, name, pieces)
    try:
        kind = detect_kind_in_child(uploads.path_of(team, upload))
        importing_rows.read_first_rows(uploads.path_of(team, upload), kind)
    except UnreadableFile as error:
        uploads.delete_upload(team, upload.token)
        raise describe_unreadable_file(upload, error) from None
    upload = replace(upload, kind=kind)
    uploads.save_upload_metadata(team, upload)
    return upload


def describe_unreadable_file(upload: uploads.Upload, error: UnreadableFile) -> Refusal:
    return Refusal(f"{upload.name} {error.message}.", f"{error.fix[:1].upper()}{error.fix[1:]}.", field="file", status=error.status)


def find_import_problems(name: str, seen: ImportPreview | None, ignored: list[str], *, skip: bool, leaves: Collection[str]) -> dict[str, str]:
    """Field → what is wrong. ``skip``: invalid rows may be left out; ``leaves``: the columns that may be; ``ignored``: columns with preferences that
    the mapping does not use.
    """
    errors = {}
    if not name.replace("\0", "").strip():
        errors["name"] = "Enter a name."
    if seen is None:
        return errors | {"file": "Columns are not mapped. Choose them above."}
    if ignored:
        errors["preference"] = describe_ignored_preference(ignored)
    if not seen.rows:
        errors["file"] = "No valid rows with this mapping. Choose another format or other columns."
    elif seen.wrong and not skip:
        what = "1 row is invalid" if seen.wrong == 1 else f"{seen.wrong:,} rows are invalid"
        errors["skip"] = f"{what}. Select the checkbox to skip them, or correct the file and upload it again."
    if not set(seen.left_out) <= set(leaves):
        what = "1 column is" if len(seen.left_out) == 1 else f"{len(seen.left_out)} columns are"
        errors["leave"] = (
            f"{what} unused: {', '.join(escape_invisible_text(column) for column in sorted(seen.left_out))}. "
            "Select the checkbox to continue without them, or choose a format that uses them."
        )
    return errors


def describe_ignored_preference(names: list[str]) -> str:
    columns = ", ".join(escape_invisible_text(name) for name in names)
    verb = "records" if len(names) == 1 else "record"
    return f"{columns} {verb} which answer is better and would be ignored. Choose “Two answers and which is better”, or remove it from the file."


def create_imported_dataset(
    team: Team,
    user: User | None,
    upload: uploads.Upload,
    mapped: ColumnMapping,
    rule: DatasetRule,
    *,
    name: str,
    project: Project | None,
    skip: bool,
    leaves: Collection[str],
) -> Version:
    """Version 1, queued. Raises RuleError, then nothing is made."""
    form = form_of(mapped)
    with transaction.atomic():
        fields = {"team": team, "project": project, "name": name.replace("\0", "").strip()[:100], "form": form}
        dataset = Dataset.objects.create(source=Source.IMPORT, created_by=user, **fields)
        agreed = sorted(leaves)
        record_audit_entry("dataset.import", dataset, form=dataset.form, file=upload.name, bytes=upload.size, format=mapped.format, left_out=agreed)
        described = importing_rows.describe_import(upload, mapped, skip, agreed)
        return freeze_next_version(dataset, user, replace(rule, form=form), f"Imported from {upload.name}", **described)
