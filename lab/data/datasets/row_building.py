"""Rows in TRL's shapes from decided items: filters, texts, duplicates, cleaning, the limit per prompt, the split. Nothing is random.

The same labels under the same rule give the same rows in the same order.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from lab.data.datasets.cleaning import Evidence, score_suspicions
from lab.data.datasets.decisions import Candidate, LeftOut, decide_candidates
from lab.data.datasets.models import Form
from lab.data.datasets.rows import Made, build_prompt_key, hash_row_content, make_opposite_row
from lab.data.datasets.rules import Rule
from lab.data.datasets.sides import Message, Side
from lab.data.datasets.stepped_rows import build_stepwise_row, find_contradictions
from lab.data.datasets.votes import Judged

BATCH = 2000
LISTED = 50  # contradictions that are named
Load = Callable[[Iterable[int]], dict[int, Side]]
Progress = Callable[[int], object]  # items looked at


@dataclass
class Composed:
    rows: list[Made] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    cleaned: Counter[str] = field(default_factory=Counter)  # suspect, and what was done
    contradictions: list[list[int]] = field(default_factory=list)  # items that say opposite things of the same texts
    items: int = 0

    def counts(self) -> dict[str, Any]:
        train = sum(one.split == "train" for one in self.rows)
        return {
            "train": train,
            "test": len(self.rows) - train,
            "left_out": dict(self.left_out.most_common()),
            "cleaned": dict(self.cleaned),
            "contradictions": self.contradictions[:LISTED],
            "items": self.items,
        }


def compose_rows(judged: Iterable[Judged], rule: Rule, load: Load, scores: Mapping[int, float], progress: Progress | None = None) -> Composed:
    found = Composed()
    candidates, sides = collect_candidates(judged, rule, load, scores, found, progress)
    rows = [made for one in in_age(candidates, sides, rule, found) if (made := made_of(one, sides, rule, found))]
    finalize_rows(rows, rule, found)
    return found


def finalize_rows(rows: list[Made], rule: Rule, found: Composed) -> None:
    """What is decided over all rows together; of imported rows too."""
    rows = without_duplicates(rows, rule, found)
    rows = clean_suspect_labels(rows, rule, found)
    found.rows = assign_splits(at_most(rows, rule, found), rule)


def collect_candidates(
    judged: Iterable[Judged], rule: Rule, load: Load, scores: Mapping[int, float], found: Composed, progress: Progress | None
) -> tuple[list[Candidate], dict[int, Side]]:
    every, candidates, sides = iter(judged), list[Candidate](), dict[int, Side]()
    while batch := list(islice(every, BATCH)):
        own = []
        for item in batch:
            for one in decide_candidates(item, rule, scores):
                if isinstance(one, LeftOut):
                    found.left_out[str(one)] += 1
                else:
                    own.append(one)
        sides |= load({rollout for one in own for rollout in one.rollouts})
        candidates += own
        found.items += len(batch)
        if progress:
            progress(found.items)
    return candidates, sides


def in_age(candidates: list[Candidate], sides: Mapping[int, Side], rule: Rule, found: Composed) -> Iterator[Candidate]:
    """Those whose rollouts are there and young enough. The newest step is that of the labelled rollouts of the same run."""
    newest: defaultdict[Any, int] = defaultdict(int)
    for side in sides.values():
        newest[side.run] = max(newest[side.run], side.step)
    for one in candidates:
        own = [sides[rollout] for rollout in one.rollouts if rollout in sides]
        if len(own) < len(one.rollouts):
            found.left_out["pairs whose rollouts are gone"] += 1
        elif not rule.heldout and any(side.phase == "heldout" for side in own):
            found.left_out["answers to held-out prompts"] += 1
        elif rule.max_age is not None and any(
            (newest[side.run] if rule.age_from is None else rule.age_from) - side.step > rule.max_age for side in own
        ):
            found.left_out[f"answers of policies more than {rule.max_age} steps old"] += 1
        elif any(side.step < (rule.first_step or 0) or side.step > (2**31 if rule.last_step is None else rule.last_step) for side in own):
            found.left_out["answers of other steps"] += 1
        else:
            yield one


def compute_policy_age(side: Side, newest: Mapping[Any, int], rule: Rule) -> int:
    """Steps between the policy that gave the answer and the one the rule counts from."""
    return (newest[side.run] if rule.age_from is None else rule.age_from) - side.step


def made_of(one: Candidate, sides: Mapping[int, Side], rule: Rule, found: Composed) -> Made | None:
    chosen, rejected = sides.get(one.chosen or 0), sides.get(one.rejected or 0)
    asked = (chosen or rejected).asked  # type: ignore[union-attr]  # in_age has seen to it that one is there
    if rule.form == Form.STEPWISE and chosen:
        if reason := explain_unusable_row(asked, [chosen.messages], chosen, None):
            found.left_out[reason] += 1
            return None
        return build_stepwise_row(one, chosen, found.left_out)
    texts = {
        "chosen": make_answer_messages(one.correction) if one.correction else chosen and chosen.messages,
        "rejected": rejected and rejected.messages,
    }
    if rule.form != Form.PREFERENCE:
        text = texts["rejected"] if one.label is False else texts["chosen"]
        row: dict[str, Any] = {"prompt": asked, "completion": text, **({"label": one.label} if rule.form == Form.KTO else {})}
        answers = [text]
    else:
        row = {"prompt": asked, **texts, **build_margin_field(one, rule)}
        answers = list(texts.values())
    if reason := explain_unusable_row(asked, answers, chosen, rejected):
        found.left_out[reason] += 1
        return None
    gap = (
        {name: chosen.rewards[name] - rejected.rewards[name] for name in sorted(chosen.rewards) if name in rejected.rewards}
        if chosen and rejected
        else {}
    )
    whole = chosen.reward - rejected.reward if chosen and rejected and chosen.reward is not None and rejected.reward is not None else None
    return Made(
        row=row,
        digest=hash_row_content(row),
        prompt=(chosen or rejected).prompt,  # type: ignore[union-attr]
        rollouts=one.rollouts,
        item=one.item,
        queue=one.queue,
        labellers=sorted({user for user, _ in one.ballots}),
        provenance=build_row_provenance(one, chosen, rejected),
        evidence=Evidence(one.ballots, gap, whole, one.seconds),
    )


def make_answer_messages(text: str) -> list[Message]:
    return [{"role": "assistant", "content": text}]


def build_margin_field(one: Candidate, rule: Rule) -> dict[str, float]:
    if rule.margin == "none":
        return {}
    return {"margin": one.margin if rule.margin == "votes" else float(one.strength or 0.0)}


def build_row_provenance(one: Candidate, chosen: Side | None, rejected: Side | None) -> dict[str, Any]:
    sides = {name: side.provenance for name, side in (("chosen", chosen), ("rejected", rejected)) if side}
    return {
        "sides": sides,
        "strength": one.strength,
        "margin": one.margin,
        "votes": one.votes,
        "agreement": one.agreement,
        "judgements": list(one.judgements),
        "adjudicated": one.adjudicated,
        "corrected": bool(one.correction),
        "seconds": one.seconds,
        **({"spans": list(one.spans)} if one.spans else {}),
    }


def explain_unusable_row(asked: list[Message], answers: list[Any], chosen: Side | None, rejected: Side | None) -> str:
    """Why a trainer could not read the row, or ""."""
    if chosen and rejected and chosen.asked != rejected.asked:
        return "pairs that answer different prompts"
    if not asked or asked[-1]["role"] == "assistant" or any(not message["content"].strip() for message in asked):
        return "prompts without a question"
    if any(not text or any(not message["content"].strip() for message in text) for text in answers):
        return "empty answers"
    if len(answers) == 2 and answers[0] == answers[1]:
        return "pairs of the same text"
    return ""


# Over all rows


def without_duplicates(rows: list[Made], rule: Rule, found: Composed) -> list[Made]:
    """The first of rows that say the same; none of rows that contradict each other."""
    if not rule.dedupe:
        return rows
    first: dict[str, Made] = {}
    for one in rows:
        if one.digest in first:
            found.left_out["duplicates"] += 1
        first.setdefault(one.digest, one)
    against = find_contradictions(first.values()) if rule.form == Form.STEPWISE else {}
    kept, named = [], set[tuple[int, ...]]()
    for digest, one in first.items():
        other = against.get(digest) if rule.form == Form.STEPWISE else first.get(hash_row_content(make_opposite_row(one.row)))
        if other is None or other is one or rule.form == Form.COMPLETION:
            kept.append(one)
            continue
        found.left_out["contradictions"] += 1
        if one.item and other.item:
            named.add(tuple(sorted((one.item, other.item))))
    found.contradictions += sorted(list(pair) for pair in named)
    return kept


def clean_suspect_labels(rows: list[Made], rule: Rule, found: Composed) -> list[Made]:
    cleaning = rule.cleaning
    if not cleaning.by or rule.form != Form.PREFERENCE:
        return rows
    kept = []
    found.cleaned["looked at"] = len(rows)
    for one, suspicion in zip(rows, score_suspicions([row.evidence or Evidence() for row in rows], cleaning), strict=True):
        bad = suspicion.score > cleaning.threshold
        one.suspect = {"score": suspicion.score, "by": suspicion.by, "reasons": suspicion.reasons, "action": cleaning.action if bad else ""}
        found.cleaned["suspect"] += bad
        found.cleaned.update(f"by {name}" for name, score in suspicion.by.items() if score > cleaning.threshold)
        if bad and cleaning.action == "drop":
            found.left_out["suspect labels"] += 1
            continue
        if bad and cleaning.action == "flip":
            one = flip_preference(one)
        if cleaning.action == "down-weight":
            one.row["weight"] = round(1 - suspicion.score, 4) if bad else 1.0
        kept.append(one)
    return kept


def flip_preference(one: Made) -> Made:
    row = make_opposite_row(one.row)
    sides = one.provenance["sides"]
    swapped = {name: sides[other] for name, other in (("chosen", "rejected"), ("rejected", "chosen")) if other in sides}
    return replace(
        one, row=row, digest=hash_row_content(row), rollouts=one.rollouts[::-1], provenance={**one.provenance, "sides": swapped, "flipped": True}
    )


def at_most(rows: list[Made], rule: Rule, found: Composed) -> list[Made]:
    """Of a prompt with too many pairs those with the most agreement, then strength, then in the order of the queue."""
    if rule.max_per_prompt is None:
        return rows
    by_prompt: defaultdict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(rows):
        by_prompt[build_prompt_key(one.row)].append(place)
    kept = set[int]()
    for places in by_prompt.values():
        best = sorted(places, key=lambda place: (-rows[place].provenance.get("agreement", 1), -(rows[place].provenance.get("strength") or 0), place))
        kept |= set(best[: rule.max_per_prompt])
    found.left_out["rows over the limit of their prompt"] += len(rows) - len(kept)
    found.left_out += Counter()  # no zeros
    return [one for place, one in enumerate(rows) if place in kept]


def assign_splits(rows: list[Made], rule: Rule) -> list[Made]:
    """Train and test: a prompt is on one side with everything that asks the same words."""
    for one in rows:
        drawn = int.from_bytes(hashlib.sha256(f"{rule.salt}\0{build_prompt_key(one.row)}".encode()).digest()[:8], "big") / 2**64
        one.split = "test" if drawn < rule.test_share else "train"
    return rows
