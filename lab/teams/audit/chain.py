"""The hash chain over the audit log: what was changed, taken out or cut off can be told afterwards.

Each link holds SHA-256 over the digest of the link before it and its entry's content. Entries are linked right after the transaction that
recorded them has committed, in a transaction of its own under one lock: an act never waits for the chain while it holds rows, so that the
chain can neither block nor deadlock it. A worker links what a process that died left behind.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from lab.lib.numbers import parse_whole_number
from lab.teams.audit.models import ChainLink, Entry, Unchained

LOCK = 0x6175646974  # of PostgreSQL's advisory locks
START = bytes(32)  # stands before the first link
BATCH = 1000
WRITE = """
    WITH done AS (DELETE FROM audit_unchained WHERE entry_id = ANY(%(ids)s))
    INSERT INTO audit_chainlink (number, entry_id, digest) SELECT * FROM unnest(%(numbers)s::bigint[], %(ids)s::bigint[], %(digests)s::bytea[])
"""
CONTENT = ("team_id", "actor_id", "who", "via", "token", "action", "kind", "object_id", "label", "address", "agent", "details")


@dataclass(frozen=True)
class Head:
    """How many links there are, and the digest of the last."""

    number: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.number}:{self.digest.hex()}"

    @classmethod
    def read(cls, text: str) -> Head:
        """Of ``12:<64 hexadecimal digits>``. Raises ValueError."""
        number, _, digits = text.strip().partition(":")
        digest = bytes.fromhex(digits)
        position = parse_whole_number(number)
        if position is None or len(digest) != len(START):
            raise ValueError(f"{text[:100]!r} is no head of the chain; it looks like 12:9f86d081…, with 64 digits after the colon")
        return cls(position, digest)


@dataclass(frozen=True)
class ChainCheck:
    """``checked`` links are in order; ``problem`` says what the next one is not, empty when the chain is whole. ``waiting`` entries have none yet."""

    checked: int
    head: Head
    waiting: int
    problem: str = ""


def compute_link_digest(before: bytes, number: int, entry: Any) -> bytes:
    """(32,) bytes. ``entry`` as it was read from the database."""
    at = entry.at.astimezone(UTC).isoformat(timespec="microseconds")
    content = [number, entry.pk, at, *(getattr(entry, name) for name in CONTENT)]
    written = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(before + written.encode()).digest()


def build_chain_links(head: Head, entries: list[Any]) -> Iterator[tuple[int, int, bytes]]:
    """(number, entry's id, digest) of the links that put ``entries`` after ``head``."""
    number, digest = head.number, head.digest
    for entry in entries:
        number += 1
        digest = compute_link_digest(digest, number, entry)
        yield number, entry.pk, digest


def read_head() -> Head:
    last = ChainLink.objects.order_by("-number").values_list("number", "digest").first()
    return Head(last[0], bytes(last[1])) if last else Head(0, START)


def link_waiting() -> int:
    """Links the committed entries that wait, oldest first; returns how many."""
    count = 0
    while Unchained.objects.exists():
        done = link_batch()
        count += done
        if done < BATCH:
            break
    return count


def link_batch() -> int:
    """Does not wait for the disk: a crash of the server takes links and the end of waiting back together."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s), set_config('synchronous_commit', 'off', true)", [LOCK])
        waiting = list(Entry.across_teams.defer("words").filter(Exists(Unchained.objects.filter(entry_id=OuterRef("pk")))).order_by("pk")[:BATCH])
        links = list(build_chain_links(read_head(), waiting))
        if links:
            numbers, ids, digests = (list(column) for column in zip(*links, strict=True))
            cursor.execute(WRITE, {"numbers": numbers, "ids": ids, "digests": digests})
    return len(links)


def verify_chain(expected: list[Head]) -> ChainCheck:
    """Walks the whole chain. ``expected``: heads it had earlier, which must still be in it."""
    head, known = Head(0, START), {expected_head.number: expected_head for expected_head in expected}
    waiting = Unchained.objects.count()
    for batch in iterate_link_batches():
        entries = Entry.across_teams.defer("words").in_bulk([entry_id for _, entry_id, _ in batch])
        for number, entry_id, digest in batch:
            problem = wrong_with(head, number, entry_id, digest, entries.get(entry_id))
            if not problem and number in known and known[number].digest != digest:
                problem = f"Link {number} is another than the one that was kept: what stands before it was written anew."
            if problem:
                return ChainCheck(head.number, head, waiting, problem)
            head = Head(number, digest)
    return ChainCheck(head.number, head, waiting, cut_off(head, expected) or left_out())


def iterate_link_batches() -> Iterator[list[tuple[int, int, bytes]]]:
    after = -(2**63)
    while rows := list(ChainLink.objects.filter(number__gt=after).order_by("number").values_list("number", "entry_id", "digest")[:BATCH]):
        yield [(number, entry_id, bytes(digest)) for number, entry_id, digest in rows]
        after = rows[-1][0]


def wrong_with(head: Head, number: int, entry_id: int, digest: bytes, entry: Entry | None) -> str:
    if number != head.number + 1:
        return f"Link {head.number + 1} is missing; the next one is {number}."
    if entry is None:
        return f"Entry {entry_id} (link {number}) was taken out."
    if compute_link_digest(head.digest, number, entry) != digest:
        return f"Entry {entry_id} (link {number}, {entry.at:%Y-%m-%d %H:%M:%S} UTC, {entry.action}) was changed, or its link was."
    return ""


def cut_off(head: Head, expected: list[Head]) -> str:
    newest = max(expected, key=lambda expected_head: expected_head.number, default=head)
    if newest.number > head.number:
        return f"The chain ends with link {head.number}, but had {newest.number}: its end was cut off."
    return ""


def left_out() -> str:
    """One statement, so that an entry that is just being recorded or linked is in one of the two tables."""
    link, waits = ChainLink.objects.filter(entry_id=OuterRef("pk")), Unchained.objects.filter(entry_id=OuterRef("pk"))
    stray = Entry.across_teams.filter(~Exists(link), ~Exists(waits)).order_by("pk").values_list("pk", flat=True).first()
    if stray is not None:
        return f"Entry {stray} is in no link and waits for none: it was put in past the log."
    gone = Unchained.objects.filter(~Exists(Entry.across_teams.filter(pk=OuterRef("entry_id")))).order_by("pk").values_list("pk", flat=True).first()
    return f"Entry {gone} was taken out before it was linked." if gone is not None else ""
