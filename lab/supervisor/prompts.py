"""Each prompt is stored once per team, found by a digest of its messages and reference."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from trainers.events import Rollout

REMEMBERED = 50_000
encode = msgspec.json.Encoder().encode

_known: OrderedDict[tuple[int, bytes], int] = OrderedDict()


def digest(event: Rollout) -> bytes:
    """16 bytes of BLAKE2b over the JSON of [[{role, content}, …], reference]."""
    return blake2b(encode((event.prompt, event.reference)), digest_size=16).digest()


def resolve(cursor: Any, team_id: int, events: Sequence[Rollout]) -> tuple[list[int], dict[bytes, int]]:
    """The prompt id of each event, stored in the caller's transaction where new, and what to ``remember`` once that is committed."""
    digests = [digest(event) for event in events]
    found: dict[bytes, int] = {}
    new: dict[bytes, Rollout] = {}
    for key, event in zip(digests, events, strict=True):
        if (prompt := _known.get((team_id, key))) is not None:
            found[key] = prompt
        else:
            new[key] = event
    if new:
        found |= _store(cursor, team_id, new)
    return [found[key] for key in digests], {key: found[key] for key in new}


def _store(cursor: Any, team_id: int, new: dict[bytes, Rollout]) -> dict[bytes, int]:
    keys = sorted(new)  # one order for all, so that two runs with the same prompts wait for each other instead of deadlocking
    messages = [encode([[message.role, message.content] for message in new[key].prompt]).decode() for key in keys]
    texts = [next((message.content for message in reversed(new[key].prompt) if message.role == "user"), "") for key in keys]
    cursor.execute(
        "INSERT INTO trajectories_prompt (team_id, digest, messages, text, reference)"
        " SELECT %s, * FROM unnest(%s::bytea[], %s::jsonb[], %s::text[], %s::text[]) ON CONFLICT (team_id, digest) DO NOTHING",
        [team_id, keys, messages, texts, [new[key].reference for key in keys]],
    )
    cursor.execute("SELECT digest, id FROM trajectories_prompt WHERE team_id = %s AND digest = ANY(%s)", [team_id, keys])
    return {bytes(key): prompt for key, prompt in cursor.fetchall()}


def remember(team_id: int, committed: dict[bytes, int]) -> None:
    for key, prompt in committed.items():
        _known[team_id, key] = prompt
    while len(_known) > REMEMBERED:
        _known.popitem(last=False)


def forget() -> None:
    """After a failed batch: a remembered prompt may have been deleted with its team."""
    _known.clear()
