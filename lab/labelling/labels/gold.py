"""Gold items: questions whose answer a reward function has verified. They look like any other item and are spread over the whole queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lab.labelling.labels.models import Kind, Strategy, Verdict
from lab.labelling.labels.new_queues import NewItem
from lab.labelling.labels.pairs import Made, make_items_from_pool
from lab.labelling.labels.pool import Pool
from lab.labelling.labels.recipe import Recipe

RIGHT, WRONG = 1.0, 0.0  # at least, at most: what a verifying reward function gives to right and to wrong answers


@dataclass(frozen=True)
class Gold:
    """Each item with what is known of it, in stored places."""

    items: list[tuple[int, ...]]
    prompts: list[int]
    known: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.items)


NONE = Gold([], [], [])


def select_gold_items(pool: Pool, recipe: Recipe, taken: frozenset[tuple[int, ...]] = frozenset()) -> Gold:
    """Up to ``recipe.gold`` of them, at random: pairs of a right and a wrong answer of one group or prompt, or single answers, half of them right."""
    if not recipe.gold:
        return NONE
    right = dict.fromkeys(pool.id[pool.value >= RIGHT].tolist(), True) | dict.fromkeys(pool.id[pool.value <= WRONG].tolist(), False)
    known = pool.take(np.flatnonzero((pool.value >= RIGHT) | (pool.value <= WRONG)))
    asked = replace(recipe, strategy=Strategy.RANDOM, most=len(known) * 48 + 1, per=0, seed=recipe.seed + 1)
    found = make_items_from_pool(known, asked, score=None, taken=taken)
    if recipe.kind == Kind.SINGLE:
        return select_balanced_gold(found, right, recipe)
    wanted = [place for place, (one, other) in enumerate(found.items) if right[one] != right[other]]
    return build_gold_set(found, spread_out(found, wanted, recipe.gold), right, recipe)


def select_balanced_gold(found: Made, right: dict[int, bool], recipe: Recipe) -> Gold:
    """As many right as wrong ones, as far as there are."""
    sides = [[place for place, (one,) in enumerate(found.items) if right[one] is side] for side in (True, False)]
    half = min(recipe.gold // 2, len(sides[1]))
    first = sides[0][: recipe.gold - half]
    return build_gold_set(found, sorted([*first, *sides[1][: recipe.gold - len(first)]]), right, recipe)


def spread_out(found: Made, wanted: Sequence[int], most: int) -> list[int]:
    """One pair a prompt first, then a second one of each, and so on."""
    seen: dict[int, int] = {}
    turns = []
    for place in wanted:
        turn = seen[found.prompts[place]] = seen.get(found.prompts[place], 0) + 1
        turns.append((turn, place))
    return [place for _, place in sorted(turns)[:most]]


def build_gold_set(found: Made, places: Sequence[int], right: dict[int, bool], recipe: Recipe) -> Gold:
    items = [found.items[place] for place in places]
    return Gold(items, [found.prompts[place] for place in places], [build_gold_answer(item, right, recipe) for item in items])


def build_gold_answer(item: tuple[int, ...], right: dict[int, bool], recipe: Recipe) -> dict[str, Any]:
    verdict = (Verdict.GOOD if right[item[0]] else Verdict.BAD) if recipe.kind == Kind.SINGLE else (Verdict.A if right[item[0]] else Verdict.B)
    return {"verdict": verdict.value, "by": recipe.gold_by}


def mix_gold_items(made: Made, gold: Gold, seed: int, most: int | None = None) -> list[NewItem]:
    """At most ``most`` items in the order they are served: gold ones at random within equal stretches, so that their place tells nothing."""
    held = {tuple(sorted(item)) for item in gold.items}
    plain = [(item, prompt) for item, prompt in zip(made.items, made.prompts, strict=True) if tuple(sorted(item)) not in held]
    if most is not None:
        plain = plain[: max(0, most - len(gold))]
    if gold.items:
        rng = np.random.default_rng(seed + 2)
        stretch = max(1, len(plain)) / len(gold)
        at = [(place + float(rng.random())) * stretch for place in range(len(gold))]
    else:
        at = []
    rows = [(float(place), NewItem(prompt, item)) for place, (item, prompt) in enumerate(plain)]
    rows += [(where, NewItem(prompt, item, gold=known)) for where, item, prompt, known in zip(at, gold.items, gold.prompts, gold.known, strict=True)]
    rows.sort(key=lambda row: row[0])
    return [replace(item, place=float(place)) for place, (_, item) in enumerate(rows)]
