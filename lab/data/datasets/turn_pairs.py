"""Step pairs from labels on turns: what two branches of one state go on with, under all that was said before it.

    prompt = the question and the turns before the state, chosen and rejected = the turn of the better and of the worse branch

A pair comes from a preference between two branches, or from a turn judged bad beside a branch that was judged good or, with nothing said of it, kept.
Every person has one vote on a pair; what they said of the pair itself counts before what their verdicts imply.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from django.db.models import Q, QuerySet

from lab.data.datasets.cleaning import LabelEvidence
from lab.data.datasets.decisions import RowCandidate
from lab.data.datasets.policy_age import compute_age_weight
from lab.data.datasets.row_building import Composition, build_margin_field, build_row_provenance, explain_unusable_row, finalize_rows, in_age
from lab.data.datasets.rows import WEIGHT, BuiltRow, hash_row_content
from lab.data.datasets.rules import DatasetRule
from lab.data.datasets.sides import Message, SourceRollout, read_sides
from lab.data.datasets.step_prompts import UnusableTurn, build_step_prompt, build_turn_text
from lab.data.datasets.votes import load_active_recalls
from lab.rollouts.annotations.models import StepVerdict, TurnPreference, TurnVerdict
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.turn_tree import TurnTree, read_turn_trees
from lab.teams.accounts.models import Team

BATCH = 200  # rollouts whose trees are in memory at once
PREFERENCE, VERDICT = "preference", "verdict"


class TurnPlace(NamedTuple):
    rollout: int
    node: int


Pair = tuple[TurnPlace, TurnPlace]
Verdicts = Mapping[TurnPlace, Mapping[int, str]]  # turn -> person -> good or bad


@dataclass
class PairVotes:
    """Of one pair of branches, the smaller place first: person -> +1 the first is better, -1 the second; and where that was said."""

    ballots: dict[int, int] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)

    def add(self, user: int, value: int, source: str) -> None:
        if source == PREFERENCE or user not in self.ballots:
            self.ballots[user] = value
        self.sources.add(source)


@dataclass(frozen=True)
class StepPair:
    """A decided pair with its texts. ``prompt`` ends where both begin."""

    better: TurnPlace
    worse: TurnPlace
    prompt: list[Message]
    chosen: str
    rejected: str
    sources: tuple[str, ...]


def select_labelled_rollouts(team: Team, rule: DatasetRule) -> QuerySet[Rollout]:
    """Rollouts on whose turns labels count, in the order of the rows."""
    counting = {"withdrawn_at": None}
    verdicts = TurnVerdict.objects.of(team).filter(**counting).values("rollout")
    preferences = TurnPreference.objects.of(team).filter(**counting).values("rollout")
    rollouts = Rollout.objects.of(team).filter(Q(pk__in=verdicts) | Q(pk__in=preferences))
    if rule.runs:
        rollouts = rollouts.filter(run__number__in=rule.runs)
    return rollouts.exclude(prompt__in=load_active_recalls(team).prompts).order_by("pk")


def compose_turn_labels(team: Team, rule: DatasetRule, most: int | None = None, progress: Callable[[int], object] | None = None) -> Composition:
    """The step pairs of the labels as they are now. ``most``: rollouts that are looked at."""
    composed, taken_back = Composition(), load_active_recalls(team).labellers
    every = iter(select_labelled_rollouts(team, rule).values_list("pk", flat=True)[:most])
    candidates, pairs, sides = list[RowCandidate](), list[StepPair](), dict[int, SourceRollout]()
    while batch := list(islice(every, BATCH)):
        for pair, votes in decide_step_pairs(team, batch, taken_back, rule, sides, composed.left_out):
            candidates.append(make_step_candidate(len(pairs), pair, votes, sides))
            pairs.append(pair)
        composed.items += len(batch)
        if progress:
            progress(composed.items)
    made = [
        build_step_row(pairs[candidate.item], candidate, age, sides, rule, composed) for candidate, age in in_age(candidates, sides, rule, composed)
    ]
    finalize_rows([row for row in made if row is not None], rule, composed)
    return composed


def decide_step_pairs(
    team: Team, batch: Collection[int], taken_back: Collection[int], rule: DatasetRule, sides: dict[int, SourceRollout], left_out: Counter[str]
) -> Iterator[tuple[StepPair, PairVotes]]:
    """The pairs of some rollouts that people agree on; the rollouts they are of are added to ``sides``."""
    preferences = list(
        TurnPreference.objects.of(team).filter(rollout__in=list(batch), withdrawn_at=None).exclude(user__in=list(taken_back)).order_by("pk")
    )
    ids = {*batch, *(row.against_id for row in preferences)}
    trees = read_turn_trees(Rollout.objects.of(team).filter(pk__in=ids).select_related("prompt"))
    sides |= read_sides(team, trees)
    votes: defaultdict[Pair, PairVotes] = defaultdict(PairVotes)
    for row in preferences:
        add_vote(votes, row.user_id, TurnPlace(row.rollout_id, row.chosen), TurnPlace(row.against_id, row.rejected), PREFERENCE)
    add_verdict_votes(votes, read_verdicts(team, batch, taken_back), trees)
    for pair, said in sorted(votes.items()):
        decided = decide_pair(pair, said, rule)
        if isinstance(decided, str):
            left_out[decided] += 1
            continue
        try:
            step = write_step_pair(*decided, said, trees, sides)
        except UnusableTurn as reason:
            left_out[str(reason)] += 1
            continue
        yield step, said


def read_verdicts(team: Team, batch: Collection[int], taken_back: Collection[int]) -> Verdicts:
    found: defaultdict[TurnPlace, dict[int, str]] = defaultdict(dict)
    rows = TurnVerdict.objects.of(team).filter(rollout__in=list(batch), withdrawn_at=None).exclude(user__in=list(taken_back))
    for rollout, node, user, verdict in rows.order_by("pk").values_list("rollout_id", "node", "user_id", "verdict"):
        found[TurnPlace(rollout, node)][user] = verdict
    return found


def add_vote(votes: defaultdict[Pair, PairVotes], user: int, better: TurnPlace, worse: TurnPlace, source: str) -> None:
    first, second = sorted((better, worse))
    votes[first, second].add(user, 1 if better == first else -1, source)


def add_verdict_votes(votes: defaultdict[Pair, PairVotes], verdicts: Verdicts, trees: Mapping[int, TurnTree]) -> None:
    """What verdicts say of pairs: a bad turn is worse than a branch beside it that is good, or that was kept and of which nobody said a thing."""
    for place, said in verdicts.items():
        if place.rollout not in trees or weigh_verdict(said) != StepVerdict.BAD:
            continue
        for sibling in trees[place.rollout].siblings(place.node):
            other = TurnPlace(place.rollout, sibling.number)
            about = weigh_verdict(verdicts.get(other, {}))
            if about == StepVerdict.GOOD or (not about and other not in verdicts and not sibling.is_gone):
                for user, verdict in said.items():
                    better, worse = (other, place) if verdict == StepVerdict.BAD else (place, other)
                    add_vote(votes, user, better, worse, VERDICT)


def weigh_verdict(said: Mapping[int, str]) -> str:
    """What most people say of a turn; empty where nobody says anything, or as many say the one as the other."""
    balance = sum({StepVerdict.GOOD: 1, StepVerdict.BAD: -1}.get(StepVerdict(verdict), 0) for verdict in said.values())
    return "" if not balance else str(StepVerdict.GOOD if balance > 0 else StepVerdict.BAD)


def decide_pair(pair: Pair, votes: PairVotes, rule: DatasetRule) -> Pair | str:
    """(better, worse), or why the pair is left out."""
    balance = sum(votes.ballots.values())
    if rule.aggregation == "adjudicated":
        return "branches without adjudication"
    if len(votes.ballots) < rule.min_labels:
        return "branches with too few labels"
    if not balance:
        return "branches with split votes"
    share = sum(value * balance > 0 for value in votes.ballots.values()) / len(votes.ballots)
    if share < rule.min_agreement:
        return "branches with too little agreement"
    return pair if balance > 0 else pair[::-1]


def write_step_pair(
    better: TurnPlace, worse: TurnPlace, votes: PairVotes, trees: Mapping[int, TurnTree], sides: Mapping[int, SourceRollout]
) -> StepPair:
    """Raises UnusableTurn."""
    if not {better.rollout, worse.rollout} <= trees.keys() & sides.keys():
        raise UnusableTurn("turns whose rollouts are gone")
    prompts = [build_step_prompt(trees[place.rollout], place.node, sides[place.rollout].prompt_messages) for place in (better, worse)]
    if prompts[0] != prompts[1]:
        raise UnusableTurn("branches of different states")
    prompt, begun = prompts[0]
    chosen, rejected = (begun + build_turn_text(trees[place.rollout], place.node) for place in (better, worse))
    return StepPair(better, worse, prompt, chosen, rejected, tuple(sorted(votes.sources)))


def make_step_candidate(number: int, step: StepPair, votes: PairVotes, sides: Mapping[int, SourceRollout]) -> RowCandidate:
    """``number``: of the pair, by which it is found again."""
    sign = 1 if step.better < step.worse else -1
    ballots = tuple(sorted((user, value * sign) for user, value in votes.ballots.items()))
    agreeing, count = sum(value > 0 for _, value in ballots), len(ballots)
    return RowCandidate(
        item=number,
        queue=0,
        prompt=sides[step.better.rollout].prompt,
        chosen=step.better.rollout,
        rejected=step.worse.rollout,
        ballots=ballots,
        agreement=round(agreeing / count, 6),
        margin=round((2 * agreeing - count) / count, 6),
    )


def build_step_row(
    step: StepPair, candidate: RowCandidate, age: int, sides: Mapping[int, SourceRollout], rule: DatasetRule, composed: Composition
) -> BuiltRow | None:
    chosen, rejected = sides[step.better.rollout], sides[step.worse.rollout]
    answers = [[{"role": "assistant", "content": text}] for text in (step.chosen, step.rejected)]
    if reason := explain_unusable_row(step.prompt, answers, None, None):
        composed.left_out[reason] += 1
        return None
    row = {"prompt": step.prompt, "chosen": answers[0], "rejected": answers[1], **build_margin_field(candidate, rule)}
    told: dict[str, object] = {"turns": {"chosen": step.better.node, "rejected": step.worse.node, "from": list(step.sources)}}
    if rule.age_half_life is not None:
        row[WEIGHT] = compute_age_weight(age, rule.age_half_life)
        told["policy_age"] = age
    return BuiltRow(
        row=row,
        digest=hash_row_content(row),
        prompt=candidate.prompt,
        rollouts=candidate.rollouts,
        item=None,
        queue=None,
        labellers=[user for user, _ in candidate.ballots],
        provenance={**build_row_provenance(candidate, chosen, rejected), **told},
        evidence=LabelEvidence(candidate.ballots),
    )
