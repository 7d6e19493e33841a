"""The tokens of a rollout as units a page can colour: stretches of text with the tokens that made them and what was measured on each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.rollouts.trajectories.alternatives import build_alternatives_json, unpack_alternatives
from lab.rollouts.trajectories.models import DroppedRollouts, Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import CUT_AT
from lab.training.runs.models import Run
from trainers.contract.arrays import PackError, unpack_array

NO_TOKENS = "this rollout came without tokens"
DROPPED_TOKENS = "the tokens of this rollout were dropped by the team's retention rule"
SHOWN_TOKENS = 2000  # of a rollout, before "show all"

EXTRAS = ("token_advantages", "weights", "reference_logprobs", "ratios", "clipped", "sampler_logprobs")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TokenArrays:
    """Unpacked arrays of one rollout, all (T,). A measurement that was not stored is NaN; without a mask every token is in the loss.

    ``advantages`` and ``weights`` are None where no method gave tokens their own: then all have the rollout's advantage, and weight 1.
    ``reference`` (log-probabilities) is None without a reference policy, ``ratios`` where all are 1, ``clipped`` where nothing was, ``sampler`` where
    the sampler's log-probabilities were not recorded.
    """

    ids: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    logprobs: Floats
    entropies: Floats
    mask: npt.NDArray[np.bool_]
    advantages: Floats | None = None
    weights: Floats | None = None
    reference: Floats | None = None
    ratios: Floats | None = None
    clipped: Floats | None = None
    sampler: Floats | None = None  # the sampler's own log-probabilities


def explain_missing_tokens(run: Run) -> str:
    """Why a rollout of the run has none."""
    return DROPPED_TOKENS if DroppedRollouts.objects.filter(run=run, tokens__gt=0).exists() else NO_TOKENS


def arrays_of(tokens: RolloutTokens) -> TokenArrays:
    """Unpacks and aligns. Raises PackError when an array is damaged or their lengths disagree."""
    ids, lengths = unpack_array(bytes(tokens.ids)).astype(np.int64), unpack_array(bytes(tokens.lengths)).astype(np.int64)
    count = len(ids)
    if len(lengths) != count:
        raise PackError(f"{count} token ids but {len(lengths)} lengths")
    measured: dict[str, Floats | None] = {}
    for name in ("logprobs", "entropies", "mask", *EXTRAS):
        values = unpack_array(bytes(getattr(tokens, name))).astype(np.float64)
        if len(values) not in (0, count):
            raise PackError(f"{count} token ids but {len(values)} {name}")
        measured[name] = values if len(values) else None

    def filled(name: str, missing: float) -> Floats:
        values = measured[name]
        return np.full(count, missing) if values is None else values

    mask = filled("mask", 1.0) > 0
    extras = (measured[name] for name in EXTRAS)
    return TokenArrays(ids, lengths, filled("logprobs", np.nan), filled("entropies", np.nan), mask, *extras)


def build_token_units(
    completion: str, tokens: TokenArrays, special: dict[str, str], turns: list[list[Any]], most: int | None = None
) -> list[list[Any]]:
    """[text, first token, token count, flags] of each stretch of text, in order; of the first ``most`` tokens only.

    Tokens that add no code point join the token that completes their character; a special token is a unit of its own, with its name as text.
    Flags: 1 special (its text is not part of the completion), 2 written by the environment, 4 the bytes never became a character.
    """
    environment = np.zeros(len(tokens.ids) + 1, dtype=bool)
    for role, start, end in turns:
        if role != "assistant":
            environment[max(0, int(start)) : max(0, int(end))] = True
    units: list[list[Any]] = []
    at, first = 0, 0
    count = len(tokens.ids) if most is None else min(most, len(tokens.ids))
    for index in range(count):
        length, name = int(tokens.lengths[index]), special.get(str(tokens.ids[index]))
        theirs = 2 if environment[index] else 0
        if length == 0 and name is not None:
            if first < index:
                units.append(["", first, index - first, 4 | theirs])
            units.append([name, index, 1, 1 | theirs])
        elif length == 0:
            continue
        else:
            units.append([completion[at : at + length], first, index + 1 - first, theirs])
            at += length
        first = index + 1
    if count < len(tokens.ids):
        return units
    if first < len(tokens.ids):
        units.append(["", first, len(tokens.ids) - first, 4])
    if at < len(completion):  # text that no token accounts for is shown all the same
        units.append([completion[at:], len(tokens.ids), 0, 0])
    return units


def round_for_json(values: Floats) -> list[float | None]:
    """Four decimals are finer than the float16 they were stored in; JSON has no NaN."""
    return [round(value, 4) if math.isfinite(value) else None for value in values.tolist()]


def build_tokens_json(
    rollout: Rollout, tokens: RolloutTokens, special: dict[str, str], everything: bool = False, missing: str = ""
) -> dict[str, Any]:
    """What the page colours. Cut after SHOWN_TOKENS tokens unless ``everything``; ``total`` says how many there are.

    ``missing``: why a rollout of this run may have no alternatives (``explain_missing_alternatives``).
    """
    try:
        arrays = arrays_of(tokens)
        alternatives = unpack_alternatives(tokens)
    except PackError as error:
        return {"id": rollout.pk, "error": f"the tokens of this rollout cannot be read: {error}"}
    total = len(arrays.ids)
    if not total:
        return {"id": rollout.pk, "error": explain_missing_tokens(rollout.run)}
    end = total if everything else min(total, SHOWN_TOKENS)
    shown = build_token_units(rollout.completion, arrays, special, rollout.turns, end)
    if not everything and shown and len(shown[-1][0]) > CUT_AT:
        shown[-1][0] = shown[-1][0][:CUT_AT]
    some_have = {name: getattr(arrays, name) for name in ("advantages", "weights", "reference", "ratios", "clipped", "sampler")}
    return {
        **{name: round_for_json(values[:end]) for name, values in some_have.items() if values is not None},
        "id": rollout.pk,
        "total": total,
        "shown": end,
        "units": shown,
        "ids": arrays.ids[:end].tolist(),
        "logprobs": round_for_json(arrays.logprobs[:end]),
        "entropies": round_for_json(arrays.entropies[:end]),
        "mask": arrays.mask[:end].astype(int).tolist(),
        "alternatives": build_alternatives_json(alternatives, end),
        "alternatives_missing": "" if alternatives else missing,
    }
