"""Which preference labels are suspect, from what people and reward functions said: numpy only, no model.

Each cleaner gives every pair a score from 0 to 1 and a reason; a pair is suspect where its highest score is above the rule's threshold. A high
score is evidence against a label, not proof: people are asked because reward functions are wrong at times.

- labellers: symmetric Dawid and Skene (1979), the E step of RE-PO (arXiv 2509.24159) with one reliability for each voter and several votes a pair:
  P(label right) is proportional to prod over voters k of eta_k where k agrees with the label, 1 - eta_k where not; eta_k follows the mean posterior
  of its votes, Beta(4, 1) beforehand. The reward functions vote too, Beta(2, 1): with one label a pair nobody else could say that it is wrong.
- rewards: vote_maj and vote_all of PrefCleanBench (arXiv 2509.23564) with the run's reward functions for its reward models.
- gap: its rw_gap with the run's own reward: the pairs with the lowest chosen minus rejected.
- speed: judged in less than the rule's seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lab.data.datasets.rules import Cleaning

Floats = npt.NDArray[np.float64]
PEOPLE, REWARDS = (4.0, 1.0), (2.0, 1.0)  # Beta priors of a reliability: right, wrong
ROUNDS, CLOSE = 100, 1e-6


@dataclass(frozen=True)
class LabelEvidence:
    """About one labelled pair. ``ballots``: (labeller, 1 agrees with the label, -1 says the opposite, 0 a tie).

    ``rewards``: reward function -> what it gave chosen minus rejected. ``gap``: the same of the whole reward.
    """

    ballots: Sequence[tuple[int, int]] = ()
    rewards: Mapping[str, float] = field(default_factory=dict)
    gap: float | None = None
    seconds: float | None = None


@dataclass
class LabelSuspicion:
    score: float = 0.0
    by: dict[str, float] = field(default_factory=dict)  # cleaner -> its score
    reasons: list[str] = field(default_factory=list)

    def add(self, name: str, score: float, reason: str) -> None:
        score = round(min(max(score, 0.0), 1.0), 4)
        self.by[name] = score
        self.score = max(self.score, score)
        if score > 0 and reason:
            self.reasons.append(reason)


def score_suspicions(pairs: Sequence[LabelEvidence], cleaning: Cleaning) -> list[LabelSuspicion]:
    """One a pair, by the cleaners of the rule."""
    suspicions = [LabelSuspicion() for _ in pairs]
    for name in cleaning.by:
        CLEANERS[name](pairs, cleaning, suspicions)
    return suspicions


def by_labellers(pairs: Sequence[LabelEvidence], cleaning: Cleaning, suspicions: list[LabelSuspicion]) -> None:
    right, reliability = estimate_label_posterior(pairs)
    given = Counter(who for pair in pairs for who, ballot in pair.ballots if ballot)
    for pair, probability, own in zip(pairs, right, suspicions, strict=True):
        against = [who for who, ballot in pair.ballots if ballot < 0]
        opposed = [name for name, gap in pair.rewards.items() if gap < 0]
        words = [f"{len(against)} of {len(pair.ballots)} labellers disagree with it"] if against else []
        words += [f"{', '.join(opposed)} prefers the other answer"] if opposed else []
        worst, labels = min(((reliability[f"user {who}"], given[who]) for who, ballot in pair.ballots if ballot > 0), default=(1.0, 0))
        words += [f"the labeller's reliability is about {worst:.2f}, from {labels} labels"] if worst < 0.75 else []
        own.add(
            "labellers",
            1 - float(probability),
            f"probability that the label is correct {probability:.2f}: {'; '.join(words)}" if words and probability < 0.75 else "",
        )


def estimate_label_posterior(pairs: Sequence[LabelEvidence]) -> tuple[Floats, dict[str, float]]:
    """(N,) probability that each label is right, and the reliability of each voter ("user 7", "reward correct"), by expectation maximisation."""
    names: dict[str, int] = {}
    places, voters, signs = [], [], []
    for index, pair in enumerate(pairs):
        votes = [(f"user {who}", float(ballot)) for who, ballot in pair.ballots]
        votes += [(f"reward {name}", float(np.sign(gap))) for name, gap in pair.rewards.items()]
        for name, vote in votes:
            if vote:
                places.append(index)
                voters.append(names.setdefault(name, len(names)))
                signs.append(vote)
    at, voter, agrees = np.array(places, dtype=np.int64), np.array(voters, dtype=np.int64), np.array(signs)
    priors = np.array([PEOPLE if name.startswith("user ") else REWARDS for name in names]).reshape(-1, 2)
    eta: Floats = priors[:, 0] / priors.sum(axis=1)
    right: Floats = np.full(len(pairs), 0.5)
    votes_of = np.bincount(voter, minlength=len(names))
    for _ in range(ROUNDS):
        before = right
        log_odds = np.bincount(at, weights=agrees * np.log(eta[voter] / (1 - eta[voter])), minlength=len(pairs))
        right = 1 / (1 + np.exp(-np.clip(log_odds, -500, 500)))
        credit = np.where(agrees > 0, right[at], 1 - right[at])
        eta = (priors[:, 0] + np.bincount(voter, weights=credit, minlength=len(names))) / (priors.sum(axis=1) + votes_of)
        if len(pairs) and float(np.abs(right - before).max()) < CLOSE:
            break
    return right, {name: float(eta[index]) for name, index in names.items()}


def by_rewards(pairs: Sequence[LabelEvidence], cleaning: Cleaning, suspicions: list[LabelSuspicion]) -> None:
    for pair, own in zip(pairs, suspicions, strict=True):
        votes = {name: gap > 0 for name, gap in pair.rewards.items() if gap}
        agree = sum(votes.values())
        bad = bool(votes) and (agree == 0 if cleaning.vote == "all" else agree < len(votes) / 2)
        own.add("rewards", 1 - agree / len(votes) if bad else 0.0, f"{agree} of {len(votes)} reward functions agree with the label")


def by_gap(pairs: Sequence[LabelEvidence], cleaning: Cleaning, suspicions: list[LabelSuspicion]) -> None:
    known = sorted((pair.gap, index) for index, pair in enumerate(pairs) if pair.gap is not None)
    bad = known[: int(cleaning.gap_share * len(known))]
    for rank, (gap, index) in enumerate(bad):
        suspicions[index].add(
            "gap", 1 - rank / (2 * len(bad)), f"reward of chosen minus rejected is {gap:.3g}, among the lowest {cleaning.gap_share:.0%}"
        )


def by_speed(pairs: Sequence[LabelEvidence], cleaning: Cleaning, suspicions: list[LabelSuspicion]) -> None:
    for pair, own in zip(pairs, suspicions, strict=True):
        if pair.seconds is not None and pair.seconds < cleaning.min_seconds:
            own.add("speed", 1 - pair.seconds / (2 * cleaning.min_seconds), f"judged in {pair.seconds:.1f} s")


CLEANERS = {"labellers": by_labellers, "rewards": by_rewards, "gap": by_gap, "speed": by_speed}
