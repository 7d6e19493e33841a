"""Per-token arrays as bytes: a two-byte header (numpy type code, compression) and the values, little-endian.

The trainer packs once; spool, ingest and database carry the bytes untouched; only a page that shows tokens unpacks them.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

TYPE_CODES = frozenset("efiHB")  # float16, float32, int32, uint16, uint8
RAW, DEFLATE = b"0", b"z"
COMPRESS_FROM = 128  # bytes; shorter arrays grow or gain nothing


class PackError(ValueError):
    """The bytes are not an array packed by this module."""


def pack(values: Sequence[float] | npt.NDArray[Any], code: str) -> bytes:
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
    return pack(array, "H" if array.size == 0 or int(array.max()) < 65536 else "i")


def unpack(data: bytes) -> npt.NDArray[Any]:
    """The (T,) array in ``data``; an empty ``data`` is an empty float32 array. Raises PackError on anything else than packed bytes."""
    if not data:
        return np.empty(0, dtype=np.float32)
    code, how, body = chr(data[0]), data[1:2], data[2:]
    if code not in TYPE_CODES or how not in (RAW, DEFLATE):
        raise PackError(f"not a packed array: header {bytes(data[:2])!r}")
    try:
        raw = zlib.decompress(body) if how == DEFLATE else bytes(body)
        return np.frombuffer(raw, dtype=np.dtype(code).newbyteorder("<"))
    except (zlib.error, ValueError) as error:
        raise PackError(f"packed array of type {code} is damaged: {error}") from error
