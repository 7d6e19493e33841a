"""A policy as a tar archive, written while it is read: its files by an allow-list, then SHA256SUMS. Its length is known before its first byte.

The configuration of LoRA adapters names the folder of their base policy on this machine; what leaves the lab names the base policy instead.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from django.http import HttpRequest, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase

from lab.lib.artifact_store import StoreError
from lab.lib.downloads import stream_attachment
from lab.models.policies.checkpoint_paths import (
    ADAPTERS,
    FilesMissing,
    PolicyFile,
    file_name,
    files_of,
    format_checkpoint_label,
    open_checkpoint_file,
    read_policy_file,
)
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Checkpoint
from lab.training.runs.stored_checkpoints import WEIGHTS, require_store

PIECE = 1 << 20
BLOCK = tarfile.BLOCKSIZE
SUMS = "SHA256SUMS"
MOST_ADAPTER_CONFIG = 1 << 20
ADDRESS_SECONDS = 600  # that an address in the store holds


@dataclass(frozen=True)
class ArchivePart:
    """A file of the archive. ``content``: bytes that stand for what is on the disk."""

    file: PolicyFile
    content: bytes | None = None

    @property
    def size(self) -> int:
        return self.file.size if self.content is None else len(self.content)


def parts_of(checkpoint: Checkpoint) -> list[ArchivePart]:
    """What leaves the lab. Raises FilesMissing when there are no weights."""
    files = [file for file in files_of(checkpoint) if file.of_policy]
    if not any(file.name.endswith(WEIGHTS) for file in files):
        raise FilesMissing("It has no *.safetensors; other weight formats cannot be downloaded.")
    return [ArchivePart(file, build_adapter_config(checkpoint) if file.name == ADAPTERS else None) for file in files]


def build_adapter_config(checkpoint: Checkpoint) -> bytes:
    """adapter_config.json with the name of the base policy in place of its path. Raises FilesMissing."""
    try:
        config = json.loads(read_policy_file(checkpoint, ADAPTERS, MOST_ADAPTER_CONFIG))
    except (ValueError, RecursionError):
        raise FilesMissing(f"{ADAPTERS} cannot be read.") from None
    if isinstance(config, dict):
        config["base_model_name_or_path"] = checkpoint.run.policy
    return json.dumps(config, indent=2).encode()


def compute_archive_size(checkpoint: Checkpoint, parts: list[ArchivePart]) -> int:
    """Bytes of the archive."""
    top = file_name(checkpoint)
    sums = sum(len(sum_line("0" * 64, part.file.name)) for part in parts)
    sizes = [(part.file.name, part.size) for part in parts] + [(SUMS, sums)]
    return sum(len(build_tar_header(top, name, size)) + size + count_padding_bytes(size) for name, size in sizes) + 2 * BLOCK


def stream_policy_archive(checkpoint: Checkpoint, parts: list[ArchivePart]) -> Iterator[bytes]:
    """Its bytes in pieces. Ends early, so that the download fails, when a file changes or goes while it is read."""
    top, lines = file_name(checkpoint), []
    for part in parts:
        yield build_tar_header(top, part.file.name, part.size)
        digest = hashlib.sha256()
        for piece in stream_part_content(checkpoint, part):
            digest.update(piece)
            yield piece
        if part.file.sha256 and part.content is None and digest.hexdigest() != part.file.sha256:
            raise FilesMissing(f"{part.file.name} in the store is damaged.")
        yield bytes(count_padding_bytes(part.size))
        lines.append(sum_line(digest.hexdigest(), part.file.name))
    sums = b"".join(lines)
    yield build_tar_header(top, SUMS, len(sums)) + sums + bytes(count_padding_bytes(len(sums)))
    yield bytes(2 * BLOCK)


def stream_part_content(checkpoint: Checkpoint, part: ArchivePart) -> Iterator[bytes]:
    if part.content is not None:
        yield part.content
        return
    left = part.size
    with open_checkpoint_file(checkpoint, part.file) as stream:
        while left:
            piece = stream.read(min(PIECE, left))
            if not piece:
                raise FilesMissing(f"{part.file.name} changed while it was being read.")
            left -= len(piece)
            yield piece


def build_archive_response(request: HttpRequest, checkpoint: Checkpoint) -> StreamingHttpResponse:
    """The archive as an answer, and a line of the audit log. Raises FilesMissing."""
    parts = parts_of(checkpoint)
    if request.method == "GET":
        size = sum(part.size for part in parts)
        record_audit_entry(
            "policy.download", checkpoint, team=checkpoint.run.team, label=format_checkpoint_label(checkpoint), files=len(parts), bytes=size
        )
    response = stream_attachment(
        request, stream_policy_archive(checkpoint, parts), f"{file_name(checkpoint)}.tar", "application/x-tar", reads_database=False
    )
    response["Content-Length"] = str(compute_archive_size(checkpoint, parts))
    return response


def build_file_response(request: HttpRequest, checkpoint: Checkpoint, name: str) -> HttpResponseBase:
    """One file of the archive, and a line of the audit log: from the store by an address that holds for a while, where it has such addresses, so that
    weights do not pass through the web process; else streamed. Raises FilesMissing.
    """
    part = next((part for part in parts_of(checkpoint) if part.file.name == name), None)
    if part is None:
        raise FilesMissing("It has no such file.")
    if request.method == "GET":
        label = format_checkpoint_label(checkpoint)
        record_audit_entry("policy.download", checkpoint, team=checkpoint.run.team, label=label, files=1, bytes=part.size, file=name)
    if part.content is None and part.file.stored_as:
        try:
            address = require_store().sign_file(part.file.stored_as, name, ADDRESS_SECONDS)
        except StoreError as error:
            raise FilesMissing(f"{name} cannot be read from the store: {error}.") from None
        if address:
            return HttpResponseRedirect(address, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    response = stream_attachment(request, stream_part_content(checkpoint, part), name, "application/octet-stream", reads_database=False)
    response["Content-Length"] = str(part.size)
    return response


def build_tar_header(top: str, name: str, size: int) -> bytes:
    info = tarfile.TarInfo(f"{top}/{name}")
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def count_padding_bytes(size: int) -> int:
    return -size % BLOCK


def sum_line(digest: str, name: str) -> bytes:
    return f"{digest}  {name}\n".encode()


def compute_file_digest(checkpoint: Checkpoint, file: PolicyFile) -> str:
    """SHA-256 of a file as it is on the disk, or as the store's manifest says. Raises FilesMissing."""
    if file.sha256:
        return file.sha256
    with open_checkpoint_file(checkpoint, file) as stream:
        return hashlib.file_digest(cast(io.BufferedReader, stream), "sha256").hexdigest()


def as_stream(checkpoint: Checkpoint, part: ArchivePart) -> BinaryIO:
    """A part to read from, for the hub. Raises FilesMissing."""
    return io.BytesIO(part.content) if part.content is not None else open_checkpoint_file(checkpoint, part.file)
