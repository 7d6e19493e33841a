"""Which pairs come first. Pure arithmetic on arrays: a score for every candidate, and the highest is served first.

``ItemFeatures`` describe candidates in the order of the reward: of a pair the answer with the higher reward comes first, so the gap is never negative
and the differences of length and entropy say what the answer that the reward prefers has more of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.labelling.labels.models import Strategy

Array = npt.NDArray[np.float64]

LEAST = 30  # earlier votes from which the model of disagreement is fitted
PENALTY = 0.02  # of the squared coefficients (standardised), per vote; keeps 30 separable votes from an answer of 0 or 1
MOST_FITTED = 5000  # newest votes


@dataclass(frozen=True)
class ItemFeatures:
    """Of N candidates, each (N,). NaN where a rollout has no reward or no entropy."""

    gap: Array  # reward of the better minus reward of the worse
    length: Array  # tokens, better minus worse
    entropy_gap: Array  # nats, better minus worse
    entropy: Array  # nats, mean of the candidate's answers
    spread: Array  # standard deviation of the rewards of the group or prompt it is from
    judge: Array  # what the judge gave the better minus what it gave the worse; NaN without a judge

    def __len__(self) -> int:
        return len(self.gap)

    def take(self, places: npt.NDArray[np.int64]) -> ItemFeatures:
        return ItemFeatures(*(getattr(self, name)[places] for name in ("gap", "length", "entropy_gap", "entropy", "spread", "judge")))

    @property
    def predictors(self) -> Array:
        """(N, 3), what the model of disagreement sees; a missing value counts as no difference."""
        return np.nan_to_num(np.column_stack([self.gap, self.length, self.entropy_gap]))


@dataclass(frozen=True)
class Disagreement:
    """P(a person disagrees with the reward's order) as a logistic model over standardised predictors."""

    mean: Array  # (3,)
    scale: Array  # (3,)
    weights: Array  # (4,), the first is the intercept
    votes: int
    disagreed: int

    def probability(self, predictors: Array) -> Array:
        logit = self.weights[0] + (predictors - self.mean) / self.scale @ self.weights[1:]
        return np.asarray(1 / (1 + np.exp(-np.clip(logit, -30, 30))))


def fit_disagreement_model(predictors: Array, disagreed: npt.NDArray[np.bool_]) -> Disagreement | None:
    """``predictors`` (V, 3) of earlier votes. None with fewer than LEAST votes, or where all of them say the same: there is nothing to tell apart."""
    votes, hits = len(disagreed), int(disagreed.sum())
    if votes < LEAST or hits in (0, votes):
        return None
    import statsmodels.api as sm  # type: ignore[import-untyped]  # takes 1.5 s

    mean, scale = predictors.mean(axis=0), predictors.std(axis=0)
    scale = np.where(scale > 1e-12, scale, 1.0)
    design = sm.add_constant((predictors - mean) / scale, has_constant="add")
    penalty = np.array([0.0, PENALTY, PENALTY, PENALTY])
    fitted = sm.GLM(disagreed.astype(float), design, family=sm.families.Binomial()).fit_regularized(alpha=penalty, L1_wt=0.0)
    return Disagreement(mean, scale, np.asarray(fitted.params, dtype=float), votes, hits)


def score_candidates(strategy: str, features: ItemFeatures, seed: int, model: Disagreement | None = None) -> Array:
    """(N,), highest first; candidates without what the strategy needs get -inf and come last. Ties are broken by ``draw_random_scores``."""
    if strategy == Strategy.LARGEST_GAP:
        scores = features.gap
    elif strategy == Strategy.SMALLEST_GAP:
        scores = -features.gap
    elif strategy == Strategy.ENTROPY:
        scores = features.entropy
    elif strategy == Strategy.DISAGREEMENT:
        scores = score_disagreement(features, model)
        scores = np.where(np.isnan(features.gap), np.nan, scores)
        scores = np.where(features.gap > 0, scores, -1.0)  # where the reward has no order, nobody can disagree with it
    else:
        return draw_random_scores(len(features), seed)
    return np.where(np.isnan(scores), -np.inf, scores)


def score_disagreement(features: ItemFeatures, model: Disagreement | None) -> Array:
    """(N,): how far people, the reward and the judge disagree about a pair, times the spread of its group, times the entropy of the policy.

    People's side is the fitted ``model``; without one it is 1/2 exp(-gap / spread), a coin toss where the reward has no gap. Where nothing is known
    of an item's spread or entropy, it counts as the median of the others.
    """
    people = estimate_dissent(features) if model is None else model.probability(features.predictors)
    return compute_expected_disagreement(people, features.judge) * fill_unknown(features.spread) * fill_unknown(features.entropy)


def estimate_dissent(features: ItemFeatures) -> Array:
    """P(a person disagrees with the reward's order) without a model: the smaller the gap for its group, the likelier."""
    spread = np.nan_to_num(features.spread)
    standardised = np.divide(features.gap, spread, out=np.zeros_like(spread), where=spread > 0)
    return np.asarray(np.exp(-standardised) / 2)


def compute_expected_disagreement(people: Array, judge: Array) -> Array:
    """Expected share of the voters' pairs that disagree. The reward votes for the better answer, a person against it with probability ``people``,
    the judge by the sign of ``judge`` (0 is a coin toss); without a judge there is one pair, else there are three.
    """
    against = np.where(judge > 0, 0.0, np.where(judge < 0, 1.0, 0.5))
    three = (people + against + people * (1 - against) + (1 - people) * against) / 3
    return np.where(np.isnan(judge), people, three)


def fill_unknown(values: Array) -> Array:
    """Unknown values as the median of the known; never below 1e-6, so that the other factors still decide."""
    known = values[~np.isnan(values)]
    return np.maximum(np.where(np.isnan(values), np.median(known) if len(known) else 1.0, values), 1e-6)


def draw_random_scores(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).random(count)


def order_by_score(scores: Array, seed: int) -> npt.NDArray[np.int64]:
    """Places of the candidates, best first; equals in an order the seed decides."""
    return np.lexsort((draw_random_scores(len(scores), seed), -scores)).astype(np.int64)
