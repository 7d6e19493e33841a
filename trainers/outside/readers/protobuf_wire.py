"""Fields of protocol-buffer messages, without their schemas. Format: https://protobuf.dev/programming-guides/encoding/."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Value = int | bytes
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are no message."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, offset after it). Raises WireError."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise WireError("a number has no end")


def read_fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """(number, value) of each field: an int for varints, bytes for the others. Raises WireError."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = read_varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"field {number} is of kind {kind}")
        if at + size > len(data):
            raise WireError(f"field {number} ends after the message")
        yield number, data[at : at + size]
        at += size


def find_messages(data: bytes, number: int) -> list[bytes]:
    """The fields of that number that hold bytes. Raises WireError."""
    return [value for found, value in read_fields(data) if found == number and isinstance(value, bytes)]


def read_double(value: Value) -> float:
    """Raises WireError."""
    return unpack_number("<d", value)


def read_float(value: Value) -> float:
    """Raises WireError."""
    return unpack_number("<f", value)


def unpack_number(code: str, value: Value) -> float:
    if not isinstance(value, bytes) or len(value) != struct.calcsize(code):
        raise WireError("a number has the wrong size")
    return float(struct.unpack(code, value)[0])


def to_signed(value: Value) -> int:
    """An int64 as it stands in a varint. Raises WireError for bytes."""
    if not isinstance(value, int):
        raise WireError("a number is not one")
    return value - (1 << 64) if value >= 1 << 63 else value
