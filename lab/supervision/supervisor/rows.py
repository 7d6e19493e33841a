"""Rollouts as PostgreSQL's binary COPY rows, packed by hand: the generic row writer takes several times as long.

Format: https://www.postgresql.org/docs/current/sql-copy.html (File Formats, Binary): a row is its number of fields (int16) and for each its
length (int32, -1 = null) and its bytes, all big-endian. Timestamps are microseconds since 2000, json is its text, jsonb a version byte
and the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any
from uuid import UUID

import msgspec

from trainers.contract.events import Rollout

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
EPOCH_2000 = 946_684_800
NULL = b"\xff\xff\xff\xff"
PIECE_ROWS = 64  # rows sent at once: the server stores them while the next are packed

ROLLOUT_COLUMNS = (
    "id, run_id, prompt_id, attempt, step, group_index, sample, length, superseded, spool_end, created_at, reward, advantage, mean_entropy,"
    " max_entropy, phase, finish_reason, filtered, turns, nodes, rewards, contributions, shaped, completion"
)
TOKEN_COLUMNS = (
    "rollout_id, ids, lengths, logprobs, entropies, mask, token_advantages, weights, reference_logprobs, ratios, clipped, sampler_logprobs, ranks,"
    " alternative_ids, alternative_logprobs, alternative_texts"
)

# 24 fields, of which these eleven have one length: bigint, uuid, bigint, smallint, three integers … each after its length
FIXED = Struct(">h iq i16s iq ih ii ii ih ii i? iq iq".replace(" ", "")).pack
FIXED_NO_LENGTH = Struct(">h iq i16s iq ih ii ii ih i i? iq iq".replace(" ", "")).pack  # the length is null
DOUBLES = Struct(">idididid").pack
DOUBLE = Struct(">id").pack
LENGTH = Struct(">i").pack
TOKENS = Struct(">hiqi").pack
EMPTY_LIST = LENGTH(3) + b"\x01[]"
NO_NODES = LENGTH(2) + b"[]"
NOTHING = LENGTH(3) + b"\x01{}"
NO_METHODS = NOTHING + NOTHING
NO_ARRAYS = 10 * LENGTH(0)
encode_json = msgspec.json.Encoder().encode

Numbered = tuple[Rollout, int]  # an event and the spool offset after it


def rollout_rows(run_id: UUID, rollouts: Sequence[Numbered], ids: Sequence[int], prompts: Sequence[int]) -> Iterator[bytes]:
    """The COPY stream of the rollouts' rows, in pieces."""
    run, words = run_id.bytes, FieldTexts()
    yield HEADER
    for start in range(0, len(rollouts), PIECE_ROWS):
        parts: list[bytes] = []
        for index in range(start, min(start + PIECE_ROWS, len(rollouts))):
            event, end = rollouts[index]
            # fmt: off
            pack, length = (FIXED, (4, event.length)) if event.length is not None else (FIXED_NO_LENGTH, (-1,))
            parts.append(pack(
                24, 8, ids[index], 16, run, 8, prompts[index], 2, event.attempt, 4, event.step, 4, event.group, 2, event.sample,
                *length, 1, False, 8, end, 8, int((event.time - EPOCH_2000) * 1_000_000),
            ))
            # fmt: on
            completion, rewards = event.completion.encode(), encode_json(event.rewards)
            parts += (
                pack_doubles(event.reward, event.advantage, event.mean_entropy, event.max_entropy),
                words[event.phase],
                words[event.finish_reason],
                words[event.filtered],
                pack_turns(event) if event.turns else EMPTY_LIST,
                pack_json(event.nodes) if event.nodes else NO_NODES,
                LENGTH(len(rewards) + 1),
                b"\1",
                rewards,
                by_methods(event) if event.contributions or event.shaped else NO_METHODS,
                LENGTH(len(completion)),
                completion,
            )
        yield b"".join(parts)
    yield TRAILER


def token_rows(rollouts: Sequence[Numbered], ids: Sequence[int]) -> Iterator[bytes]:
    """The COPY stream of the rollouts' packed arrays, in pieces."""
    yield HEADER
    for start in range(0, len(rollouts), PIECE_ROWS):
        parts: list[bytes] = []
        for index in range(start, min(start + PIECE_ROWS, len(rollouts))):
            event = rollouts[index][0]
            lengths, logprobs, entropies, mask = event.lengths, event.logprobs, event.entropies, event.mask
            parts += (
                TOKENS(16, 8, ids[index], len(event.ids)),
                event.ids,
                LENGTH(len(lengths)),
                lengths,
                LENGTH(len(logprobs)),
                logprobs,
                LENGTH(len(entropies)),
                entropies,
                LENGTH(len(mask)),
                mask,
                more_arrays(event) or NO_ARRAYS,
            )
        yield b"".join(parts)
    yield TRAILER


class FieldTexts(dict[str, bytes]):
    """Short texts that repeat, as fields."""

    def __missing__(self, text: str) -> bytes:
        data = text.encode()
        self[text] = field = LENGTH(len(data)) + data
        return field


def pack_doubles(*numbers: float | None) -> bytes:
    if None not in numbers:
        reward, advantage, mean, largest = numbers
        return DOUBLES(8, reward, 8, advantage, 8, mean, 8, largest)
    return b"".join(NULL if number is None else DOUBLE(8, number) for number in numbers)


def pack_turns(event: Rollout) -> bytes:
    return pack_jsonb([[turn.role, turn.start, turn.end] for turn in event.turns])


def by_methods(event: Rollout) -> bytes:
    return pack_jsonb(event.contributions) + (pack_jsonb(event.shaped) if event.shaped else NOTHING)


def more_arrays(event: Rollout) -> bytes:
    """What only some runs have; nothing where this rollout has none of it."""
    own = (event.token_advantages, event.weights, event.reference_logprobs, event.ratios, event.clipped, event.sampler_logprobs)
    arrays = (*own, event.ranks, event.alternative_ids, event.alternative_logprobs, event.alternative_texts)
    return b"".join(LENGTH(len(packed)) + packed for packed in arrays) if any(arrays) else b""


def pack_json(value: Any) -> bytes:
    data = encode_json(value)
    return LENGTH(len(data)) + data


def pack_jsonb(value: Any) -> bytes:
    data = encode_json(value)
    return LENGTH(len(data) + 1) + b"\1" + data
