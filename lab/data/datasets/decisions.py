"""From what people said about an item to rows without texts: which answer is preferred, how many agree, and why an item gives none. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median
from typing import Any

from lab.data.datasets.models import Form
from lab.data.datasets.rules import DatasetRule
from lab.data.datasets.step_marks import StepLabel, spans_said, steps_said
from lab.data.datasets.votes import ItemVote, JudgedItem, Pair
from lab.labelling.labels.implied_preferences import derive_preferences
from lab.labelling.labels.models import Kind, Verdict


@dataclass(frozen=True)
class RowCandidate:
    """A row to be. Of ``chosen`` and ``rejected`` (rollout ids) KTO and completion have one; ``correction`` stands for the chosen text.

    ``ballots``: (labeller, +1 agrees, -1 says the opposite, 0 a tie); ``votes`` counts them.
    """

    item: int
    queue: int
    prompt: int
    chosen: int | None = None
    rejected: int | None = None
    correction: str = ""
    label: bool | None = None
    ballots: tuple[tuple[int, int], ...] = ()
    agreement: float = 1.0
    margin: float = 1.0
    strength: float | None = None
    judgements: tuple[int, ...] = ()
    seconds: float | None = None
    adjudicated: bool = False
    steps: tuple[StepLabel, ...] = ()
    spans: tuple[dict[str, Any], ...] = ()  # as the row's provenance holds them

    @property
    def votes(self) -> dict[str, int]:
        counts = Counter(vote for _, vote in self.ballots)
        return {"for": counts[1], "against": counts[-1], "tie": counts[0]}

    @property
    def rollouts(self) -> list[int]:
        return [rollout for rollout in (self.chosen, self.rejected) if rollout is not None]


class RowExclusion(Exception):
    pass


def decide_candidates(judged: JudgedItem, rule: DatasetRule, scores: Mapping[int, float]) -> Iterator[RowCandidate | RowExclusion]:
    """The rows of one item. ``scores``: what a labeller's vote weighs under the aggregation "weighted"."""
    try:
        check_item_usable(judged, rule)
        yield from MAKERS[Form(rule.form)](judged, rule, scores)
    except RowExclusion as reason:
        yield reason


def check_item_usable(judged: JudgedItem, rule: DatasetRule) -> None:
    """Raises RowExclusion where the item as a whole cannot be used."""
    if judged.recalled:
        raise RowExclusion("items recalled")
    if judged.kind == Kind.CLEARER:
        raise RowExclusion("items that compare two pairs")
    if not judged.rollouts:
        raise RowExclusion("items whose answers are not stored")
    if judged.final is not None:
        return
    if rule.aggregation == "adjudicated":
        raise RowExclusion("items without adjudication")
    if not judged.votes:
        raise RowExclusion("items without a valid label")
    if rule.finished_only and judged.waiting:
        raise RowExclusion("items with missing labels")
    if len(judged.votes) < rule.min_labels:
        raise RowExclusion("items with too few labels")


def correction_of(judged: JudgedItem, rule: DatasetRule) -> str:
    """The corrected answer: the adjudicator's, else the newest. Raises RowExclusion where only corrected items are wanted."""
    if rule.corrections == "off":
        return ""
    own = [str((judged.final or {}).get("correction") or "").strip(), *(vote.correction for vote in reversed(judged.votes))]
    text = next((correction for correction in own if correction), "")
    if not text and rule.corrections == "only":
        raise RowExclusion("items without a corrected answer")
    return text


def make_base_candidate(judged: JudgedItem) -> RowCandidate:
    return RowCandidate(judged.item, judged.queue, judged.prompt, spans=spans_said(judged))


def add_vote_statistics(
    candidate: RowCandidate, judged: JudgedItem, ballots: list[tuple[ItemVote, int]], rule: DatasetRule, scores: Mapping[int, float]
) -> RowCandidate:
    """The candidate with its ballots, agreement, strength and time."""
    weights = {1: 0.0, -1: 0.0, 0: 0.0}
    for vote, value in ballots:
        weights[value] += weight_of(vote, rule, scores)
    against = weights[-1] + (weights[0] if rule.ties_against else 0.0)
    total = weights[1] + against
    agreeing = [vote for vote, value in ballots if value == 1]
    strengths = [vote.strength for vote in agreeing if vote.strength is not None]
    if judged.final is not None and judged.final.get("strength"):
        strengths = [int(judged.final["strength"])]
    return replace(
        candidate,
        ballots=tuple((vote.user, value) for vote, value in ballots),
        agreement=round(weights[1] / total, 6) if total else 1.0,
        margin=round((weights[1] - weights[-1]) / (weights[1] + weights[-1] + weights[0]), 6) if ballots and any(weights.values()) else 1.0,
        strength=round(fmean(strengths), 6) if strengths else None,
        judgements=tuple(vote.judgement for vote, _ in ballots),
        seconds=round(median(vote.seconds for vote in agreeing), 3) if agreeing else None,
        adjudicated=judged.final is not None,
    )


def weight_of(vote: ItemVote, rule: DatasetRule, scores: Mapping[int, float]) -> float:
    return scores.get(vote.user, 0.5) if rule.aggregation == "weighted" else 1.0


def check_agreement(candidate: RowCandidate, rule: DatasetRule, noun: str) -> RowCandidate | RowExclusion:
    if not candidate.adjudicated and candidate.agreement < rule.min_agreement:
        return RowExclusion(f"{noun} with too little agreement")
    return candidate


def aggregate_pair_votes(judged: JudgedItem, rule: DatasetRule, scores: Mapping[int, float]) -> tuple[list[Pair], Counter[str]]:
    """Which answer of each two is better, and how many pairs are ties or split."""
    if judged.final is not None:
        return derive_preferences(str(judged.final.get("verdict")), judged.final.get("tiers"), list(judged.rollouts)), Counter()
    decided, undecided = list[Pair](), Counter[str]()
    for first, second in combinations(judged.rollouts, 2):
        weight = sum(weight_of(vote, rule, scores) for vote in judged.votes if (first, second) in vote.pairs)
        other = sum(weight_of(vote, rule, scores) for vote in judged.votes if (second, first) in vote.pairs)
        if abs(weight - other) > 1e-9:
            decided.append((first, second) if weight > other else (second, first))
        else:
            undecided["pairs with split votes" if weight else "ties"] += 1
    return decided, undecided


def ballots_of(pair: Pair, judged: JudgedItem) -> list[tuple[ItemVote, int]]:
    opposite = (pair[1], pair[0])
    return [(vote, 1 if pair in vote.pairs else -1 if opposite in vote.pairs else 0) for vote in judged.votes]


def make_preference_candidates(judged: JudgedItem, rule: DatasetRule, scores: Mapping[int, float]) -> Iterator[RowCandidate | RowExclusion]:
    text = correction_of(judged, rule)
    if judged.kind == Kind.SINGLE:
        if not text:
            raise RowExclusion("single answers without a correction")
        yield add_vote_statistics(
            replace(make_base_candidate(judged), rejected=judged.rollouts[0], correction=text),
            judged,
            [(vote, 1) for vote in judged.votes],
            rule,
            scores,
        )
        return
    pairs, undecided = aggregate_pair_votes(judged, rule, scores)
    for reason, count in undecided.items():
        if not text:
            yield from (RowExclusion(reason) for _ in range(count))
    beaten = {rejected for _, rejected in pairs}
    corrected = set[int]()
    for chosen, rejected in pairs:
        best = bool(text) and chosen not in beaten
        if best and rejected in corrected:
            continue
        corrected |= {rejected} if best else set()
        own = replace(make_base_candidate(judged), chosen=None if best else chosen, rejected=rejected, correction=text if best else "")
        yield check_agreement(add_vote_statistics(own, judged, ballots_of((chosen, rejected), judged), rule, scores), rule, "pairs")
    if text and not pairs:  # ties, or all bad: the correction is better than each
        for rollout in judged.rollouts:
            yield add_vote_statistics(
                replace(make_base_candidate(judged), rejected=rollout, correction=text), judged, [(vote, 1) for vote in judged.votes], rule, scores
            )
    elif not pairs and not undecided:
        yield RowExclusion("ties")  # by adjudication


def verdict_of(judged: JudgedItem, rule: DatasetRule, scores: Mapping[int, float]) -> str:
    """The verdict with the most weight, or "" when two share it."""
    if judged.final is not None:
        return str(judged.final.get("verdict"))
    weights: defaultdict[str, float] = defaultdict(float)
    for vote in judged.votes:
        weights[vote.verdict] += weight_of(vote, rule, scores)
    [(best, most), *others] = sorted(weights.items(), key=lambda entry: (-entry[1], entry[0]))
    return "" if others and others[0][1] > most - 1e-9 else best


def verdict_ballots(judged: JudgedItem, verdict: str) -> list[tuple[ItemVote, int]]:
    return [(vote, 1 if vote.verdict == verdict else 0 if vote.verdict in (Verdict.TIE, Verdict.NEUTRAL) else -1) for vote in judged.votes]


def make_kto_candidates(judged: JudgedItem, rule: DatasetRule, scores: Mapping[int, float]) -> Iterator[RowCandidate | RowExclusion]:
    """KTO: an answer is good when it is judged good or preferred, bad when it is judged bad or loses."""
    if text := correction_of(judged, rule):
        own = replace(make_base_candidate(judged), chosen=None, rejected=judged.rollouts[0], correction=text, label=True)
        yield add_vote_statistics(own, judged, [(vote, 1) for vote in judged.votes], rule, scores)
    verdict = verdict_of(judged, rule, scores)
    if judged.kind == Kind.SINGLE or verdict == Verdict.BAD:
        if verdict not in (Verdict.GOOD, Verdict.BAD):
            raise RowExclusion("answers judged neutral" if verdict == Verdict.NEUTRAL else "answers with split votes")
        for rollout in judged.rollouts:
            own = set_candidate_label(make_base_candidate(judged), rollout, verdict == Verdict.GOOD)
            yield check_agreement(add_vote_statistics(own, judged, verdict_ballots(judged, verdict), rule, scores), rule, "answers")
        return
    pairs, _ = aggregate_pair_votes(judged, rule, scores)
    net = Counter(chosen for chosen, _ in pairs)
    net.subtract(rejected for _, rejected in pairs)
    for rollout in judged.rollouts:
        if not net[rollout]:
            yield RowExclusion("answers with equal wins and losses")
            continue
        good = net[rollout] > 0
        ballots = [(vote, compute_sign(count_net_wins(rollout, vote.pairs) * (1 if good else -1))) for vote in judged.votes]
        yield check_agreement(
            add_vote_statistics(set_candidate_label(make_base_candidate(judged), rollout, good), judged, ballots, rule, scores), rule, "answers"
        )


def set_candidate_label(candidate: RowCandidate, rollout: int, good: bool) -> RowCandidate:
    return replace(candidate, chosen=rollout if good else None, rejected=None if good else rollout, label=good)


def count_net_wins(rollout: int, pairs: frozenset[Pair]) -> int:
    return sum((rollout == chosen) - (rollout == rejected) for chosen, rejected in pairs)


def compute_sign(value: int) -> int:
    return (value > 0) - (value < 0)


def make_completion_candidates(judged: JudgedItem, rule: DatasetRule, scores: Mapping[int, float]) -> Iterator[RowCandidate | RowExclusion]:
    """Prompt and completion: the corrected answer, else the best one."""
    everybody = [(vote, 1) for vote in judged.votes]
    if text := correction_of(judged, rule):
        yield add_vote_statistics(replace(make_base_candidate(judged), rejected=judged.rollouts[0], correction=text), judged, everybody, rule, scores)
        return
    if judged.kind == Kind.SINGLE:
        verdict = verdict_of(judged, rule, scores)
        if verdict != Verdict.GOOD:
            raise RowExclusion("answers not judged good")
        own = replace(make_base_candidate(judged), chosen=judged.rollouts[0])
        yield check_agreement(add_vote_statistics(own, judged, verdict_ballots(judged, verdict), rule, scores), rule, "answers")
        return
    pairs, _ = aggregate_pair_votes(judged, rule, scores)
    beaten = {rejected for _, rejected in pairs}
    wins = Counter(chosen for chosen, _ in pairs if chosen not in beaten)
    if not wins:
        raise RowExclusion("items without a best answer")
    best = min(wins, key=lambda rollout: (-wins[rollout], judged.rollouts.index(rollout)))
    ballots = [(vote, compute_sign(count_net_wins(best, vote.pairs))) for vote in judged.votes]
    yield check_agreement(add_vote_statistics(replace(make_base_candidate(judged), chosen=best), judged, ballots, rule, scores), rule, "answers")


def make_stepwise_candidates(judged: JudgedItem, rule: DatasetRule, scores: Mapping[int, float]) -> Iterator[RowCandidate | RowExclusion]:
    """Stepwise supervision: the steps that somebody marked. Which of them can be a row is known once those nobody marked are."""
    if judged.kind != Kind.SINGLE:
        raise RowExclusion("items that are not single answers")
    steps = steps_said(judged, rule, lambda vote: weight_of(vote, rule, scores))
    if not steps:
        raise RowExclusion("answers without marked steps")
    everybody = [(vote, 1) for vote in judged.votes if vote.steps or vote.spans]
    candidate = add_vote_statistics(replace(make_base_candidate(judged), chosen=judged.rollouts[0], steps=steps), judged, everybody, rule, scores)
    yield replace(candidate, adjudicated=any(step.adjudicated for step in steps))


Maker = Callable[[JudgedItem, DatasetRule, Mapping[int, float]], Iterator[RowCandidate | RowExclusion]]
# How labels become rows, by form; those that are not here are imported.
MAKERS: dict[Form, Maker] = {
    Form.PREFERENCE: make_preference_candidates,
    Form.KTO: make_kto_candidates,
    Form.COMPLETION: make_completion_candidates,
    Form.STEPWISE: make_stepwise_candidates,
}
