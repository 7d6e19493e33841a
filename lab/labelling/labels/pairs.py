"""From rollouts to items: every candidate there is, then the best of them by a strategy, with what was left out and why. Arrays throughout:
a selection of 300,000 rollouts has a million pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lab.labelling.labels.models import ROLLOUTS, Kind
from lab.labelling.labels.pool import Ints, RolloutPool
from lab.labelling.labels.recipe import PairSource, Recipe
from lab.labelling.labels.strategies import ItemFeatures, order_by_score, score_candidates

MOST_OF_GROUP = 48  # answers of one group or prompt that are paired with each other, on each side
CLEAREST = 12  # best pairs of a group or prompt that pairs of pairs are made of

Score = Callable[[ItemFeatures], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Exclusion:
    count: int
    what: str
    why: str


@dataclass(frozen=True)
class CandidateItems:
    """``places`` (N, k) of rollouts in the pool, in the order they are stored; ``bucket`` (N,)."""

    places: Ints
    bucket: Ints
    features: ItemFeatures

    def __len__(self) -> int:
        return len(self.places)

    def take(self, chosen: npt.NDArray[np.int64]) -> CandidateItems:
        return CandidateItems(self.places[chosen], self.bucket[chosen], self.features.take(chosen))


@dataclass(frozen=True)
class SelectedItems:
    """``items``: rollout ids of each item, first served first; of rankings they differ in length. ``offered``: candidates there were."""

    items: list[tuple[int, ...]]
    prompts: list[int]
    offered: int
    left_out: list[Exclusion]


def make_items_from_pool(
    pool: RolloutPool, recipe: Recipe, score: Score | None = None, taken: frozenset[tuple[int, ...]] = frozenset()
) -> SelectedItems:
    """``taken``: items (sorted ids) that the queue already has; ``score`` in place of the strategy's own, for a fitted model."""
    rank = score or (lambda features: score_candidates(recipe.strategy, features, recipe.seed))
    if recipe.kind == Kind.RANKING:
        return make_rankings(pool, recipe, rank, taken)
    left: list[Exclusion] = []
    candidates = build_single_candidates(pool) if recipe.kind == Kind.SINGLE else collect_pairs(pool, recipe, left)
    candidates = best_first(candidates, rank(candidates.features), recipe.seed)
    candidates = once_each(pool, candidates, recipe, left)
    if recipe.kind == Kind.CLEARER:
        candidates = candidates.take(np.flatnonzero(count_preceding_equal(candidates.bucket) < CLEAREST))
        candidates = pairs_of_pairs(candidates)
    offered = len(candidates)
    if recipe.per:
        few = np.flatnonzero(count_preceding_equal(candidates.bucket) < recipe.per)
        note_left_out(left, len(candidates) - len(few), name_item_kind(recipe, "item"), f"more than {recipe.per} of one {name_bucket_unit(recipe)}")
        candidates = candidates.take(few)
    candidates = exclude_taken_items(pool, candidates, taken, left)
    note_left_out(left, len(candidates) - recipe.most, name_item_kind(recipe, "item"), f"beyond the {recipe.most:,} that were asked for")
    candidates = candidates.take(np.arange(min(recipe.most, len(candidates))))
    ids = pool.id[candidates.places]
    return SelectedItems([tuple(row) for row in ids.tolist()], pool.prompt[candidates.places[:, 0]].tolist(), offered, left)


def name_item_kind(recipe: Recipe, fallback: str) -> str:
    return {Kind.PAIR: "pairs", Kind.SINGLE: "rollouts", Kind.CLEARER: "pairs of pairs"}.get(recipe.kind, fallback)


def name_bucket_unit(recipe: Recipe) -> str:
    return "group" if recipe.how == PairSource.GROUP or recipe.kind == Kind.SINGLE else "prompt"


def note_left_out(left: list[Exclusion], count: int, what: str, why: str) -> None:
    if count > 0:
        left.append(Exclusion(count, what, why))


def collect_pairs(pool: RolloutPool, recipe: Recipe, left: list[Exclusion]) -> CandidateItems:
    """Every two answers of a bucket, or of its two sides, whose texts differ."""
    pool_places = sample_bucket_answers(pool, recipe, left)
    first, second = pairs_within(pool, pool_places) if recipe.how == PairSource.GROUP else pairs_across(pool, pool_places)
    alone = len(pool_places) - len(np.union1d(first, second))
    note_left_out(
        left,
        alone,
        "rollouts",
        f"no other answer of the {name_bucket_unit(recipe)} to pair with" if recipe.how == PairSource.GROUP else "no answer on the other side",
    )
    different = pool.text[first] != pool.text[second]
    note_left_out(left, int((~different).sum()), "pairs", "both texts are the same")
    return build_pair_candidates(pool, np.column_stack([first[different], second[different]]))


def sample_bucket_answers(pool: RolloutPool, recipe: Recipe, left: list[Exclusion]) -> Ints:
    """Places in the pool; of a bucket's side with very many answers a sample that the seed decides."""
    rank = np.lexsort((np.random.default_rng(recipe.seed).random(len(pool)), pool.side, pool.bucket))
    cell = pool.bucket[rank] * 2 + pool.side[rank]
    keep = np.sort(rank[count_preceding_equal(cell, is_sorted=True) < MOST_OF_GROUP])
    note_left_out(left, len(pool) - len(keep), "rollouts", f"a {name_bucket_unit(recipe)} of more than {MOST_OF_GROUP} answers is sampled")
    return keep.astype(np.int64)


def pairs_within(pool: RolloutPool, places: Ints) -> tuple[Ints, Ints]:
    starts, sizes = runs_of(pool.bucket[places])
    first, second = [], []
    for size in np.unique(sizes):
        row, column = np.triu_indices(size, 1)
        begin = starts[sizes == size][:, None]
        first.append((begin + row).ravel())
        second.append((begin + column).ravel())
    return join_place_parts(places, first), join_place_parts(places, second)


def pairs_across(pool: RolloutPool, places: Ints) -> tuple[Ints, Ints]:
    """The pool is sorted by bucket and, within it, by side."""
    starts, sizes = runs_of(pool.bucket[places])
    ones = np.add.reduceat(pool.side[places], starts) if len(starts) else sizes
    shapes = np.column_stack([sizes - ones, ones])
    first, second = [], []
    for zeros, others in np.unique(shapes, axis=0):
        if zeros and others:
            begin = starts[(shapes == (zeros, others)).all(axis=1)][:, None]
            row, column = np.divmod(np.arange(zeros * others), others)
            first.append((begin + row).ravel())
            second.append((begin + zeros + column).ravel())
    return join_place_parts(places, first), join_place_parts(places, second)


def join_place_parts(places: Ints, parts: list[Ints]) -> Ints:
    return places[np.concatenate(parts)] if parts else np.zeros(0, dtype=np.int64)


def runs_of(keys: Ints) -> tuple[Ints, Ints]:
    """Where equal neighbours begin, and how many they are."""
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else np.zeros(0, dtype=np.int64)
    return starts.astype(np.int64), np.diff(np.r_[starts, len(keys)]).astype(np.int64)


def count_preceding_equal(keys: Ints, is_sorted: bool = False) -> Ints:
    """How many rows with the same key stand before each row."""
    rank = np.arange(len(keys)) if is_sorted else np.argsort(keys, kind="stable")
    starts, sizes = runs_of(keys[rank])
    counts = np.empty(len(keys), dtype=np.int64)
    counts[rank] = np.arange(len(keys)) - np.repeat(starts, sizes)
    return counts


def build_pair_candidates(pool: RolloutPool, places: Ints) -> CandidateItems:
    """Pairs with their features, the answer with the higher reward first in those."""
    a, b = places[:, 0], places[:, 1]
    swap = pool.reward[b] > pool.reward[a]
    better, worse = np.where(swap, b, a), np.where(swap, a, b)
    features = ItemFeatures(
        gap=pool.reward[better] - pool.reward[worse],
        length=pool.length[better] - pool.length[worse],
        entropy_gap=pool.entropy[better] - pool.entropy[worse],
        entropy=(pool.entropy[a] + pool.entropy[b]) / 2,
        spread=compute_reward_spreads(pool)[pool.bucket[a]],
        judge=pool.judge[better] - pool.judge[worse],
    )
    return CandidateItems(places, pool.bucket[a], features)


def compute_reward_spreads(pool: RolloutPool) -> npt.NDArray[np.float64]:
    """Standard deviation of the rewards by bucket number; 0 where there is none."""
    known = ~np.isnan(pool.reward)
    size = int(pool.bucket.max(initial=-1)) + 1
    count = np.maximum(np.bincount(pool.bucket[known], minlength=size), 1)
    mean = np.bincount(pool.bucket[known], pool.reward[known], size) / count
    square = np.bincount(pool.bucket[known], (pool.reward[known] - mean[pool.bucket[known]]) ** 2, size) / count
    return np.asarray(np.sqrt(square), dtype=np.float64)


def build_single_candidates(pool: RolloutPool) -> CandidateItems:
    none = np.full(len(pool), np.nan)
    features = ItemFeatures(none, none, none, pool.entropy, compute_reward_spreads(pool)[pool.bucket] if len(pool) else none, none)
    return CandidateItems(np.arange(len(pool), dtype=np.int64)[:, None], pool.bucket, features)


def best_first(candidates: CandidateItems, score: npt.NDArray[np.float64], seed: int) -> CandidateItems:
    return candidates.take(order_by_score(score, seed))


def once_each(pool: RolloutPool, candidates: CandidateItems, recipe: Recipe, left: list[Exclusion]) -> CandidateItems:
    """The first of those that have the same prompt and the same texts."""
    keys = [*np.sort(pool.text[candidates.places], axis=1).T, pool.prompt[candidates.places[:, 0]]]
    rank = np.lexsort(keys)  # keeps the order of equals
    again = np.zeros(len(rank), dtype=bool)
    again[1:] = np.logical_and.reduce([key[rank][1:] == key[rank][:-1] for key in keys])
    first = rank[~again]
    what = "rollouts" if recipe.kind == Kind.SINGLE else "pairs"
    note_left_out(
        left,
        len(candidates) - len(first),
        what,
        "the same text to the same prompt again" if what == "rollouts" else "the same two texts to the same prompt again",
    )
    return candidates.take(np.sort(first))


def pairs_of_pairs(candidates: CandidateItems) -> CandidateItems:
    """Two pairs of the same prompt that share no answer; each pair is in one of them. ``candidates`` is best first."""
    waiting: dict[int, list[int]] = {}
    chosen: list[tuple[int, int]] = []
    for index, (bucket, winner, loser) in enumerate(zip(candidates.bucket.tolist(), *candidates.places.T.tolist(), strict=True)):
        others = waiting.setdefault(bucket, [])
        for earlier in others:
            if not {winner, loser} & set(candidates.places[earlier].tolist()):
                others.remove(earlier)
                chosen.append((earlier, index))
                break
        else:
            others.append(index)
    chosen.sort()
    first, second = (np.array([pair[side] for pair in chosen], dtype=np.int64) for side in (0, 1))
    return replace(candidates.take(first), places=np.hstack([candidates.places[first], candidates.places[second]]))


def exclude_taken_items(pool: RolloutPool, candidates: CandidateItems, taken: frozenset[tuple[int, ...]], left: list[Exclusion]) -> CandidateItems:
    if not taken:
        return candidates
    ids = np.sort(pool.id[candidates.places], axis=1).tolist()
    new = np.array([index for index, row in enumerate(ids) if tuple(row) not in taken], dtype=np.int64)
    note_left_out(left, len(candidates) - len(new), "items", "already in the queue")
    return candidates.take(new)


def make_rankings(pool: RolloutPool, recipe: Recipe, rank: Score, taken: frozenset[tuple[int, ...]]) -> SelectedItems:
    """Each group once, its different texts only."""
    least, most = ROLLOUTS[Kind.RANKING]
    left: list[Exclusion] = []
    by_text = np.lexsort((np.arange(len(pool)), pool.text, pool.bucket))
    repeated = (pool.bucket[by_text][1:] == pool.bucket[by_text][:-1]) & (pool.text[by_text][1:] == pool.text[by_text][:-1])
    keep = np.sort(by_text[np.r_[True, ~repeated]]) if len(pool) else by_text
    note_left_out(left, len(pool) - len(keep), "rollouts", "the same text as another answer of the group")
    different = pool.take(keep)
    short = count_preceding_equal(different.bucket, is_sorted=True) < most
    note_left_out(left, int((~short).sum()), "rollouts", f"a ranking has at most {most} answers")
    different = different.take(np.flatnonzero(short))
    starts, sizes = runs_of(different.bucket)
    large = sizes >= least
    note_left_out(left, int((~large).sum()), "groups", "fewer than two different texts")
    starts, sizes = starts[large], sizes[large]
    groups = order_by_score(rank(group_features(different, starts, sizes)), recipe.seed).tolist()
    items = [tuple(different.id[starts[at] : starts[at] + sizes[at]].tolist()) for at in groups]
    prompts = different.prompt[starts[groups]].tolist() if groups else []
    fresh = [(item, prompt) for item, prompt in zip(items, prompts, strict=True) if tuple(sorted(item)) not in taken]
    note_left_out(left, len(items) - len(fresh), "groups", "already in the queue")
    note_left_out(left, len(fresh) - recipe.most, "groups", f"beyond the {recipe.most:,} that were asked for")
    return SelectedItems([item for item, _ in fresh[: recipe.most]], [prompt for _, prompt in fresh[: recipe.most]], len(fresh), left)


def group_features(pool: RolloutPool, starts: Ints, sizes: Ints) -> ItemFeatures:
    """Of the best and the worst answer of each group, so that a group is scored like its widest pair."""
    pairs = []
    entropy = []
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        reward = pool.reward[start : start + size]
        known = np.flatnonzero(~np.isnan(reward))
        best, worst = (start + int(known[pick(reward[known])]) if len(known) else start for pick in (np.argmax, np.argmin))
        pairs.append((best, worst))
        entropy.append(np.nanmean(pool.entropy[start : start + size]) if not np.isnan(pool.entropy[start : start + size]).all() else np.nan)
    candidates = build_pair_candidates(pool, np.array(pairs, dtype=np.int64).reshape(-1, 2))
    return replace(candidates.features, entropy=np.array(entropy, dtype=np.float64))
