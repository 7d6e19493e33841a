"""The likeliest tokens that a share of the rollouts keeps at every position: which rollouts, and what of it reaches the spool."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trainers.contract import arrays

if TYPE_CHECKING:
    from trainers.attempt.telemetry import Pieces

LONGEST_TEXT = 64  # code points of a token's text that are kept


@dataclass
class Alternatives:
    """Of one completion of T tokens. ``ids`` and ``logprobs`` (T, k), likeliest first, nats; ``ranks`` (T,) of its own tokens, 1 = the likeliest.

    A token that the policy did not choose has NaN and rank 0.
    """

    ids: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float32]
    ranks: npt.NDArray[np.int64]

    def __getitem__(self, part: slice) -> "Alternatives":
        return Alternatives(self.ids[part], self.logprobs[part], self.ranks[part])


def keeps_alternatives(share: float, *key: object) -> bool:
    """Whether the group that ``key`` names (seed, phase, step, group) is in the share: the same in every attempt, and drawn apart from training."""
    return share > 0 and random.Random("/".join(map(str, ("alternatives", *key)))).random() < share


def no_alternatives(k: int) -> Alternatives:
    """Of a completion that has no token yet."""
    return Alternatives(np.zeros((0, k), np.int64), np.zeros((0, k), np.float32), np.zeros(0, np.int64))


def join_alternatives(before: Alternatives, after: Alternatives) -> Alternatives:
    """Of the tokens of one, then of the other."""
    return Alternatives(*(np.concatenate([getattr(before, name), getattr(after, name)]) for name in ("ids", "logprobs", "ranks")))


def fill_up(found: Alternatives, count: int) -> Alternatives:
    """For ``count`` tokens: those at the end that were not looked at are not known."""
    missing = count - len(found.ranks)
    if missing <= 0:
        return found[:count]
    rows = ((0, missing), (0, 0))
    return Alternatives(np.pad(found.ids, rows), np.pad(found.logprobs, rows, constant_values=np.nan), np.pad(found.ranks, (0, missing)))


def pack_alternatives(found: Alternatives | None, pieces: "Pieces") -> dict[str, Any]:
    """Fields of the rollout event; nothing where nothing was kept, or where it is more than a reader of the spool would unpack."""
    if found is None or not found.ids.size or found.ids.size > arrays.MOST_VALUES:
        return {}
    different: Sequence[int] = np.unique(found.ids).tolist()
    try:
        texts = arrays.pack_texts([pieces.name(id_)[:LONGEST_TEXT] for id_ in different])
    except arrays.PackError:
        return {}
    return {
        "ranks": arrays.pack_ids(found.ranks),
        "alternative_ids": arrays.pack_ids(found.ids.reshape(-1)),
        "alternative_logprobs": arrays.pack_array(found.logprobs.reshape(-1), "e"),
        "alternative_texts": texts,
    }
