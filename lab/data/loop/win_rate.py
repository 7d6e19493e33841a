"""How often people prefer the child's answer, with an interval. Votes are counted, (wins + ties / 2) / votes; an adjudicated prompt is one vote.

One vote a prompt and no ties: Wilson's score interval. Else a percentile bootstrap over prompts, because the votes of a prompt hang together;
where every prompt says the same, which a bootstrap would take for certainty, Wilson's interval with prompts as votes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from lab.data.loop.models import Match
from lab.labelling.labels.models import COUNTING, Item, ItemState, Judgement, JudgementState, Verdict
from lab.lib.shares import compute_wilson_interval
from lab.rollouts.trajectories.models import Rollout

FEW = 10  # votes below which a figure says too little
RESAMPLES = 2000
SCORES = {Verdict.TIE: 0.5, Verdict.BAD: 0.5}  # of the child, besides the sides; both bad is no preference
WILSON, BOOTSTRAP = "Wilson score interval", "bootstrap over prompts"


@dataclass(frozen=True)
class WinRate:
    """A share within 0 to 1 and its 95 % interval."""

    value: float
    low: float
    high: float
    method: str

    def with_ties(self, share: float) -> WinRate:
        """Where ``share`` of all prompts are ties that nobody was asked about."""
        value, low, high = (part * (1 - share) + share / 2 for part in (self.value, self.low, self.high))
        return WinRate(value, low, high, self.method)

    @property
    def verdict(self) -> int:
        """1 or -1 when the whole interval lies on that side of one half, else 0."""
        return 1 if self.low > 0.5 else -1 if self.high < 0.5 else 0


@dataclass(frozen=True)
class MatchVote:
    """``score`` of the child: 1 it won, 0.5 tie, 0 it lost. ``user`` None: adjudicated."""

    item: int
    user: int | None
    score: float


@dataclass(frozen=True)
class WinRecord:
    """Votes of one labeller, or of all."""

    wins: int
    ties: int
    losses: int

    @property
    def votes(self) -> int:
        return self.wins + self.ties + self.losses

    @property
    def rate(self) -> float | None:
        return (self.wins + self.ties / 2) / self.votes if self.votes else None


@dataclass(frozen=True)
class MatchTally:
    """``queued``: prompts in the queue; ``labelled``: with all their labels; ``agreement``: share of pairs of votes on a prompt that agree."""

    record: WinRecord
    rate: WinRate | None
    prompts: int
    queued: int
    labelled: int
    conflicts: int
    adjudicated: int
    by_labeller: Mapping[int, WinRecord]
    agreement: float | None
    shared: int  # prompts with several votes

    @property
    def few(self) -> bool:
        return self.record.votes < FEW

    @property
    def shown_rate(self) -> WinRate | None:
        """What pages say: no rate of so few votes, whoever asks."""
        return None if self.few else self.rate

    @property
    def complete(self) -> bool:
        return self.labelled >= self.queued


def tally_match(match: Match) -> MatchTally:
    """Of a match with a queue. Five queries however many prompts."""
    assert match.queue is not None
    items = list(Item.objects.filter(queue=match.queue).exclude(state=ItemState.DROPPED).only("pk", "rollouts", "state", "final"))
    votes = list(votes_of(match, items))
    states = Counter(item.state for item in items)
    agreement, shared = compute_vote_agreement(votes)
    return MatchTally(
        record=count_vote_outcomes(votes),
        rate=estimate_win_rate(votes),
        prompts=len({vote.item for vote in votes}),
        queued=len(items),
        labelled=len(items) - states[ItemState.OPEN],
        conflicts=states[ItemState.CONFLICT],
        adjudicated=sum(vote.user is None for vote in votes),
        by_labeller={user: count_vote_outcomes(own) for user, own in by_user(votes).items()},
        agreement=agreement,
        shared=shared,
    )


def votes_of(match: Match, items: Sequence[Item]) -> Iterable[MatchVote]:
    """What counts of each item: its adjudicated answer, else its judgements (of a reviewed queue the accepted ones), skips left out."""
    assert match.queue is not None
    places = child_places(match, items)
    settled = {item.pk: item for item in items if item.state == ItemState.SETTLED and item.final}
    for item in settled.values():
        score = score_of(str((item.final or {}).get("verdict")), places.get(item.pk))
        if score is not None:
            yield MatchVote(item.pk, None, score)
    states = (JudgementState.ACCEPTED,) if match.queue.reviewed else COUNTING
    judgements = Judgement.objects.filter(queue=match.queue, state__in=states).order_by("pk").values_list("item_id", "user_id", "verdict")
    for item_id, user, verdict in judgements:
        score = score_of(verdict, places.get(item_id)) if item_id not in settled else None
        if score is not None:
            yield MatchVote(item_id, user, score)


def child_places(match: Match, items: Sequence[Item]) -> dict[int, int]:
    """Item → the place of the child's answer in it."""
    ids = [pk for item in items for pk in item.rollouts]
    rows = Rollout.objects.filter(run__team=match.team_id, pk__in=ids).values_list("pk", "run_id", "step")
    own = {pk for pk, run, step in rows if run == match.child_id and (match.against_id is not None or step > 0)}
    return {item.pk: position for item in items for position, pk in enumerate(item.rollouts) if pk in own}


def score_of(verdict: str, position: int | None) -> float | None:
    """The child's score where its answer stands at ``position``; None for what is no vote."""
    if position is None:
        return None
    if verdict in (Verdict.A, Verdict.B):
        return float((verdict == Verdict.A) == (position == 0))
    return {str(name): score for name, score in SCORES.items()}.get(verdict)


def estimate_win_rate(votes: Sequence[MatchVote]) -> WinRate | None:
    """None without votes."""
    if not votes:
        return None
    sums, counts = defaultdict[int, float](float), Counter[int]()
    for vote in votes:
        sums[vote.item] += vote.score
        counts[vote.item] += 1
    value = sum(sums.values()) / len(votes)
    means = {sums[item] / counts[item] for item in counts}
    simple = len(counts) == len(votes) and all(vote.score != 0.5 for vote in votes)
    if simple or len(means) == 1:
        return WinRate(value, *compute_wilson_interval(value, len(counts)), WILSON)
    return WinRate(value, *bootstrap_interval(np.array([sums[item] for item in counts]), np.array([counts[item] for item in counts])), BOOTSTRAP)


def bootstrap_interval(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """(low, high) of sum(sums) / sum(counts) when prompts (P,) are drawn anew; the same for the same votes."""
    prompts = len(sums)
    drawn = np.random.default_rng(0).multinomial(prompts, np.full(prompts, 1 / prompts), size=RESAMPLES)
    low, high = np.quantile((drawn @ sums) / (drawn @ counts), [0.025, 0.975])
    return float(low), float(high)


def count_vote_outcomes(votes: Iterable[MatchVote]) -> WinRecord:
    counts = Counter(vote.score for vote in votes)
    return WinRecord(counts[1.0], counts[0.5], counts[0.0])


def by_user(votes: Iterable[MatchVote]) -> dict[int, list[MatchVote]]:
    votes_by_user = defaultdict[int, list[MatchVote]](list)
    for vote in votes:
        if vote.user is not None:
            votes_by_user[vote.user].append(vote)
    return votes_by_user


def compute_vote_agreement(votes: Iterable[MatchVote]) -> tuple[float | None, int]:
    """(share of pairs of votes of the same prompt that say the same, prompts with several votes)."""
    scores_by_item = defaultdict[int, list[float]](list)
    for vote in votes:
        scores_by_item[vote.item].append(vote.score)
    several = [scores for scores in scores_by_item.values() if len(scores) > 1]
    pairs = [first == second for scores in several for first, second in combinations(scores, 2)]
    return (sum(pairs) / len(pairs) if pairs else None), len(several)
