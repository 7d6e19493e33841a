"""A queue's items before they exist and when they are made: what a recipe gives, how they are ordered, what is left out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction
from django.db.models import Max

from lab.labelling.labels import people
from lab.labelling.labels.disagreement import model_for
from lab.labelling.labels.gold import mix_gold_items, select_gold_items
from lab.labelling.labels.models import Queue, Strategy
from lab.labelling.labels.new_queues import NewItem, add_items, make_queue
from lab.labelling.labels.pairs import Exclusion, make_items_from_pool
from lab.labelling.labels.pool import MOST_ROLLOUTS, build_pool_selection, count_replayed_rollouts, read_pool
from lab.labelling.labels.recipe import Recipe
from lab.labelling.labels.repeated_gold import mix_repeats, select_gold_to_repeat
from lab.labelling.labels.strategies import LEAST, Disagreement, score_candidates
from lab.rollouts.browse.conditions import runs_of
from lab.rollouts.trajectories.keepers import hold_rollouts
from lab.teams.accounts.models import Team, User


@dataclass(frozen=True)
class QueuePlan:
    """``items`` in the order they are served, gold ones among them."""

    recipe: Recipe
    items: list[NewItem]
    gold: int
    rollouts: int  # of the selection, looked at
    offered: int  # candidates there were
    left_out: list[Exclusion] = field(default_factory=list)
    ordered_by: str = ""  # in words, where the strategy does not say it all

    def __len__(self) -> int:
        return len(self.items)

    @property
    def shown(self) -> set[int]:
        """Ids of the rollouts that the items show."""
        return {pk for item in self.items for pk in item.rollouts}

    @property
    def share(self) -> float:
        return self.gold / len(self.items) if self.items else 0.0


def plan_items(team: Team, recipe: Recipe, taken: frozenset[tuple[int, ...]] = frozenset()) -> QueuePlan:
    """Raises regex.TooSlow. ``taken``: items (sorted rollout ids) not to make again."""
    pool = read_pool(team, recipe)
    model = model_for(team, [run.pk for run in runs_of(team, build_pool_selection(recipe))]) if recipe.strategy == Strategy.DISAGREEMENT else None
    repeats = select_gold_to_repeat(team, recipe.kind, recipe.gold_again, recipe.gold_from)
    taken |= {tuple(sorted(item.rollouts)) for item in repeats}
    gold = select_gold_items(pool, recipe, taken)
    selected = make_items_from_pool(pool, recipe, lambda features: score_candidates(recipe.strategy, features, recipe.seed, model), taken)
    before = []
    if again := count_replayed_rollouts(team, recipe):
        before.append(Exclusion(again, "rollouts", "a resumed attempt sampled these steps again"))
    if pool.empty:
        before.append(Exclusion(pool.empty, "rollouts", "the completion is empty"))
    if pool.beyond:
        before.append(Exclusion(0, "rollouts", f"only the newest {MOST_ROLLOUTS:,} of the selection were considered"))
    items = mix_repeats(mix_gold_items(selected, gold, recipe.seed, recipe.most - len(repeats)), repeats, recipe.seed + 3)
    if len(repeats) < recipe.gold_again:
        before.append(Exclusion(recipe.gold_again - len(repeats), "gold items to ask again", "no further ones with an answer and stored rollouts"))
    if len(gold) < recipe.gold:
        before.append(Exclusion(recipe.gold - len(gold), "gold items", f"no further answers that {recipe.gold_by} clearly rates right or wrong"))
    return QueuePlan(
        recipe, items, len(gold) + len(repeats), pool.read, selected.offered, [*before, *selected.left_out], describe_ordering(recipe, model)
    )


JUDGED = "or that the judge orders the other way "


def describe_ordering(recipe: Recipe, model: Disagreement | None) -> str:
    """What the disagreement-first order rests on, in words."""
    if recipe.strategy != Strategy.DISAGREEMENT:
        return ""
    if model is None:
        return (
            f"Your team has fewer than {LEAST} earlier votes about this reward, or they all say the same, so nothing can be fitted: pairs whose "
            f"reward gap is small for their group {JUDGED if recipe.judge_by else ''}come first, from groups with spread where the policy was "
            "undecided."
        )
    return (
        f"By how far people{', the judge' if recipe.judge_by else ''} and the reward disagree, times the spread of the group's rewards, times the "
        f"policy's entropy. People: a logistic model of reward gap, length and entropy, fitted on {model.votes:,} earlier votes about this reward "
        f"({model.disagreed:,} of them disagreed with it)."
    )


def create_queue_from_plan(team: Team, user: User, plan: QueuePlan, fields: dict[str, Any], chosen: Collection[int]) -> Queue:
    """``fields`` are Queue's own (``QueueForm.fields_of_queue`` and the rubric); ``chosen`` people of an assigned queue. Raises Refusal."""
    recipe = plan.recipe
    with transaction.atomic():
        hold_rollouts(team, plan.shown)
        settings = {**fields, "strategy": recipe.strategy, "seed": recipe.seed, "selection": recipe.address}
        queue = make_queue(team, user, kind=recipe.kind, items=plan.items, **settings)
        if queue.assigned_only:
            people.assign_labellers(queue, chosen)
    return queue


def taken_by(queue: Queue) -> frozenset[tuple[int, ...]]:
    return frozenset(tuple(sorted(rollouts)) for rollouts in queue.items.values_list("rollouts", flat=True).iterator())


def plan_more_items(queue: Queue, count: int) -> QueuePlan:
    """The next ``count`` items of what the queue was made from, without those it has; gold in the same share. Raises regex.TooSlow."""
    recipe = Recipe.stored(queue.selection, queue.kind, queue.strategy, queue.seed)
    gold = round(recipe.gold / max(1, recipe.most) * count)
    return plan_items(queue.team, replace(recipe, most=count, gold=gold, gold_again=0), taken_by(queue))


def append_planned_items(queue: Queue, plan: QueuePlan) -> int:
    """Puts the plan's items after all the queue has. Raises Refusal."""
    with transaction.atomic():
        hold_rollouts(queue.team, plan.shown)
        newest = Queue.objects.select_for_update(no_key=True).same_row(queue).get().items.aggregate(newest=Max("place"))["newest"]
        start = 0 if newest is None else int(newest) + 1
        return add_items(queue, (replace(item, place=start + index) for index, item in enumerate(plan.items)))
