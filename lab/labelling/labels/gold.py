"""Gold items: questions whose answer a reward function has verified. They look like any other item and are spread over the whole queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lab.labelling.labels.models import Kind, Strategy, Verdict
from lab.labelling.labels.new_queues import NewItem
from lab.labelling.labels.pairs import SelectedItems, make_items_from_pool
from lab.labelling.labels.pool import RolloutPool
from lab.labelling.labels.recipe import Recipe
from lab.labelling.labels.repeated_gold import spread_over

RIGHT, WRONG = 1.0, 0.0  # at least, at most: what a verifying reward function gives to right and to wrong answers


@dataclass(frozen=True)
class GoldSet:
    """Each item with what is known of it, in stored places."""

    items: list[tuple[int, ...]]
    prompts: list[int]
    known: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.items)


NONE = GoldSet([], [], [])


def select_gold_items(pool: RolloutPool, recipe: Recipe, taken: frozenset[tuple[int, ...]] = frozenset()) -> GoldSet:
    """Up to ``recipe.gold`` of them, at random: pairs of a right and a wrong answer of one group or prompt, or single answers, half of them right."""
    if not recipe.gold:
        return NONE
    right = dict.fromkeys(pool.id[pool.value >= RIGHT].tolist(), True) | dict.fromkeys(pool.id[pool.value <= WRONG].tolist(), False)
    known = pool.take(np.flatnonzero((pool.value >= RIGHT) | (pool.value <= WRONG)))
    candidates = replace(recipe, strategy=Strategy.RANDOM, most=len(known) * 48 + 1, per=0, seed=recipe.seed + 1)
    items = make_items_from_pool(known, candidates, score=None, taken=taken)
    if recipe.kind == Kind.SINGLE:
        return select_balanced_gold(items, right, recipe)
    indices = [index for index, (first, other) in enumerate(items.items) if right[first] != right[other]]
    return build_gold_set(items, spread_out(items, indices, recipe.gold), right, recipe)


def select_balanced_gold(selected: SelectedItems, right: dict[int, bool], recipe: Recipe) -> GoldSet:
    """As many right as wrong ones, as far as there are."""
    sides = [[index for index, (rollout,) in enumerate(selected.items) if right[rollout] is side] for side in (True, False)]
    half = min(recipe.gold // 2, len(sides[1]))
    first = sides[0][: recipe.gold - half]
    return build_gold_set(selected, sorted([*first, *sides[1][: recipe.gold - len(first)]]), right, recipe)


def spread_out(selected: SelectedItems, indices: Sequence[int], most: int) -> list[int]:
    """One pair a prompt first, then a second one of each, and so on."""
    seen: dict[int, int] = {}
    turns = []
    for index in indices:
        turn = seen[selected.prompts[index]] = seen.get(selected.prompts[index], 0) + 1
        turns.append((turn, index))
    return [index for _, index in sorted(turns)[:most]]


def build_gold_set(selected: SelectedItems, places: Sequence[int], right: dict[int, bool], recipe: Recipe) -> GoldSet:
    items = [selected.items[index] for index in places]
    return GoldSet(items, [selected.prompts[index] for index in places], [build_gold_answer(item, right, recipe) for item in items])


def build_gold_answer(item: tuple[int, ...], right: dict[int, bool], recipe: Recipe) -> dict[str, Any]:
    verdict = (Verdict.GOOD if right[item[0]] else Verdict.BAD) if recipe.kind == Kind.SINGLE else (Verdict.A if right[item[0]] else Verdict.B)
    return {"verdict": verdict.value, "by": recipe.gold_by}


def mix_gold_items(selected: SelectedItems, gold: GoldSet, seed: int, most: int | None = None) -> list[NewItem]:
    """At most ``most`` items in the order they are served: gold ones at random within equal stretches, so that their place tells nothing."""
    held = {tuple(sorted(item)) for item in gold.items}
    plain = [(item, prompt) for item, prompt in zip(selected.items, selected.prompts, strict=True) if tuple(sorted(item)) not in held]
    if most is not None:
        plain = plain[: max(0, most - len(gold))]
    at = spread_over(len(gold), len(plain), seed + 2)
    rows = [(float(index), NewItem(prompt, item)) for index, (item, prompt) in enumerate(plain)]
    rows += [(where, NewItem(prompt, item, gold=known)) for where, item, prompt, known in zip(at, gold.items, gold.prompts, gold.known, strict=True)]
    rows.sort(key=lambda row: row[0])
    return [replace(item, place=float(index)) for index, (_, item) in enumerate(rows)]
