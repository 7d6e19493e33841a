"""Per-token arrays as bytes: a two-byte header (numpy type code, compression) and the values, little-endian.

The trainer packs once; spool, ingest and database carry the bytes untouched; only a page that shows tokens unpacks them. A few packed bytes may
stand for any number of values, and not every trainer is one of ours: nothing is unpacked past MOST_VALUES.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

TYPE_CODES = frozenset("efiHB")  # float16, float32, int32, uint16, uint8
RAW, DEFLATE = b"0", b"z"
MOST_VALUES = 1 << 20  # of one array: more tokens than any policy's context holds
COMPRESS_FROM = 128  # bytes; shorter arrays grow or gain nothing
TEXTS = b"t"  # type code of packed texts
MOST_TEXT_BYTES = 4 << 20  # of the texts of one rollout's alternatives
MOST_ALTERNATIVES = 20  # stored at each token


class PackError(ValueError):
    """The bytes are not an array packed by this module."""


def pack_array(values: Sequence[float] | npt.NDArray[Any], code: str) -> bytes:
    """Packs a (T,) array as type ``code``; values outside float16 are clipped to its range, NaN stays NaN."""
    if code not in TYPE_CODES:
        raise PackError(f"unknown type code {code!r}: use one of {', '.join(sorted(TYPE_CODES))}")
    array = np.asarray(values)
    if code == "e":
        array = np.clip(array, -65504.0, 65504.0)
    body = array.astype(np.dtype(code).newbyteorder("<")).tobytes()
    if len(body) >= COMPRESS_FROM:
        small = zlib.compress(body, 1)
        if len(small) < len(body):
            return code.encode() + DEFLATE + small
    return code.encode() + RAW + body


def pack_ids(ids: Sequence[int] | npt.NDArray[Any]) -> bytes:
    """Token ids (T,) in two bytes each where the vocabulary allows it, else four."""
    array = np.asarray(ids)
    return pack_array(array, "H" if array.size == 0 or int(array.max()) < 65536 else "i")


def unpack_array(data: bytes) -> npt.NDArray[Any]:
    """The (T,) array in ``data``; an empty ``data`` is an empty float32 array. Raises PackError on damage and past MOST_VALUES."""
    if not data:
        return np.empty(0, dtype=np.float32)
    kind = type_of(data)
    raw = inflate_values(data, kind, MOST_VALUES) if data[1:2] == DEFLATE else bytes(data[2:])
    if len(raw) > MOST_VALUES * kind.itemsize:
        raise PackError(f"packed array of more than {MOST_VALUES:,} values")
    try:
        return np.frombuffer(raw, dtype=kind)
    except ValueError as error:
        raise PackError(f"packed array of type {kind.char} is damaged: {error}") from error


def count_packed_values(data: bytes, most: int = MOST_VALUES) -> int:
    """How many values are in ``data``, found without making an array. Raises PackError, also for more than ``most``."""
    if not data:
        return 0
    kind = type_of(data)
    size = len(inflate_values(data, kind, most)) if data[1:2] == DEFLATE else len(data) - 2
    if size % kind.itemsize:
        raise PackError(f"packed array of type {kind.char} is damaged: {size} bytes are no whole number of values")
    if size > most * kind.itemsize:
        raise PackError(f"packed array of more than {most:,} values")
    return size // kind.itemsize


def pack_texts(texts: Sequence[str]) -> bytes:
    """Texts without NUL as one block: header ``tz``, then UTF-8 with a NUL between them, deflated. Raises PackError past MOST_TEXT_BYTES."""
    if not texts:
        return b""
    body = "\0".join(texts).encode("utf-8", "replace")
    if len(body) > MOST_TEXT_BYTES:
        raise PackError(f"texts of more than {MOST_TEXT_BYTES:,} bytes")
    return TEXTS + DEFLATE + zlib.compress(body, 1)


def unpack_texts(data: bytes) -> list[str]:
    """What ``pack_texts`` packed. Raises PackError on damage and past MOST_TEXT_BYTES."""
    if not data:
        return []
    if data[:2] != TEXTS + DEFLATE:
        raise PackError(f"not packed texts: header {bytes(data[:2])!r}")
    return inflate_values(data, np.dtype("B"), MOST_TEXT_BYTES).decode("utf-8", "replace").split("\0")


def type_of(data: bytes) -> np.dtype[Any]:
    """Of the values, by the header. Raises PackError."""
    code, how = chr(data[0]), data[1:2]
    if code not in TYPE_CODES or how not in (RAW, DEFLATE):
        raise PackError(f"not a packed array: header {bytes(data[:2])!r}")
    return np.dtype(code).newbyteorder("<")


def inflate_values(data: bytes, kind: np.dtype[Any], most: int) -> bytes:
    """The values' bytes. Raises PackError, for more than ``most`` values before the others are looked at."""
    engine, limit = zlib.decompressobj(), most * kind.itemsize
    try:
        raw = engine.decompress(data[2:], limit + 1)
    except zlib.error as error:
        raise PackError(f"packed array of type {kind.char} is damaged: {error}") from error
    if len(raw) > limit:
        raise PackError(f"packed array of more than {most:,} values")
    if not engine.eof:
        raise PackError(f"packed array of type {kind.char} is damaged: its end is missing")
    return raw
