"""Rows of TRL's stepwise supervision: the prompt as text, the first steps of an answer, and whether each is right."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lab.data.datasets.decisions import Candidate
from lab.data.datasets.rows import Made, hash_row_content, to_canonical_json
from lab.data.datasets.sides import Message, Side
from lab.data.datasets.step_marks import UNMARKED, Step

ENVIRONMENT = "steps after environment output, which a row cannot contain"


def prompt_text(asked: list[Message]) -> str:
    """TRL knows this format with a text prompt only. One message is its words; of several each stands after its role."""
    if len(asked) == 1:
        return asked[0]["content"]
    return "\n\n".join(f"{one['role']}: {one['content']}" for one in asked)


def build_stepwise_row(one: Candidate, side: Side, left_out: Counter[str]) -> Made | None:
    """The row of one answer: its steps up to the first that is not decided, since a row has no gaps. None where that is the very first."""
    if not side.steps:
        left_out["answers whose tokens are not stored"] += 1
        return None
    kept = collect_decided_steps(one, side, left_out)
    if not kept:
        left_out["answers whose first step is undecided"] += 1
        return None
    texts = [side.steps[place].text for place in range(len(kept))]
    row = {"prompt": prompt_text(side.asked), "completions": texts, "labels": [step.good for step in kept]}
    return Made(
        row=row,
        digest=hash_row_content(row),
        prompt=side.prompt,
        rollouts=one.rollouts,
        item=one.item,
        queue=one.queue,
        labellers=sorted({user for user, _ in one.ballots}),
        provenance=build_stepwise_provenance(one, side, kept),
    )


def collect_decided_steps(one: Candidate, side: Side, left_out: Counter[str]) -> list[Step]:
    said = {(step.start, step.end): step for step in one.steps}
    kept: list[Step] = []
    for stretch in side.steps:
        step = said.get((stretch.start, stretch.end))
        why = UNMARKED if step is None else step.why
        if side.spoken is not None and stretch.start >= side.spoken:
            why = ENVIRONMENT
        if step is None or why:
            left_out[why] += len(side.steps) - len(kept)
            break
        kept.append(step)
    return kept


def build_stepwise_provenance(one: Candidate, side: Side, kept: list[Step]) -> dict[str, Any]:
    """``steps``: one a label, in tokens of the answer; ``of``: steps the whole answer has; ``messages``: a prompt of several, as it was asked."""
    found = {
        "sides": {"completions": side.provenance},
        "steps": [step.told for step in kept],
        "of": len(side.steps),
        "spans": list(one.spans),
        "agreement": min(step.agreement for step in kept),
        "judgements": list(one.judgements),
        "adjudicated": one.adjudicated,
        "corrected": False,
        "seconds": one.seconds,
    }
    return {**found, "messages": side.asked} if len(side.asked) > 1 else found


def claims_of(row: Mapping[str, Any]) -> Iterator[tuple[bytes, bool]]:
    """(what the step is and what stands before it, whether it is right) for every step."""
    before = hashlib.sha256(to_canonical_json(row["prompt"]).encode()).digest()
    for text, label in zip(row["completions"], row["labels"], strict=True):
        before = hashlib.sha256(before + to_canonical_json(text).encode()).digest()
        yield before, label


def find_contradictions(rows: Iterable[Made]) -> dict[str, Made]:
    """Digest of a row -> a row that says the contrary of the same step after the same steps."""
    said: defaultdict[bytes, dict[bool, list[Made]]] = defaultdict(lambda: {True: [], False: []})
    for one in rows:
        for step, label in claims_of(one.row):
            said[step][label].append(one)
    found: dict[str, Made] = {}
    for sides in said.values():
        for label, others in ((True, sides[False]), (False, sides[True])):
            for one in sides[label] if others else ():
                found.setdefault(one.digest, others[0])
    return found
