"""Each prompt is stored once per team, found by a digest of its messages and reference."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from trainers.contract.events import Asked, Rollout

REMEMBERED = 50_000
encode = msgspec.json.Encoder().encode

_known: OrderedDict[tuple[int, bytes], int] = OrderedDict()


def digest_prompt(event: Rollout | Asked) -> bytes:
    """16 bytes of BLAKE2b over the JSON of [[{role, content}, …], reference]."""
    return blake2b(encode((event.prompt, event.reference)), digest_size=16).digest()


def digests_of(events: Sequence[Rollout | Asked]) -> list[bytes]:
    """The digest of each event's prompt; the members of a group come one after the other and share it."""
    digests: list[bytes] = []
    last: Rollout | Asked | None = None
    for event in events:
        same = last is not None and event.prompt == last.prompt and event.reference == last.reference
        digests.append(digests[-1] if same else digest_prompt(event))
        last = event
    return digests


def resolve_prompt_ids(cursor: Any, team_id: int, events: Sequence[Rollout | Asked]) -> tuple[list[int], dict[bytes, int]]:
    """The prompt id of each event, stored in the caller's transaction where new, and what to ``remember_prompts`` once that is committed.

    Every prompt is locked against deletion until the caller commits, which is what a foreign key would do row by row.
    """
    digests = digests_of(events)
    events_by_digest = dict(zip(digests, events, strict=True))
    ids = {key: _known[team_id, key] for key in events_by_digest if (team_id, key) in _known}
    if ids:
        # Deleted since, or lost when the database's machine died (``ingest.begin_batch``) and its id given to another prompt.
        cursor.execute("SELECT digest, id FROM trajectories_prompt WHERE id = ANY(%s) FOR KEY SHARE", [list(ids.values())])
        stored = {bytes(key): prompt for key, prompt in cursor.fetchall()}
        ids = {key: prompt for key, prompt in ids.items() if stored.get(key) == prompt}
    new = {key: event for key, event in events_by_digest.items() if key not in ids}
    if new:
        ids |= _store_prompts(cursor, team_id, new)
    return [ids[key] for key in digests], {key: ids[key] for key in new}


def _store_prompts(cursor: Any, team_id: int, new: dict[bytes, Rollout | Asked]) -> dict[bytes, int]:
    # One order for all, so that two runs with the same prompts wait for each other instead of deadlocking; one JSON text, because arrays
    # of texts are slow to send.
    rows = [_build_prompt_row(key, new[key]) for key in sorted(new)]
    cursor.execute(
        "INSERT INTO trajectories_prompt (team_id, digest, messages, text, reference)"
        " SELECT %s, decode(digest, 'hex'), messages, text, reference"
        " FROM json_to_recordset(%s::json) AS prompt(digest text, messages jsonb, text text, reference text)"
        " ON CONFLICT (team_id, digest) DO NOTHING RETURNING digest, id",
        [team_id, encode(rows).decode()],
    )
    ids = {bytes(key): prompt for key, prompt in cursor.fetchall()}
    if missing := [key for key in new if key not in ids]:  # somebody else's
        cursor.execute("SELECT digest, id FROM trajectories_prompt WHERE team_id = %s AND digest = ANY(%s) FOR KEY SHARE", [team_id, missing])
        ids |= {bytes(key): prompt for key, prompt in cursor.fetchall()}
    return ids


def _build_prompt_row(key: bytes, event: Rollout | Asked) -> dict[str, Any]:
    messages = [[message.role, message.content] for message in event.prompt]
    said = [content for role, content in reversed(messages) if role == "user"] or [messages[-1][1] if messages else ""]  # roles can have any name
    return {"digest": key.hex(), "messages": messages, "text": said[0], "reference": event.reference}


def remember_prompts(team_id: int, committed: dict[bytes, int]) -> None:
    for key, prompt in committed.items():
        _known[team_id, key] = prompt
    while len(_known) > REMEMBERED:
        _known.popitem(last=False)


def forget_prompts() -> None:
    """For tests, whose database is emptied behind our back."""
    _known.clear()
