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

from lab.data.datasets.cleaning import LabelEvidence, score_suspicions
from lab.data.datasets.decisions import RowCandidate, RowExclusion, check_item_usable, decide_candidates, weight_of
from lab.data.datasets.models import Form
from lab.data.datasets.policy_age import compute_age_weight, compute_effective_rows, compute_policy_age, find_newest_steps
from lab.data.datasets.rows import SPANS, WEIGHT, BuiltRow, build_prompt_key, hash_row_content, make_opposite_row
from lab.data.datasets.rules import DatasetRule
from lab.data.datasets.sides import Message, SourceRollout
from lab.data.datasets.span_marks import Edges, MarkedAnswer, count_span_characters, place_marks, resolve_item_marks
from lab.data.datasets.stepped_rows import build_stepwise_row, find_contradictions
from lab.data.datasets.votes import JudgedItem
from trainers.contract.spans import span_column

BATCH = 2000
SPANNED_FORMS = (Form.PREFERENCE, Form.KTO, Form.COMPLETION)  # whose rows may have columns of marked spans
LISTED = 50  # contradictions that are named
Load = Callable[[Iterable[int]], dict[int, SourceRollout]]
Progress = Callable[[int], object]  # items looked at


@dataclass
class Composition:
    rows: list[BuiltRow] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    cleaned: Counter[str] = field(default_factory=Counter)  # suspect, and what was done
    contradictions: list[list[int]] = field(default_factory=list)  # items that say opposite things of the same texts
    items: int = 0

    def counts(self) -> dict[str, Any]:
        train = sum(row.split == "train" for row in self.rows)
        weights = [row.row[WEIGHT] for row in self.rows if row.split == "train" and WEIGHT in row.row]
        return {
            "train": train,
            "test": len(self.rows) - train,
            "left_out": dict(self.left_out.most_common()),
            "cleaned": dict(self.cleaned),
            "contradictions": self.contradictions[:LISTED],
            "items": self.items,
            **({"effective": round(compute_effective_rows(weights), 1)} if weights else {}),
            **({"spans": spans} if (spans := count_span_characters((row.row for row in self.rows if row.split == "train"), SPANS)) else {}),
        }


def compose_rows(
    judged: Iterable[JudgedItem], rule: DatasetRule, load: Load, edges: Edges, scores: Mapping[int, float], progress: Progress | None = None
) -> Composition:
    composed = Composition()
    candidates, sides, marks = collect_candidates(judged, rule, load, scores, composed, progress)
    marks = place_marks(marks, sides, edges, composed.left_out)
    rows = [row for candidate, age in in_age(candidates, sides, rule, composed) if (row := made_of(candidate, age, sides, marks, rule, composed))]
    finalize_rows(rows, rule, composed)
    return composed


def finalize_rows(rows: list[BuiltRow], rule: DatasetRule, composed: Composition) -> None:
    """What is decided over all rows together; of imported rows too."""
    rows = without_duplicates(rows, rule, composed)
    rows = clean_suspect_labels(rows, rule, composed)
    composed.rows = assign_splits(at_most(rows, rule, composed), rule)


def collect_candidates(
    judged: Iterable[JudgedItem], rule: DatasetRule, load: Load, scores: Mapping[int, float], composed: Composition, progress: Progress | None
) -> tuple[list[RowCandidate], dict[int, SourceRollout], dict[int, MarkedAnswer]]:
    """With the sides of the candidates, and what was marked in any rollout: the spans of an answer go with every row that it is in."""
    every, candidates, sides, marks = iter(judged), list[RowCandidate](), dict[int, SourceRollout](), dict[int, MarkedAnswer]()
    while batch := list(islice(every, BATCH)):
        own = []
        for item in batch:
            if rule.form in SPANNED_FORMS and (marked := find_usable_marks(item, rule, scores)):
                marks.setdefault(item.rollouts[0], marked)
            for candidate in decide_candidates(item, rule, scores):
                if isinstance(candidate, RowExclusion):
                    composed.left_out[str(candidate)] += 1
                else:
                    own.append(candidate)
        sides |= load({rollout for candidate in own for rollout in candidate.rollouts})
        candidates += own
        composed.items += len(batch)
        if progress:
            progress(composed.items)
    return candidates, sides, marks


def find_usable_marks(item: JudgedItem, rule: DatasetRule, scores: Mapping[int, float]) -> MarkedAnswer | None:
    try:
        check_item_usable(item, rule)
    except RowExclusion:
        return None
    return resolve_item_marks(item, rule, lambda vote: weight_of(vote, rule, scores))


def in_age(
    candidates: list[RowCandidate], sides: Mapping[int, SourceRollout], rule: DatasetRule, composed: Composition
) -> Iterator[tuple[RowCandidate, int]]:
    """Those whose rollouts are there and young enough, each with its policy age in steps."""
    newest = find_newest_steps(sides.values())
    for candidate in candidates:
        own = [sides[rollout] for rollout in candidate.rollouts if rollout in sides]
        age = compute_policy_age(own, newest, rule)
        if len(own) < len(candidate.rollouts):
            composed.left_out["pairs whose rollouts are gone"] += 1
        elif not rule.heldout and any(side.phase == "heldout" for side in own):
            composed.left_out["answers to held-out prompts"] += 1
        elif rule.max_age is not None and age > rule.max_age:
            composed.left_out[f"answers of policies more than {rule.max_age} steps old"] += 1
        elif any(side.step < (rule.first_step or 0) or side.step > (2**31 if rule.last_step is None else rule.last_step) for side in own):
            composed.left_out["answers of other steps"] += 1
        else:
            yield candidate, age


def made_of(
    candidate: RowCandidate, age: int, sides: Mapping[int, SourceRollout], marks: Mapping[int, MarkedAnswer], rule: DatasetRule, composed: Composition
) -> BuiltRow | None:
    chosen, rejected = sides.get(candidate.chosen or 0), sides.get(candidate.rejected or 0)
    prompt = (chosen or rejected).prompt_messages  # type: ignore[union-attr]  # in_age has seen to it that one is there
    if rule.form == Form.STEPWISE and chosen:
        if reason := explain_unusable_row(prompt, [chosen.messages], chosen, None):
            composed.left_out[reason] += 1
            return None
        return build_stepwise_row(candidate, chosen, composed.left_out)
    texts = {
        "chosen": make_answer_messages(candidate.correction) if candidate.correction else chosen and chosen.messages,
        "rejected": rejected and rejected.messages,
    }
    if rule.form != Form.PREFERENCE:
        text = texts["rejected"] if candidate.label is False else texts["chosen"]
        row: dict[str, Any] = {"prompt": prompt, "completion": text, **({"label": candidate.label} if rule.form == Form.KTO else {})}
        answers = [text]
    else:
        row = {"prompt": prompt, **texts, **build_margin_field(candidate, rule)}
        answers = list(texts.values())
    if rule.age_half_life is not None:
        row[WEIGHT] = compute_age_weight(age, rule.age_half_life)
    if reason := explain_unusable_row(prompt, answers, chosen, rejected):
        composed.left_out[reason] += 1
        return None
    marked = {side: marks[rollout] for side, rollout in list_trained_rollouts(candidate, rule) if rollout in marks}
    row |= {span_column(side): list(answer.spans) for side, answer in marked.items()}
    gap = (
        {name: chosen.rewards[name] - rejected.rewards[name] for name in sorted(chosen.rewards) if name in rejected.rewards}
        if chosen and rejected
        else {}
    )
    whole = chosen.reward - rejected.reward if chosen and rejected and chosen.reward is not None and rejected.reward is not None else None
    return BuiltRow(
        row=row,
        digest=hash_row_content(row),
        prompt=(chosen or rejected).prompt,  # type: ignore[union-attr]
        rollouts=candidate.rollouts,
        item=candidate.item,
        queue=candidate.queue,
        labellers=sorted({user for user, _ in candidate.ballots} | {user for answer in marked.values() for user in answer.labellers}),
        provenance=build_row_provenance(candidate, chosen, rejected)
        | ({} if rule.age_half_life is None else {"policy_age": age})
        | ({"span_queues": queues} if (queues := sorted({answer.queue for answer in marked.values()} - {candidate.queue})) else {}),
        evidence=LabelEvidence(candidate.ballots, gap, whole, candidate.seconds),
    )


def list_trained_rollouts(candidate: RowCandidate, rule: DatasetRule) -> list[tuple[str, int]]:
    """(column, rollout) of each answer of the row that a policy wrote; a corrected text is nobody's rollout."""
    chosen = None if candidate.correction else candidate.chosen
    if rule.form == Form.PREFERENCE:
        sides = [("chosen", chosen), ("rejected", candidate.rejected)]
    else:
        sides = [("completion", candidate.rejected if candidate.label is False else chosen)]
    return [(side, rollout) for side, rollout in sides if rollout is not None]


def make_answer_messages(text: str) -> list[Message]:
    return [{"role": "assistant", "content": text}]


def build_margin_field(candidate: RowCandidate, rule: DatasetRule) -> dict[str, float]:
    if rule.margin == "none":
        return {}
    return {"margin": candidate.margin if rule.margin == "votes" else float(candidate.strength or 0.0)}


def build_row_provenance(candidate: RowCandidate, chosen: SourceRollout | None, rejected: SourceRollout | None) -> dict[str, Any]:
    sides = {name: side.provenance for name, side in (("chosen", chosen), ("rejected", rejected)) if side}
    return {
        "sides": sides,
        "strength": candidate.strength,
        "margin": candidate.margin,
        "votes": candidate.votes,
        "agreement": candidate.agreement,
        "judgements": list(candidate.judgements),
        "adjudicated": candidate.adjudicated,
        "corrected": bool(candidate.correction),
        "seconds": candidate.seconds,
        **({"spans": list(candidate.spans)} if candidate.spans else {}),
    }


def explain_unusable_row(prompt: list[Message], answers: list[Any], chosen: SourceRollout | None, rejected: SourceRollout | None) -> str:
    """Why a trainer could not read the row, or ""."""
    if chosen and rejected and chosen.prompt_messages != rejected.prompt_messages:
        return "pairs that answer different prompts"
    if not prompt or prompt[-1]["role"] == "assistant" or any(not message["content"].strip() for message in prompt):
        return "prompts without a question"
    if any(not text or any(not message["content"].strip() for message in text) for text in answers):
        return "empty answers"
    if len(answers) == 2 and answers[0] == answers[1]:
        return "pairs of the same text"
    return ""


# Over all rows


def without_duplicates(rows: list[BuiltRow], rule: DatasetRule, composed: Composition) -> list[BuiltRow]:
    """The first of rows that say the same; none of rows that contradict each other."""
    if not rule.dedupe:
        return rows
    first: dict[str, BuiltRow] = {}
    for row in rows:
        if row.digest in first:
            composed.left_out["duplicates"] += 1
        first.setdefault(row.digest, row)
    against = find_contradictions(first.values()) if rule.form == Form.STEPWISE else {}
    kept, named = [], set[tuple[int, ...]]()
    for digest, row in first.items():
        other = against.get(digest) if rule.form == Form.STEPWISE else first.get(hash_row_content(make_opposite_row(row.row)))
        if other is None or other is row or rule.form == Form.COMPLETION:
            kept.append(row)
            continue
        composed.left_out["contradictions"] += 1
        if row.item and other.item:
            named.add(tuple(sorted((row.item, other.item))))
    composed.contradictions += sorted(list(pair) for pair in named)
    return kept


def clean_suspect_labels(rows: list[BuiltRow], rule: DatasetRule, composed: Composition) -> list[BuiltRow]:
    cleaning = rule.cleaning
    if not cleaning.by or rule.form != Form.PREFERENCE:
        return rows
    kept = []
    composed.cleaned["looked at"] = len(rows)
    for built_row, suspicion in zip(rows, score_suspicions([row.evidence or LabelEvidence() for row in rows], cleaning), strict=True):
        bad = suspicion.score > cleaning.threshold
        built_row.suspect = {"score": suspicion.score, "by": suspicion.by, "reasons": suspicion.reasons, "action": cleaning.action if bad else ""}
        composed.cleaned["suspect"] += bad
        composed.cleaned.update(f"by {name}" for name, score in suspicion.by.items() if score > cleaning.threshold)
        if bad and cleaning.action == "drop":
            composed.left_out["suspect labels"] += 1
            continue
        if bad and cleaning.action == "flip":
            built_row = flip_preference(built_row)
        if cleaning.action == "down-weight":
            built_row.row[WEIGHT] = round(built_row.row.get(WEIGHT, 1.0) * (1 - suspicion.score if bad else 1.0), 6)
        kept.append(built_row)
    return kept


def flip_preference(built_row: BuiltRow) -> BuiltRow:
    row = make_opposite_row(built_row.row)
    sides = built_row.provenance["sides"]
    swapped = {name: sides[other] for name, other in (("chosen", "rejected"), ("rejected", "chosen")) if other in sides}
    return replace(
        built_row,
        row=row,
        digest=hash_row_content(row),
        rollouts=built_row.rollouts[::-1],
        provenance={**built_row.provenance, "sides": swapped, "flipped": True},
    )


def at_most(rows: list[BuiltRow], rule: DatasetRule, composed: Composition) -> list[BuiltRow]:
    """Of a prompt with too many pairs those with the most agreement, then strength, then in the order of the queue."""
    if rule.max_per_prompt is None:
        return rows
    by_prompt: defaultdict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        by_prompt[build_prompt_key(row.row)].append(index)
    kept = set[int]()
    for places in by_prompt.values():
        best = sorted(places, key=lambda index: (-rows[index].provenance.get("agreement", 1), -(rows[index].provenance.get("strength") or 0), index))
        kept |= set(best[: rule.max_per_prompt])
    composed.left_out["rows over the limit of their prompt"] += len(rows) - len(kept)
    composed.left_out += Counter()  # no zeros
    return [row for index, row in enumerate(rows) if index in kept]


def assign_splits(rows: list[BuiltRow], rule: DatasetRule) -> list[BuiltRow]:
    """Train and test: a prompt is on one side with everything that asks the same words."""
    for row in rows:
        drawn = int.from_bytes(hashlib.sha256(f"{rule.salt}\0{build_prompt_key(row.row)}".encode()).digest()[:8], "big") / 2**64
        row.split = "test" if drawn < rule.test_share else "train"
    return rows
