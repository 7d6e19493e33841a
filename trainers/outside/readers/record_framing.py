"""Records in the files of TensorBoard (TFRecord) and W&B (LevelDB's log), with their checksums.

TFRecord, tensorflow/tensorflow ``tensorflow/core/lib/io/record_writer.h``: length (uint64), masked CRC-32C of it, data, masked CRC-32C of the data.
LevelDB's log, google/leveldb ``doc/log_format.md``, with W&B's header and checksum (wandb/wandb, commit b6e29505884ea60c79ca12091f1f75bd39d2f955,
``wandb/sdk/internal/datastore.py``): blocks of 32 KiB with pieces of records, each with CRC-32 of type and data, length (uint16) and type.

A record that is not whole yet ends the reading without an error; one whose checksum is wrong is given as None.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

RECORD_BYTES = 64 << 20  # a longer one is no record
CHECKED_BYTES = 1 << 20  # CRC-32C has no fast way in Python: of larger records (pictures) only the length is checked
BLOCK, HEADER, FILE_HEADER = 32768, 7, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
WANDB_HEADER = b":W&B"


class FramingError(ValueError):
    """The file is not what it should be from here on."""


@cache
def build_crc32c_table() -> list[int]:
    """Castagnoli's polynomial, reflected."""
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


def compute_masked_crc32c(data: bytes) -> int:
    table, crc = build_crc32c_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read_tf_records(path: Path, offset: int) -> Iterator[tuple[int, bytes | None]]:
    """(offset after it, data) of the whole records after ``offset``. Raises FramingError where the lengths are lost."""
    with path.open("rb") as file:
        file.seek(offset)
        while len(head := file.read(12)) == 12:
            length, check = struct.unpack("<QI", head)
            if compute_masked_crc32c(head[:8]) != check or length > RECORD_BYTES:
                raise FramingError(f"the length of the record at byte {file.tell() - 12} is damaged")
            body = file.read(length + 4)
            if len(body) < length + 4:
                return
            data, told = body[:length], struct.unpack("<I", body[length:])[0]
            whole = length > CHECKED_BYTES or compute_masked_crc32c(data) == told
            yield file.tell(), data if whole else None


def read_wandb_records(path: Path, offset: int) -> Iterator[tuple[int, bytes | None]]:
    """(offset after it, data) of the whole records after ``offset``, 0 or one that was given. Raises FramingError for a file of another kind."""
    with path.open("rb") as file:
        header = file.read(FILE_HEADER)
        if len(header) < FILE_HEADER:
            return
        if not header.startswith(WANDB_HEADER):
            raise FramingError("it is no file of W&B")
        at, parts, broken = max(offset, FILE_HEADER), list[bytes](), False
        while True:
            room = BLOCK - at % BLOCK
            if room < HEADER:
                at += room  # the rest of a block is zeros
            file.seek(at)
            head = file.read(HEADER)
            if len(head) < HEADER:
                return
            check, length, kind = struct.unpack("<IHB", head)
            if kind not in (FULL, FIRST, MIDDLE, LAST) or length > BLOCK - at % BLOCK - HEADER:
                if not any(head):
                    return  # not written yet
                at += BLOCK - at % BLOCK  # the block is damaged: on with the next one
                file.seek(0, 2)
                if at > file.tell():
                    return
                yield at, None
                parts, broken = [], False
                continue
            data = file.read(length)
            if len(data) < length:
                return
            at += HEADER + length
            broken = broken or zlib.crc32(data, zlib.crc32(bytes([kind]))) != check or sum(map(len, parts)) > RECORD_BYTES
            parts = [data] if kind in (FULL, FIRST) else [*parts, data]
            if kind in (FULL, LAST):
                yield at, None if broken else b"".join(parts)
                parts, broken = [], False
