"""The likeliest tokens that were stored at every position of a rollout, and why a rollout has none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.rollouts.trajectories.models import RolloutTokens
from trainers.contract.arrays import MOST_ALTERNATIVES, PackError, unpack_array, unpack_texts

NOT_RECORDED = "Alternatives not recorded for this rollout"


@dataclass(frozen=True)
class StoredAlternatives:
    """``ids`` and ``logprobs`` (T, k), likeliest first, nats; NaN where they are not known. ``ranks`` (T,) of the sampled tokens, 0 = not known."""

    ids: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float64]
    ranks: npt.NDArray[np.int64]
    texts: dict[int, str]

    @property
    def k(self) -> int:
        return self.ids.shape[1]


def unpack_alternatives(tokens: RolloutTokens) -> StoredAlternatives | None:
    """None where none were stored. Raises PackError when they are damaged or do not fit the token ids."""
    if not tokens.alternative_ids:
        return None
    count = len(unpack_array(bytes(tokens.ids)))
    ids = unpack_array(bytes(tokens.alternative_ids)).astype(np.int64)
    logprobs = unpack_array(bytes(tokens.alternative_logprobs)).astype(np.float64)
    ranks = unpack_array(bytes(tokens.ranks)).astype(np.int64)
    k = len(ids) // count if count else 0
    if not 1 <= k <= MOST_ALTERNATIVES or len(ids) != k * count or len(logprobs) != len(ids) or len(ranks) not in (0, count):
        raise PackError(f"{count} token ids but {len(ids)} alternatives, {len(logprobs)} of their log-probabilities and {len(ranks)} ranks")
    different, texts = np.unique(ids).tolist(), unpack_texts(bytes(tokens.alternative_texts))
    if len(texts) not in (0, len(different)):
        raise PackError(f"{len(different)} different alternatives but {len(texts)} texts")
    known = dict(zip(different, texts, strict=False))
    return StoredAlternatives(ids.reshape(count, k), logprobs.reshape(count, k), ranks if len(ranks) else np.zeros(count, np.int64), known)


def explain_missing_alternatives(spec: dict[str, Any]) -> str:
    """Why a rollout of a run with this spec has none; empty where no rollout of the run has any, because then nobody misses them."""
    return NOT_RECORDED if ((spec.get("telemetry") or {}).get("alternatives_share") or 0) > 0 else ""


def build_alternatives_json(found: StoredAlternatives | None, count: int) -> dict[str, Any] | None:
    """Of the first ``count`` tokens, as ``static/rollouts/alternatives.js`` reads them: flat arrays, k values a token."""
    if found is None:
        return None
    ids = found.ids[:count]
    logprobs = [round(value, 4) if math.isfinite(value) else None for value in found.logprobs[:count].ravel().tolist()]
    shown = set(ids.ravel().tolist())
    texts = {str(id_): text for id_, text in found.texts.items() if id_ in shown}
    return {"k": found.k, "ids": ids.ravel().tolist(), "logprobs": logprobs, "ranks": found.ranks[:count].tolist(), "texts": texts}
