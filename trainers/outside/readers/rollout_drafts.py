"""A rollout as a format's reader found it, and the event it becomes. What the source lacks stays unknown: None, empty, never 0."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from trainers.contract.events import Message, Rollout, Turn
from trainers.outside.readers.base import BrokenRow, Phase, to_finite_float
from trainers.outside.readers.chat_text import to_storable_text
from trainers.outside.readers.packed_values import pack_token_ids, pack_values
from trainers.outside.readers.token_lengths import TokenLengths

EVENT_BYTES = 7 << 20  # the lab takes 8 MiB at once
MOST_REWARDS = 200  # names
MOST_NAME = 100
encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class TokenColumns:
    """Of a completion of T tokens: ids and, where the source has them, (T,) numbers. ``mask``: 1 where the policy wrote the token.

    ``spelled``: what the ids spell is the completion, whatever text the draft has; ``turns`` are then those in tokens.
    """

    ids: list[int]
    logprobs: list[float | None] | None = None
    sampler_logprobs: list[float | None] | None = None
    entropies: list[float | None] | None = None
    mask: list[float | None] | None = None
    advantages: list[float | None] | None = None
    ratios: list[float | None] | None = None
    spelled: bool = False
    turns: list[Turn] = field(default_factory=list)


@dataclass(slots=True)
class RolloutDraft:
    """``turns`` are in code points. ``group``: what members of a group share; None: the prompt and reference. ``rewards``: by name."""

    prompt: list[Message]
    completion: str
    reward: float | None = None
    rewards: dict[str, float | None] = field(default_factory=dict)
    reference: str = ""
    advantage: float | None = None
    finish_reason: str = ""
    length: int | None = None
    turns: list[Turn] = field(default_factory=list)
    filtered: str = ""
    group: Hashable = None
    tokens: TokenColumns | None = None
    time: float | None = None

    def group_key(self) -> Hashable:
        if self.group is not None:
            return self.group
        return blake2b(encode((self.prompt, self.reference)), digest_size=16).digest()


class GroupNumbers:
    """Numbers the groups of a step as they come, and the members of each."""

    def __init__(self) -> None:
        self.groups: dict[Hashable, tuple[int, int]] = {}

    def number_next(self, key: Hashable) -> tuple[int, int]:
        """(group, sample) of the next member of the group with that key."""
        group, count = self.groups.get(key, (len(self.groups), 0))
        self.groups[key] = (group, count + 1)
        return group, count


def build_rollout_event(draft: RolloutDraft, place: tuple[int, Phase, int, int], time: float, lengths: TokenLengths | None) -> Rollout:
    """``place``: step, phase, group, sample. Raises BrokenRow where the lab could not take the rollout."""
    step, phase, group, sample = place
    completion = to_storable_text(draft.completion)
    arrays: dict[str, Any] = {}
    turns, length, columns = draft.turns, draft.length, draft.tokens
    if columns is not None:
        length = count_policy_tokens(columns) if length is None else length
        if lengths is not None:
            completion = to_storable_text(lengths.decode(columns.ids)) if columns.spelled else completion
            counts = lengths.count_characters(columns.ids, completion)
            if counts is not None:
                arrays = pack_columns(columns, counts)
            if columns.spelled:
                turns = columns.turns if counts is not None else []
            elif counts is not None:
                turns = to_token_turns(turns, counts)
    event = Rollout(
        attempt=1,
        time=time,
        step=step,
        phase=phase,
        group=group,
        sample=sample,
        prompt=draft.prompt,
        completion=completion,
        rewards=dict(list(draft.rewards.items())[:MOST_REWARDS]),
        reward=draft.reward,
        finish_reason=draft.finish_reason,  # type: ignore[arg-type]
        reference=to_storable_text(draft.reference),
        advantage=draft.advantage,
        length=length,
        turns=turns,
        filtered=to_storable_text(draft.filtered)[:500],
        **summarize_entropies(columns),
        **arrays,
    )
    size = len(encode(event))
    if size > EVENT_BYTES:
        raise BrokenRow(f"the rollout takes {size >> 20} MiB, and the lab takes {EVENT_BYTES >> 20} at most")
    return event


def count_policy_tokens(columns: TokenColumns) -> int:
    return len(columns.ids) if columns.mask is None else sum(1 for one in columns.mask if one)


def summarize_entropies(columns: TokenColumns | None) -> dict[str, Any]:
    """Mean and largest entropy over the policy's tokens; nothing where the source has none."""
    if columns is None or columns.entropies is None:
        return {}
    mask = columns.mask or [1.0] * len(columns.ids)
    own = [value for value, inside in zip(columns.entropies, mask, strict=True) if inside and value is not None]
    return {"mean_entropy": sum(own) / len(own), "max_entropy": max(own)} if own else {}


def pack_columns(columns: TokenColumns, counts: list[int]) -> dict[str, bytes]:
    """Raises BrokenRow for ids that are none."""
    found: dict[str, bytes] = {}
    try:
        found["ids"] = pack_token_ids(columns.ids)
        found["lengths"] = pack_values(counts, "H" if max(counts, default=0) < 65536 else "i")
        for name, values, code in (
            ("logprobs", columns.logprobs, "f"),
            ("sampler_logprobs", columns.sampler_logprobs, "f"),
            ("entropies", columns.entropies, "e"),
            ("token_advantages", columns.advantages, "f"),
            ("ratios", columns.ratios, "f"),
        ):
            if values is not None:
                found[name] = pack_values(values, code)
        if columns.mask is not None and not all(columns.mask):
            found["mask"] = pack_values([1.0 if one else 0.0 for one in columns.mask], "B")
    except (ValueError, TypeError) as error:
        raise BrokenRow(f"token ids and numbers cannot be stored: {error}") from None
    return found


def to_token_turns(turns: list[Turn], counts: list[int]) -> list[Turn]:
    """Turns in code points as turns in tokens: a token belongs to the turn in which it begins."""
    if not turns:
        return []
    starts, at = [], 0
    for count in counts:
        starts.append(at)
        at += count
    found, token = [], 0
    for turn in turns:
        first = token
        while token < len(starts) and starts[token] < turn.end:
            token += 1
        found.append(Turn(turn.role, first, token))
    return found


def collect_numbers(row: Mapping[str, Any], leave_out: Collection[str] = ()) -> dict[str, float | None]:
    """The row's numbers by name: what a framework logs beside the reward. Truth values are 1 and 0."""
    found = {name: value for name, value in row.items() if name not in leave_out and isinstance(value, bool | int | float)}
    return {to_storable_text(str(name))[:MOST_NAME]: to_finite_float(value) for name, value in found.items()}
