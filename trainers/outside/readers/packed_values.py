"""Token arrays packed as ``trainers.contract.arrays`` packs them, byte for byte, with nothing but the standard library: who only sends a run
elsewhere has no numpy."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence

COMPRESS_FROM = 128  # bytes; as in trainers.contract.arrays
LARGEST_HALF = 65504.0  # float16


def pack_values(values: Sequence[float | None], code: str) -> bytes:
    """(T,) numbers as type ``code`` (``e``, ``f``, ``i``, ``H``, ``B``); None is NaN. Raises ValueError for a number that the type cannot hold."""
    numbers: Sequence[float] = [math.nan if value is None else value for value in values]
    if code == "e":
        numbers = [value if math.isnan(value) else min(max(value, -LARGEST_HALF), LARGEST_HALF) for value in numbers]
    elif code != "f":
        numbers = [int(value) for value in numbers]
    try:
        body = struct.pack(f"<{len(numbers)}{code}", *numbers)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"a number does not fit: {error}") from None
    if len(body) >= COMPRESS_FROM:
        small = zlib.compress(body, 1)
        if len(small) < len(body):
            return code.encode() + b"z" + small
    return code.encode() + b"0" + body


def pack_token_ids(ids: Sequence[int]) -> bytes:
    """Token ids (T,) in two bytes each where the vocabulary allows it, else four."""
    return pack_values(ids, "H" if max(ids, default=0) < 65536 else "i")
