"""All tokens of one rollout in one compact answer: a header in JSON, the text, and the arrays as they are stored.

Layout, little-endian: uint32 length of the header, the header (UTF-8 JSON, padded with spaces), then the body. ``text`` and every entry of
``arrays`` say [type, offset into the body, count]; offsets are multiples of 4. Types: "e" float16, "f" float32, "H" uint16, "I" uint32, "B" uint8.
A browser counts text in UTF-16 units, so everything that points into the text (``widths``, ``blocks``) is in those, not in code points.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.rollouts.trajectories.alternatives import explain_missing_alternatives, unpack_alternatives
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import split_completion_blocks
from lab.rollouts.trajectories.tokens import explain_missing_tokens
from trainers.contract.arrays import PackError, unpack_array

VERSION = 2
# What a page may colour tokens by -> (the array it needs, why it may be missing).
SOURCES = {
    "entropy": ("entropies", "no entropies were stored with this rollout"),
    "logprob": ("logprobs", "no log-probabilities were stored with this rollout"),
    "kl": ("reference_logprobs", "this run has no reference policy"),
    "ratio": ("ratios", "the importance ratio is 1 for every token: the batch was used in a single on-policy pass"),
    "sampler": ("sampler_logprobs", "the sampler's log-probabilities were not recorded"),
    "advantage": ("token_advantages", "every token has the rollout's advantage"),
    "weight": ("weights", "no method weights tokens here: every weight is 1"),
    "mask": ("mask", "every token is in the loss"),
}
MEASURED = ("logprobs", "entropies", "mask", "token_advantages", "weights", "reference_logprobs", "ratios", "clipped", "sampler_logprobs")


def pack_rollout(rollout: Rollout, tokens: RolloutTokens | None, special: dict[str, str]) -> bytes:
    """The whole rollout. Damaged arrays give an answer with the text, no tokens, and ``error``."""
    error = "" if tokens is not None else explain_missing_tokens(rollout.run)
    arrays: dict[str, npt.NDArray[Any]] = {}
    alternatives = None
    if tokens is not None:
        try:
            arrays = unpack_stored_arrays(tokens)
            alternatives = unpack_alternatives(tokens)
        except PackError as damage:
            error = f"the tokens of this rollout cannot be read: {damage}"
    lengths = arrays.pop("lengths", None)
    if lengths is None and tokens is not None and not error:
        error, lengths = explain_missing_tokens(rollout.run), np.empty(0, dtype=np.int64)  # turns are in code points then
    edges = utf16_edges(rollout.completion)
    total = 0
    if lengths is not None and len(lengths):
        total = len(lengths)
        ends = np.minimum(np.cumsum(lengths.astype(np.int64)), len(edges) - 1)
        arrays["widths"] = downcast_widths(np.diff(edges[ends], prepend=0))
    header: dict[str, Any] = {
        "version": VERSION,
        "id": rollout.pk,
        "total": total,
        "error": error,
        "special": special,
        "blocks": locate_blocks(rollout, lengths, edges),
        "turns": rollout.turns,
        "reasons": explain_missing_overlays(rollout, arrays, rollout.phase),
        "alternatives": None,
        "alternatives_missing": "" if alternatives else explain_missing_alternatives(rollout.run.spec),
    }
    if alternatives is not None:
        header["alternatives"] = {"k": alternatives.k, "texts": {str(id_): text for id_, text in alternatives.texts.items()}}
        arrays |= {"ranks": alternatives.ranks, "alternative_ids": alternatives.ids.ravel()}
        arrays["alternative_logprobs"] = alternatives.logprobs.ravel().astype("<f2")
    return assemble_packed_bytes(header, rollout.completion, arrays)


def unpack_stored_arrays(tokens: RolloutTokens) -> dict[str, npt.NDArray[Any]]:
    """The arrays that are there, all (T,). Raises PackError when one is damaged or their lengths disagree."""
    unpacked = {"ids": unpack_array(bytes(tokens.ids)), "lengths": unpack_array(bytes(tokens.lengths))}
    unpacked |= {name: unpack_array(bytes(getattr(tokens, name))) for name in MEASURED}
    count = len(unpacked["ids"])
    for name, values in unpacked.items():
        if len(values) != count and (len(values) or name == "lengths"):
            raise PackError(f"{count} token ids but {len(values)} {name}")
    return {name: values for name, values in unpacked.items() if len(values)}


def utf16_edges(text: str) -> npt.NDArray[np.int64]:
    """(C + 1,) where each code point of the text begins when counted in UTF-16 units, and where the last one ends."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return np.concatenate([[0], np.cumsum(1 + (points > 0xFFFF))]).astype(np.int64)


def locate_blocks(rollout: Rollout, lengths: npt.NDArray[Any] | None, edges: npt.NDArray[np.int64]) -> list[list[Any]]:
    """[kind, label, start, end] of each block of the completion, in UTF-16 units and without gaps."""
    places, at = [], 0
    for block in split_completion_blocks(rollout.completion, rollout.turns, None if lengths is None else lengths.astype(np.int64)):
        end = at + block.length
        places.append([block.kind, block.title, int(edges[at]), int(edges[end])])
        at = end
    return places


def explain_missing_overlays(rollout: Rollout, arrays: dict[str, npt.NDArray[Any]], phase: str) -> dict[str, str]:
    """Overlay -> why it cannot be shown; those that can are left out."""
    missing = {name: why for name, (needed, why) in SOURCES.items() if needed not in arrays}
    if phase != "train":
        by_training = {"kl": "the reference's log-probabilities", "ratio": "importance ratios", "advantage": "advantages", "weight": "weights"}
        missing |= {name: f"only rollouts of training steps come with {what}" for name, what in by_training.items() if name in missing}
    elif "advantage" in missing and rollout.advantage is not None:
        missing["advantage"] += f", {rollout.advantage:+.3g}".replace("-", "−")
    return missing


def downcast_widths(values: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    return values.astype("<u2" if not len(values) or int(values.max()) < 65536 else "<u4")


def assemble_packed_bytes(header: dict[str, Any], text: str, arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    parts: list[bytes] = []
    at = 0

    def add(data: bytes) -> int:
        nonlocal at
        start = at
        parts.append(data + b" " * (-len(data) % 4))
        at += len(parts[-1])
        return start

    body = text.encode("utf-8", "replace")
    header["text"] = ["text", add(body), len(body)]
    places = {}
    for name, values in arrays.items():
        values = values.astype("<u4") if values.dtype.kind == "i" else values
        code = {"L": "I"}.get(values.dtype.char, values.dtype.char)
        places[name] = [code, add(values.astype(values.dtype.newbyteorder("<")).tobytes()), len(values)]
    header["arrays"] = places
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-(len(head) + 4) % 8)
    return len(head).to_bytes(4, "little") + head + b"".join(parts)
