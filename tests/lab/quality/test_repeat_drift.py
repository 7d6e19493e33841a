"""Gold items asked again: labellers who change are told from a model that changes."""

from __future__ import annotations

import itertools
from datetime import datetime

import pytest
from django.test import Client
from django.utils import timezone

from lab.data.datasets.votes import items_of
from lab.labelling.labels import queue_items
from lab.labelling.labels.item_claims import claim_items
from lab.labelling.labels.models import Item, Queue
from lab.labelling.labels.repeated_gold import list_gold_sources, repeat_gold, select_gold_to_repeat
from lab.labelling.quality.labellers import gold_answers
from lab.labelling.quality.repeat_drift import RepeatDrift, compute_mcnemar_p, compute_repeat_drift, list_repeated_answers
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from tests.lab.labels.test_gold import recipe
from tests.lab.quality.labelling import judge, queue_of, scored_run

NOW = datetime(2026, 1, 1, tzinfo=timezone.get_default_timezone())


@pytest.fixture
def queue(team: Team) -> Queue:
    """24 gold pairs of steps 1 to 24; the first answer is the right one."""
    return queue_of(scored_run(team, [[1.0, 0.0]] * 24), gold={"verdict": "a"})


def drift_of(queue: Queue) -> RepeatDrift:
    drift = compute_repeat_drift(queue.team, list_repeated_answers(queue), gold_answers(queue))
    assert drift is not None
    return drift


def answer(queue: Queue, user: User, verdict: str, *items: Item) -> None:
    for item in items:
        judge(item, user, verdict)


@pytest.mark.feature(107)
def test_people_who_change_are_told_from_a_model_that_changes(owner: User, queue: Queue) -> None:
    old, new = list(queue.items.order_by("place")[:12]), list(queue.items.order_by("place")[12:])
    answer(queue, owner, "a", *old)
    assert compute_repeat_drift(queue.team, list_repeated_answers(queue), gold_answers(queue)) is None
    assert repeat_gold(queue, 12, queue.pk, NOW) == 12
    repeats = list(queue.items.filter(repeats__isnull=False))
    assert {item.repeats_id for item in repeats} == {item.pk for item in old}
    answer(queue, owner, "b", *repeats[:8])
    answer(queue, owner, "a", *repeats[8:], *new)
    drift = drift_of(queue)
    assert [share.value for share in (drift.before, drift.again, drift.same, drift.fresh)] == pytest.approx([1.0, 1 / 3, 1 / 3, 1.0])
    assert drift.p == pytest.approx(2 / 2**8)
    assert (drift.old_step, drift.new_step) == (6, 18)
    assert drift.people_fell
    assert not drift.model_fell


def test_a_model_that_is_harder_to_judge_is_not_taken_for_people_who_change(owner: User, queue: Queue) -> None:
    old, new = list(queue.items.order_by("place")[:12]), list(queue.items.order_by("place")[12:])
    answer(queue, owner, "a", *old)
    repeat_gold(queue, 12, None, NOW)
    answer(queue, owner, "a", *queue.items.filter(repeats__isnull=False))
    answer(queue, owner, "b", *new)
    drift = drift_of(queue)
    assert (drift.p, drift.people_fell, drift.model_fell) == (1.0, False, True)


def test_only_who_answered_both_times_is_compared(owner: User, teammate: User, queue: Queue) -> None:
    first = queue.items.order_by("place")[0]
    answer(queue, owner, "a", first)
    repeat_gold(queue, 1, None, NOW)
    answer(queue, teammate, "b", queue.items.get(repeats=first))
    assert list_repeated_answers(queue) == []


def test_the_exact_test_counts_changes_of_mind() -> None:
    assert compute_mcnemar_p(0, 0) == 1.0
    assert compute_mcnemar_p(3, 3) == 1.0
    assert compute_mcnemar_p(1, 9) == pytest.approx(2 * 11 / 1024)
    assert compute_mcnemar_p(9, 1) == compute_mcnemar_p(1, 9)


def test_repeats_go_first_to_who_answered_before(owner: User, teammate: User, queue: Queue) -> None:
    first, second = queue.items.order_by("place")[:2]
    answer(queue, owner, "a", first)
    answer(queue, teammate, "a", second)
    repeat_gold(queue, 2, None, NOW)
    queue.items.filter(repeats__isnull=False).update(place=-1.0)
    assert [claim.item.repeats_id for claim in claim_items(queue, owner, 1)] == [first.pk]
    assert [claim.item.repeats_id for claim in claim_items(queue, teammate, 2)] == [second.pk, None]


def test_nobody_is_left_without_work_by_repeats_of_others(owner: User, teammate: User, queue: Queue) -> None:
    first = queue.items.order_by("place")[0]
    answer(queue, owner, "a", first)
    queue.items.exclude(pk=first.pk).delete()
    repeat_gold(queue, 1, None, NOW)
    assert [claim.item.repeats_id for claim in claim_items(queue, teammate, 1)] == [first.pk]


def test_what_waits_to_be_asked_again_is_not_put_in_twice_and_lies_among_what_waits(owner: User, queue: Queue) -> None:
    items = list(queue.items.order_by("place"))
    answer(queue, owner, "a", *items[:4])
    assert repeat_gold(queue, 3, None, NOW) == 3
    assert repeat_gold(queue, 3, None, NOW) == 1
    assert repeat_gold(queue, 3, None, NOW) == 0
    places = [item.place for item in queue.items.filter(repeats__isnull=False)]
    assert min(places) > items[4].place
    assert max(places) < items[-1].place + 1
    Rollout.across_teams.filter(pk=items[0].rollouts[0]).delete()
    assert {item.repeats for item in select_gold_to_repeat(queue.team, queue.kind, 9)} == {item.pk for item in items[1:4]}


def test_a_new_queue_asks_the_gold_of_an_earlier_one_again(team: Team, stranger: User, owner: User, queue: Queue) -> None:
    answer(queue, owner, "a", *queue.items.order_by("place")[:6])
    plan = queue_items.plan_items(team, recipe(gold=2, gold_again=4, gold_from=queue.pk, most=15))
    assert (len(plan), plan.gold, sum(item.repeats is not None for item in plan.items)) == (15, 6, 4)
    assert len({tuple(sorted(item.rollouts)) for item in plan.items}) == 15
    assert [item.place for item in plan.items] == [float(at) for at in range(15)]
    stored = plan.recipe.stored(plan.recipe.address, plan.recipe.kind, plan.recipe.strategy, plan.recipe.seed)
    assert (stored.gold_again, stored.gold_from) == (4, queue.pk)
    made = queue_items.create_queue_from_plan(team, owner, plan, {"name": "later"}, ())
    assert made.items.filter(repeats__queue=queue).count() == 4
    assert [source.pk for source in list_gold_sources(team)] == [queue.pk]
    foreign = stranger.memberships.get().team
    assert list_gold_sources(foreign) == []
    assert select_gold_to_repeat(foreign, queue.kind, 9, queue.pk) == []
    lacking = queue_items.plan_items(team, recipe(gold=0, gold_again=10, most=20))
    assert [(one.count, one.what) for one in lacking.left_out if "again" in one.what] == [(4, "gold items to ask again")]


def test_a_label_of_a_repeat_becomes_no_row(team: Team, owner: User, queue: Queue) -> None:
    first = queue.items.order_by("place")[0]
    answer(queue, owner, "a", first)
    repeat_gold(queue, 1, None, NOW)
    answer(queue, owner, "b", queue.items.get(repeats=first))
    assert [item.pk for item in items_of(team, [queue.pk])] == [first.pk]


@pytest.mark.feature(107)
def test_a_lead_asks_gold_again_and_reads_what_it_says(as_owner: Client, owner: User, queue: Queue) -> None:
    answer(queue, owner, "a", *queue.items.order_by("place")[:3])
    assert "ask gold items again" in as_owner.get(f"/label/{queue.pk}/quality/").content.decode()
    counter = itertools.count()

    def press(**data: object) -> str:
        response = as_owner.post(f"/label/{queue.pk}/act/", {"act": "gold", "token": f"t{next(counter)}", **data}, follow=True)
        return response.content.decode()

    assert "enter a whole number" in press(count="x")
    assert "is gone or asks another kind" in press(count=2, source=10**9)
    assert "3 gold items will be asked again" in press(count=20, source=queue.pk)
    assert "Nothing to ask again" in press(count=20)
    answer(queue, owner, "a", *queue.items.filter(repeats__isnull=False))
    page = as_owner.get(f"/label/{queue.pk}/quality/").content.decode()
    assert "Asked again: same people, same items" in page
    assert "gold, asked again" in as_owner.get(f"/label/{queue.pk}/?state=gold").content.decode()
