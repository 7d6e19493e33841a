"""People as one reward column: groups of a running trainer are asked about, and answers that come before the deadline become rewards.

The trainer writes an ``asked`` event into its spool and reads ``human/answers.jsonl`` of its run folder, which the lab, or anybody, appends to:

    {"key": "1-7-0", "tiers": [[2], [0, 3], [1]]}     places of the event's completions, best first; a tier holds those that are equally good
    {"key": "1-7-1", "tiers": null}                   nobody will answer this one: the fallback counts at once

A key holds the attempt, so a step that is done again after a resume is asked about again and answers to the earlier attempt are not taken.
"""

import json
import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.attempt.telemetry import to_storable_text
from trainers.contract.events import Asked, Message
from trainers.contract.new_lines import NewLines
from trainers.contract.spec import ANSWERS, HUMAN, HumanReward

log = logging.getLogger(__name__)

PHASE = "waiting for people"
POLL_SECONDS = 0.1
GRACE_SECONDS = 1.0  # for an answer given just before the deadline to reach the file

Tiers = list[list[int]]


class InvalidAnswer(ValueError):
    """A line of the answers that cannot be used."""


def compute_win_shares(tiers: Tiers, members: int) -> list[float]:
    """(members,) each one's share of the comparisons with the others that it won, a tie counting half. Raises InvalidAnswer."""
    if any(not tier for tier in tiers) or sorted(place for tier in tiers for place in tier) != list(range(members)):
        raise InvalidAnswer(f"{tiers} does not name each of the places 0 to {members - 1} once")
    values, below = [0.0] * members, members
    for tier in tiers:
        below -= len(tier)
        for place in tier:
            values[place] = (below + (len(tier) - 1) / 2) / (members - 1)
    return values


def parse_answer_line(line: bytes) -> tuple[str, Tiers | None]:
    """Key and tiers of a line. Raises InvalidAnswer."""
    try:
        data = json.loads(line)
        key, tiers = data["key"], data["tiers"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidAnswer(f"{line[:80]!r} is no answer: it wants a key and tiers") from None
    plain = isinstance(tiers, list) and all(isinstance(tier, list) and all(type(place) is int for place in tier) for tier in tiers)
    if not isinstance(key, str) or not (tiers is None or plain):
        raise InvalidAnswer(f"{line[:80]!r} is no answer: the key is text and tiers are lists of places, or null")
    return key, tiers


class AnswerFile:
    """The file of answers, read on from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = NewLines(path)

    def new(self) -> Iterator[tuple[str, Tiers | None]]:
        for line in self.lines.read():
            try:
                yield parse_answer_line(line)
            except InvalidAnswer as error:
                log.warning("%s: %s", self.path.name, error)


@dataclass(frozen=True)
class Batch:
    """A generation batch as people are asked about it: B completions, ``members`` for each prompt, one prompt after the other."""

    step: int
    first_group: int
    members: int
    prompts: Sequence[Sequence[Message]]  # B
    references: Sequence[str]  # B
    texts: Sequence[str]  # B

    def group(self, number: int) -> slice:
        return slice(number * self.members, (number + 1) * self.members)

    @property
    def groups(self) -> int:
        return len(self.texts) // self.members


@dataclass
class HumanScores:
    """``values`` (B,): rewards in [0, 1], or the fallback."""

    values: list[float | None]
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupQuestion:
    """``members``: of each different completion the places in the group that said it; an answer ranks the completions."""

    group: int
    members: list[list[int]]

    def rewards(self, tiers: Tiers) -> list[float]:
        """(members of the group,) Raises InvalidAnswer."""
        compute_win_shares(tiers, len(self.members))
        return compute_win_shares([[member for place in tier for member in self.members[place]] for tier in tiers], sum(map(len, self.members)))


class People:
    """Asks about the groups of a batch and waits."""

    def __init__(self, wanted: HumanReward, folder: Path, reporter: Reporter, stop: StopRequest, seed: int) -> None:
        self.wanted, self.reporter, self.stop, self.seed = wanted, reporter, stop, seed
        self.answers = AnswerFile(folder / ANSWERS)
        self.answers.path.parent.mkdir(parents=True, exist_ok=True)  # so that anybody can append to it

    def score(self, batch: Batch) -> HumanScores:
        """The batch's column of rewards. Returns when every question is answered, its time is over, or a stop is requested."""
        asked = dict(self.ask(batch, number) for number in self.drawn(batch))
        began = time.monotonic()
        found = self.wait(asked, began + self.wanted.seconds + GRACE_SECONDS) if asked else {}
        scored = HumanScores([self.wanted.fallback] * len(batch.texts))
        for key, values in found.items():
            scored.values[batch.group(asked[key].group)] = values
        scored.metrics["share"] = len(found) * batch.members / len(batch.texts)
        if asked:
            scored.metrics |= {"answered": len(found) / len(asked), "wait_seconds": time.monotonic() - began}
        return scored

    def drawn(self, batch: Batch) -> list[int]:
        """Which groups people are asked about. One whose completions are all the same has nothing to compare."""

        def chosen(number: int) -> bool:
            return random.Random(f"{HUMAN}/{self.seed}/{batch.step}/{batch.first_group + number}").random() < self.wanted.share

        return [number for number in range(batch.groups) if chosen(number) and len(set(batch.texts[batch.group(number)])) > 1]

    def ask(self, batch: Batch, number: int) -> tuple[str, GroupQuestion]:
        """Reports the question; returns its key and what its answer will mean."""
        group, first = batch.first_group + number, number * batch.members
        key = f"{self.reporter.attempt}-{batch.step}-{group}"
        members: dict[str, list[int]] = {}
        for member, text in enumerate(batch.texts[batch.group(number)]):
            members.setdefault(to_storable_text(text), []).append(member)
        self.reporter.event(
            Asked,
            key=key,
            step=batch.step,
            group=group,
            prompt=[Message(message.role, to_storable_text(message.content)) for message in batch.prompts[first]],
            reference=to_storable_text(batch.references[first]),
            completions=list(members),
            deadline=time.time() + self.wanted.seconds,
        )
        return key, GroupQuestion(number, list(members.values()))

    def wait(self, asked: dict[str, GroupQuestion], until: float) -> dict[str, list[float]]:
        """The rewards of the groups that were ranked in time, by key. The first answer that can be used counts."""
        self.reporter.writer.sync()  # who answers reads the spool
        found: dict[str, list[float]] = {}
        waiting = set(asked)
        while True:
            for key, tiers in self.answers.new():
                if key in waiting and accept_answer(asked[key], key, tiers, found):
                    waiting.remove(key)
            self.reporter.phase(PHASE, len(asked) - len(waiting), len(asked))
            if not waiting or time.monotonic() >= until or self.stop.requested():
                return found
            time.sleep(POLL_SECONDS)


def accept_answer(question: GroupQuestion, key: str, tiers: Tiers | None, found: dict[str, list[float]]) -> bool:
    """Whether the answer settles its question."""
    try:
        if tiers is not None:
            found[key] = question.rewards(tiers)
    except InvalidAnswer as error:
        log.warning("the answer to %s is not used: %s", key, error)
        return False
    return True
