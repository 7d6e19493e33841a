"""Rollouts as events: the text that each token adds, the packed arrays, and text made safe to store.

Everything here runs on the spool's writer thread while the next training step is computed.
"""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trainers.attempt.alternatives import Alternatives, fill_up, pack_alternatives
from trainers.contract import arrays
from trainers.contract.events import Message, Rollout, RolloutNode, Turn

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
LOOK_BACK = 16  # tokens that the slow path decodes again before a token, so that what they add does not depend on where it starts


def to_storable_text(text: str) -> str:
    """NUL as U+2400 and every lone surrogate as U+FFFD, one code point for one, so token lengths still fit."""
    return UNSTORABLE.sub(lambda match: "\u2400" if match[0] == "\x00" else "\ufffd", text)


def byte_alphabet() -> dict[str, int]:
    """The printable character that byte-level vocabularies write for each byte (GPT-2): printable Latin-1 as itself, the rest from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(byte): byte for byte in printable}
    hidden = [byte for byte in range(256) if byte not in printable]
    alphabet.update({chr(256 + place): byte for place, byte in enumerate(hidden)})
    return alphabet


class Pieces:
    """How many code points of a completion each of its tokens adds, for one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special = frozenset(tokenizer.all_special_ids)
        self.texts: dict[int, str] = {}
        self.bytes: dict[int, bytes] = {}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self.byte_level = backend is not None and type(backend.decoder).__name__ == "ByteLevel"
        self.added = {id_: token.content for id_, token in tokenizer.added_tokens_decoder.items()}
        self.alphabet = byte_alphabet()

    def lengths(self, ids: Sequence[int], text: str) -> list[int]:
        """Code points of ``text`` (the decoded completion) that each id adds; they always sum to its length."""
        found = [len(self.piece(id_)) for id_ in ids]
        if "".join([self.texts[id_] for id_ in ids]) != text:
            found = self.by_bytes(ids) if self.byte_level else self.by_prefixes(ids)
        rest = len(text) - sum(found)
        if rest and found:  # a decoder that changes text across tokens: what is left belongs to the last ones
            place = len(found) - 1
            while rest and place >= 0:
                change = max(rest, -found[place])
                found[place] += change
                rest -= change
                place -= 1
        return found

    def piece(self, id_: int) -> str:
        if (known := self.texts.get(id_)) is None:
            known = self.texts[id_] = "" if id_ in self.special else self.tokenizer.decode([id_], skip_special_tokens=True)
        return known

    def name(self, id_: int) -> str:
        """What to call a token where it stands by itself: a special token has its own name, not the nothing that it adds to a text."""
        text = self.added.get(id_, "") if id_ in self.special else self.piece(id_)
        return to_storable_text(text)

    def raw(self, id_: int) -> bytes:
        if (known := self.bytes.get(id_)) is None:
            token = self.added[id_] if id_ in self.added else self.tokenizer.convert_ids_to_tokens(id_)
            inside = token is not None and all(char in self.alphabet for char in token)
            known = bytes(self.alphabet[char] for char in token) if inside else (token or "").encode("utf-8", "replace")
            self.bytes[id_] = known
        return known

    def by_bytes(self, ids: Sequence[int]) -> list[int]:
        """Exact for byte-level vocabularies: the bytes of a character split over tokens count with the token that completes it."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        found = [0 if id_ in self.special else len(decoder.decode(self.raw(id_))) for id_ in ids]
        if found:
            found[-1] += len(decoder.decode(b"", final=True))
        return found

    def by_prefixes(self, ids: Sequence[int]) -> list[int]:
        """For every other decoder: the growth of the decoded text, seen from a few tokens back. Text that a later token still changes waits."""
        found, start, before = [], 0, 0
        for place in range(len(ids)):
            if place - start > 2 * LOOK_BACK:
                start = place - LOOK_BACK
                before = len(self.stable(ids[start:place]))
            now = len(self.stable(ids[start : place + 1]))
            found.append(max(0, now - before))
            before = max(before, now)
        return found

    def stable(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text.removesuffix("\ufffd")


@dataclass(frozen=True)
class Scored:
    """One scored completion, everything but its token statistics. T tokens, policy and environment together."""

    step: int
    phase: Literal["train", "heldout", "sampled", "play"]
    group: int
    sample: int
    prompt: Sequence[Message]
    text: str
    rewards: dict[str, float | None]
    reward: float | None
    finish_reason: Literal["stop", "length", "turns"]
    ids: Sequence[int]  # (T,)
    mask: Sequence[int] = ()  # (T,) 1 = written by the policy; empty = all of it
    turns: list[Turn] = field(default_factory=list)
    nodes: list[RolloutNode] = field(default_factory=list)
    reference: str = ""
    advantage: float | None = None
    contributions: dict[str, float] = field(default_factory=dict)
    shaped: dict[str, float] = field(default_factory=dict)
    token_advantages: bytes = b""
    filtered: str = ""
    alternatives: Alternatives | None = None
    answer: str | None = None  # what reward functions score, where that is not the whole text


def build_rollout_event(
    scored: Scored, logprobs: npt.NDArray[Any], entropies: npt.NDArray[Any], pieces: Pieces, stamp: dict[str, Any], **more: Any
) -> Rollout:
    """The event of a completion with its per-token log-probabilities and entropies (T,) in nats. ``stamp``: attempt and time.

    ``more``: other arrays of the event (weights, reference_logprobs, ratios, clipped, sampler_logprobs), packed. Next to those of a sampler the
    log-probabilities are float32: float16 would show differences that are only its own.
    """
    mask = np.asarray(scored.mask, dtype=bool)
    own = entropies[mask] if mask.size else entropies
    own = own[np.isfinite(own)]
    return Rollout(
        **stamp,
        step=scored.step,
        phase=scored.phase,
        group=scored.group,
        sample=scored.sample,
        prompt=[Message(message.role, to_storable_text(message.content)) for message in scored.prompt],
        completion=to_storable_text(scored.text),
        rewards=scored.rewards,
        reward=scored.reward,
        finish_reason=scored.finish_reason,
        reference=to_storable_text(scored.reference),
        advantage=scored.advantage,
        length=int(mask.sum()) if mask.size else len(scored.ids),
        mean_entropy=float(own.mean()) if own.size else None,
        max_entropy=float(own.max()) if own.size else None,
        turns=scored.turns,
        nodes=scored.nodes,
        ids=arrays.pack_ids(scored.ids),
        lengths=arrays.pack_array(pieces.lengths(scored.ids, scored.text), "H"),
        logprobs=arrays.pack_array(logprobs, "f" if "sampler_logprobs" in more else "e"),
        entropies=arrays.pack_array(entropies, "e"),
        mask=b"" if not mask.size or mask.all() else arrays.pack_array(mask, "B"),
        contributions=scored.contributions,
        shaped=scored.shaped,
        token_advantages=scored.token_advantages,
        filtered=scored.filtered,
        **pack_alternatives(scored.alternatives and fill_up(scored.alternatives, len(scored.ids)), pieces),
        **more,
    )
