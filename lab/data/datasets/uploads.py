"""Uploaded files until they are a version: under a random name that only the lab gives, apart from what runs may name."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team

MOST_BYTES = 50_000_000
KEPT_SECONDS = 24 * 3600.0
TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Upload:
    """``name``: what the person's file is called, for words only, never a path."""

    token: str
    name: str
    kind: str
    size: int


def get_upload_root() -> Path:
    return Path(settings.DATASETS_ROOT) / ".uploads"


def folder_of(team: Team) -> Path:
    return get_upload_root() / str(team.pk)


def save_upload(team: Team, name: str, pieces: Iterable[bytes]) -> Upload:
    """Writes the pieces. Raises Refusal, then nothing is kept."""
    token = secrets.token_hex(16)
    folder = folder_of(team)
    folder.mkdir(parents=True, exist_ok=True)
    path, size = folder / token, 0
    try:
        with path.open("xb") as file:
            for piece in pieces:
                size += len(piece)
                if size > MOST_BYTES:
                    raise Refusal(f"{clean_file_name(name)} is larger than {MOST_BYTES // 1_000_000} MB. Split it.", field="file", status=422)
                file.write(piece)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Upload(token, clean_file_name(name), "", size)


def clean_file_name(name: str) -> str:
    """The last component of a client's file name without control characters, for people to recognise."""
    return "".join(character for character in name.replace("\\", "/").rsplit("/", 1)[-1] if character.isprintable())[:120] or "file"


def save_upload_metadata(team: Team, upload: Upload) -> None:
    (folder_of(team) / f"{upload.token}.json").write_text(json.dumps(asdict(upload)), encoding="utf-8")


def find_upload(team: Team, token: str) -> Upload | None:
    """An upload of the team that is still there."""
    if not TOKEN.fullmatch(token):
        return None
    try:
        upload = Upload(**json.loads((folder_of(team) / f"{token}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return upload if path_of(team, upload).is_file() else None


def path_of(team: Team, upload: Upload) -> Path:
    return folder_of(team) / upload.token


def delete_upload(team: Team, token: str) -> None:
    if TOKEN.fullmatch(token):
        for name in (token, f"{token}.json"):
            (folder_of(team) / name).unlink(missing_ok=True)


def forget_old() -> int:
    """Deletes what nobody has made a dataset of in a day."""
    old = [path for path in get_upload_root().glob("*/*") if path.stat().st_mtime < time.time() - KEPT_SECONDS]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
