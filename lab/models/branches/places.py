"""One token of a stored rollout, as a branch needs it: the ids before it, the id itself, and what was measured when it was sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lab.lib.refusals import Refusal
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.tokens import arrays_of
from trainers.contract.arrays import PackError

CONTEXT = 240  # characters before the place that the panel shows
DEFAULT_TOKENS, MOST_NEW = 256, 2048  # new tokens: where the run has no limit; at most
MOST_TOTAL = 131_072  # tokens of all continuations with what they keep, as trainers/policies/branching.py has it


@dataclass(frozen=True)
class StoredPlace:
    """Token ``index`` of a rollout. ``text``: what it adds, or its name for a special token; ``before``: the end of the text up to it."""

    rollout: Rollout
    index: int
    prefix: list[int]
    token: int
    text: str
    before: str
    entropy: float | None
    logprob: float | None
    total: int

    @property
    def is_cut(self) -> bool:
        """Whether more text stands before ``before``."""
        return len(self.before) == CONTEXT

    @property
    def probability(self) -> float | None:
        return None if self.logprob is None else math.exp(self.logprob)

    @property
    def left(self) -> int:
        """New tokens that the run's limit leaves after the place."""
        most = read_training(self.rollout).get("max_completion_length") or DEFAULT_TOKENS + self.total
        return max(1, min(MOST_NEW, int(most) - self.index - 1))


def read_training(rollout: Rollout) -> dict[str, Any]:
    return dict(rollout.run.spec.get("training") or {})


def read_temperature(rollout: Rollout) -> float:
    """That the run samples at; 1 where its trainer does not sample."""
    found = read_training(rollout).get("temperature")
    return float(found) if isinstance(found, int | float) and 0 <= found <= 5 else 1.0


def find_stored_place(rollout: Rollout, index: int) -> StoredPlace:
    """Raises Refusal for a token that is not stored or that the policy did not write."""
    stored = RolloutTokens.objects.filter(rollout=rollout).first()
    if stored is None:
        raise Refusal("This rollout came without tokens, so nothing can be continued from one.", field="token", status=422)
    try:
        arrays = arrays_of(stored)
    except PackError as error:
        raise Refusal(f"The tokens of this rollout cannot be read: {error}.", field="token", status=422) from None
    total = len(arrays.ids)
    if not 0 <= index < total:
        raise Refusal(f"This rollout has {total} tokens, counted from 0; choose one of them.", field="token", status=422)
    if any(role != "assistant" and start <= index < end for role, start, end in rollout.turns):
        raise Refusal("The policy did not write this token; choose one that it sampled.", field="token", status=422)
    at, length = int(arrays.lengths[:index].sum()), int(arrays.lengths[index])
    name = rollout.run.special_tokens.get(str(arrays.ids[index]), "")
    entropy, logprob = float(arrays.entropies[index]), float(arrays.logprobs[index])
    return StoredPlace(
        rollout,
        index,
        arrays.ids[:index].tolist(),
        int(arrays.ids[index]),
        rollout.completion[at : at + length] or name,
        rollout.completion[max(0, at - CONTEXT) : at],
        entropy if math.isfinite(entropy) else None,
        logprob if math.isfinite(logprob) else None,
        total,
    )
