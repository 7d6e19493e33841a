"""Rows of TRL's stepwise supervision: the prompt as text, the first steps of an answer, and whether each is right."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lab.data.datasets.decisions import RowCandidate
from lab.data.datasets.rows import BuiltRow, hash_row_content, to_canonical_json
from lab.data.datasets.sides import Message, SourceRollout
from lab.data.datasets.step_marks import UNMARKED, StepLabel

ENVIRONMENT = "steps after environment output, which a row cannot contain"


def prompt_text(messages: list[Message]) -> str:
    """TRL knows this format with a text prompt only. One message is its words; of several each stands after its role."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


def build_stepwise_row(candidate: RowCandidate, side: SourceRollout, left_out: Counter[str]) -> BuiltRow | None:
    """The row of one answer: its steps up to the first that is not decided, since a row has no gaps. None where that is the very first."""
    if not side.steps:
        left_out["answers whose tokens are not stored"] += 1
        return None
    kept = collect_decided_steps(candidate, side, left_out)
    if not kept:
        left_out["answers whose first step is undecided"] += 1
        return None
    texts = [side.steps[index].text for index in range(len(kept))]
    row = {"prompt": prompt_text(side.prompt_messages), "completions": texts, "labels": [step.good for step in kept]}
    return BuiltRow(
        row=row,
        digest=hash_row_content(row),
        prompt=side.prompt,
        rollouts=candidate.rollouts,
        item=candidate.item,
        queue=candidate.queue,
        labellers=sorted({user for user, _ in candidate.ballots}),
        provenance=build_stepwise_provenance(candidate, side, kept),
    )


def collect_decided_steps(candidate: RowCandidate, side: SourceRollout, left_out: Counter[str]) -> list[StepLabel]:
    decided = {(step.start, step.end): step for step in candidate.steps}
    kept: list[StepLabel] = []
    for stretch in side.steps:
        step = decided.get((stretch.start, stretch.end))
        why = UNMARKED if step is None else step.why
        if side.spoken is not None and stretch.start >= side.spoken:
            why = ENVIRONMENT
        if step is None or why:
            left_out[why] += len(side.steps) - len(kept)
            break
        kept.append(step)
    return kept


def build_stepwise_provenance(candidate: RowCandidate, side: SourceRollout, kept: list[StepLabel]) -> dict[str, Any]:
    """``steps``: one a label, in tokens of the answer; ``of``: steps the whole answer has; ``messages``: a prompt of several, as it was asked."""
    provenance = {
        "sides": {"completions": side.provenance},
        "steps": [step.told for step in kept],
        "of": len(side.steps),
        "spans": list(candidate.spans),
        "agreement": min(step.agreement for step in kept),
        "judgements": list(candidate.judgements),
        "adjudicated": candidate.adjudicated,
        "corrected": False,
        "seconds": candidate.seconds,
    }
    return {**provenance, "messages": side.prompt_messages} if len(side.prompt_messages) > 1 else provenance


def claims_of(row: Mapping[str, Any]) -> Iterator[tuple[bytes, bool]]:
    """(what the step is and what stands before it, whether it is right) for every step."""
    before = hashlib.sha256(to_canonical_json(row["prompt"]).encode()).digest()
    for text, label in zip(row["completions"], row["labels"], strict=True):
        before = hashlib.sha256(before + to_canonical_json(text).encode()).digest()
        yield before, label


def find_contradictions(rows: Iterable[BuiltRow]) -> dict[str, BuiltRow]:
    """Digest of a row -> a row that says the contrary of the same step after the same steps."""
    claims: defaultdict[bytes, dict[bool, list[BuiltRow]]] = defaultdict(lambda: {True: [], False: []})
    for row in rows:
        for step, label in claims_of(row.row):
            claims[step][label].append(row)
    contradictions: dict[str, BuiltRow] = {}
    for sides in claims.values():
        for label, others in ((True, sides[False]), (False, sides[True])):
            for row in sides[label] if others else ():
                contradictions.setdefault(row.digest, others[0])
    return contradictions
