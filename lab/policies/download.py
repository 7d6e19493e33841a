"""A policy as a tar archive, written while it is read: its files by an allow-list, then SHA256SUMS. Its length is known before its first byte.

The configuration of LoRA adapters names the folder of their base policy on this machine; what leaves the lab names the base policy instead.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from django.http import HttpRequest, StreamingHttpResponse

from lab.audit.recording import record
from lab.lib.downloads import attachment
from lab.policies.places import ADAPTERS, WEIGHTS, File, Missing, file_name, files_of, label, opened, read
from lab.runs.models import Checkpoint

PIECE = 1 << 20
BLOCK = tarfile.BLOCKSIZE
SUMS = "SHA256SUMS"
MOST_ADAPTER_CONFIG = 1 << 20


@dataclass(frozen=True)
class Part:
    """A file of the archive. ``content``: bytes that stand for what is on the disk."""

    file: File
    content: bytes | None = None

    @property
    def size(self) -> int:
        return self.file.size if self.content is None else len(self.content)


def parts_of(checkpoint: Checkpoint) -> list[Part]:
    """What leaves the lab. Raises Missing when there are no weights."""
    files = [file for file in files_of(checkpoint) if file.of_policy]
    if not any(file.name.endswith(WEIGHTS) for file in files):
        raise Missing("It has no *.safetensors, and nothing else is given out as weights.")
    return [Part(file, adapters(checkpoint) if file.name == ADAPTERS else None) for file in files]


def adapters(checkpoint: Checkpoint) -> bytes:
    """adapter_config.json with the name of the base policy in place of its path. Raises Missing."""
    try:
        config = json.loads(read(checkpoint, ADAPTERS, MOST_ADAPTER_CONFIG))
    except (ValueError, RecursionError):
        raise Missing(f"{ADAPTERS} cannot be read.") from None
    if isinstance(config, dict):
        config["base_model_name_or_path"] = checkpoint.run.policy
    return json.dumps(config, indent=2).encode()


def length(checkpoint: Checkpoint, parts: list[Part]) -> int:
    """Bytes of the archive."""
    top = file_name(checkpoint)
    sums = sum(len(sum_line("0" * 64, part.file.name)) for part in parts)
    sizes = [(part.file.name, part.size) for part in parts] + [(SUMS, sums)]
    return sum(len(header(top, name, size)) + size + padding(size) for name, size in sizes) + 2 * BLOCK


def archive(checkpoint: Checkpoint, parts: list[Part]) -> Iterator[bytes]:
    """Its bytes in pieces. Ends early, so that the download fails, when a file changes or goes while it is read."""
    top, lines = file_name(checkpoint), []
    for part in parts:
        yield header(top, part.file.name, part.size)
        digest = hashlib.sha256()
        for piece in content(checkpoint, part):
            digest.update(piece)
            yield piece
        yield bytes(padding(part.size))
        lines.append(sum_line(digest.hexdigest(), part.file.name))
    sums = b"".join(lines)
    yield header(top, SUMS, len(sums)) + sums + bytes(padding(len(sums)))
    yield bytes(2 * BLOCK)


def content(checkpoint: Checkpoint, part: Part) -> Iterator[bytes]:
    if part.content is not None:
        yield part.content
        return
    left = part.size
    with os.fdopen(opened(checkpoint, part.file), "rb") as stream:
        while left:
            piece = stream.read(min(PIECE, left))
            if not piece:
                raise Missing(f"{part.file.name} became shorter while it was read.")
            left -= len(piece)
            yield piece


def served(request: HttpRequest, checkpoint: Checkpoint) -> StreamingHttpResponse:
    """The archive as an answer, and a line of the audit log. Raises Missing."""
    parts = parts_of(checkpoint)
    if request.method == "GET":
        size = sum(part.size for part in parts)
        record("policy.download", checkpoint, team=checkpoint.run.team, label=label(checkpoint), files=len(parts), bytes=size)
    response = attachment(request, archive(checkpoint, parts), f"{file_name(checkpoint)}.tar", "application/x-tar")
    response["Content-Length"] = str(length(checkpoint, parts))
    return response


def header(top: str, name: str, size: int) -> bytes:
    info = tarfile.TarInfo(f"{top}/{name}")
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def padding(size: int) -> int:
    return -size % BLOCK


def sum_line(digest: str, name: str) -> bytes:
    return f"{digest}  {name}\n".encode()


def digest_of(checkpoint: Checkpoint, file: File) -> str:
    """SHA-256 of a file as it is on the disk. Raises Missing."""
    with os.fdopen(opened(checkpoint, file), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def as_stream(checkpoint: Checkpoint, part: Part) -> io.BufferedIOBase:
    """A part to read from, for the hub. Raises Missing."""
    return io.BytesIO(part.content) if part.content is not None else os.fdopen(opened(checkpoint, part.file), "rb")
