"""A rollout as one record of an export: plain values, read in batches with a fixed number of queries each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from lab.rollouts.annotations.summary import Summary, summarize_annotations
from lab.rollouts.annotations.turn_labels import export_turn_labels
from lab.rollouts.trajectories.alternatives import unpack_alternatives
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.turn_tree import read_stored_nodes
from trainers.contract.arrays import PackError, unpack_array

BATCH = 500
BATCH_WITH_TOKENS = 5  # a rollout may have 200,000 tokens: eleven lists of as many numbers, and alternatives
TOKENS = {
    "token_ids": "ids",
    "logprobs": "logprobs",
    "entropies": "entropies",
    "mask": "mask",
    "token_advantages": "token_advantages",
    "token_weights": "weights",
    "reference_logprobs": "reference_logprobs",
    "ratios": "ratios",
    "clipped": "clipped",
    "sampler_logprobs": "sampler_logprobs",
    "token_ranks": "ranks",
}
ALTERNATIVES = ("alternative_ids", "alternative_logprobs", "alternative_texts")  # lists of k for each token, and the text of each id
NAMES = (  # of a record without token arrays, in their order
    "id",
    "run",
    "run_name",
    "phase",
    "step",
    "group",
    "sample",
    "attempt",
    "prompt",
    "reference",
    "completion",
    "turns",
    "nodes",
    "turn_labels",
    "reward",
    "rewards",
    "advantage",
    "contributions",
    "shaped",
    "length",
    "mean_entropy",
    "max_entropy",
    "finish_reason",
    "filtered",
    "superseded",
    "tags",
    "rating",
    "ratings",
    "comments",
    "created_at",
)
WHOLE = frozenset({"token_ids", "mask", "clipped", "token_ranks"})  # arrays of integers


def build_export_batches(rollouts: Iterable[Rollout], tokens: bool) -> Iterator[list[dict[str, Any]]]:
    """Batches of records in the order given. ``rollouts`` come with run and prompt, and are of the reader's team already."""
    left = iter(rollouts)
    while batch := list(islice(left, BATCH_WITH_TOKENS if tokens else BATCH)):
        said = summarize_annotations(rollout.pk for rollout in batch)
        labels = export_turn_labels(batch)
        packed = RolloutTokens.objects.filter(rollout__in=batch).in_bulk() if tokens else {}
        yield [
            build_export_record(rollout, said[rollout.pk], labels[rollout.pk]) | (collect_token_arrays(packed.get(rollout.pk)) if tokens else {})
            for rollout in batch
        ]


def build_export_record(rollout: Rollout, said: Summary, labels: list[dict[str, Any]]) -> dict[str, Any]:
    run, prompt = rollout.run, rollout.prompt
    return {
        "id": rollout.pk,
        "run": run.number,
        "run_name": run.name,
        "phase": rollout.phase,
        "step": rollout.step,
        "group": rollout.group,
        "sample": rollout.sample,
        "attempt": rollout.attempt,
        "prompt": [{"role": str(role), "content": str(content)} for role, content in prompt.messages],
        "reference": prompt.reference,
        "completion": rollout.completion,
        "turns": [{"role": str(role), "start": start, "end": end} for role, start, end in rollout.turns],
        "nodes": read_stored_nodes(rollout),
        "turn_labels": labels,
        "reward": rollout.reward,
        "rewards": rollout.rewards,
        "advantage": rollout.advantage,
        "contributions": rollout.contributions,
        "shaped": rollout.shaped,
        "length": rollout.length,
        "mean_entropy": rollout.mean_entropy,
        "max_entropy": rollout.max_entropy,
        "finish_reason": rollout.finish_reason,
        "filtered": rollout.filtered,
        "superseded": rollout.superseded,
        "tags": said.tags,
        "rating": said.rating,
        "ratings": said.ratings,
        "comments": said.comments,
        "created_at": rollout.created_at.isoformat(),
    }


def collect_token_arrays(packed: RolloutTokens | None) -> dict[str, list[Any] | None]:
    """Each array as a list, (T,); None where none was stored or its bytes are damaged. What is not a number is None inside."""
    arrays = {name: unpack_array_values(bytes(getattr(packed, stored)), name in WHOLE) if packed else None for name, stored in TOKENS.items()}
    return arrays | collect_alternatives(packed)


def collect_alternatives(packed: RolloutTokens | None) -> dict[str, list[Any] | None]:
    """The likeliest tokens at each of T tokens: k ids and k log-probabilities, likeliest first, and [{"id", "text"}] of the different ids."""
    try:
        found = unpack_alternatives(packed) if packed else None
    except PackError:
        found = None
    if found is None:
        return dict.fromkeys(ALTERNATIVES)
    logprobs = [[value if value - value == 0 else None for value in row] for row in np.round(found.logprobs, 6).tolist()]
    texts = [{"id": id_, "text": text} for id_, text in found.texts.items()]
    return dict(zip(ALTERNATIVES, (found.ids.tolist(), logprobs, texts), strict=True))


def unpack_array_values(data: bytes, whole: bool) -> list[Any] | None:
    try:
        values = unpack_array(data)
    except PackError:
        return None
    if not len(values):
        return None
    if whole:
        return list(np.nan_to_num(values).astype(np.int64).tolist())
    numbers: list[Any] = np.round(values.astype(np.float64), 6).tolist()
    return numbers if np.isfinite(values).all() else [value if value - value == 0 else None for value in numbers]
