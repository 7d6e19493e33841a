"""Labels as units for the coefficients, labellers' figures, and drift."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lab.labelling.labels.models import JudgementState, Kind, Queue
from lab.labelling.quality.coefficients import cohen_kappa, krippendorff_alpha
from lab.labelling.quality.drift import LEAST, cut_into_stretches, over_steps, over_time
from lab.labelling.quality.labellers import gold_answers, summarize_labellers
from lab.labelling.quality.proportions import estimate_share
from lab.labelling.quality.ratings import collect_ratings, find_ordinal_level, ratings_of, step_ratings_of
from lab.teams.accounts.models import Team, User
from tests.lab.quality.labelling import judge, queue_of, scored_run


@pytest.fixture
def queue(team: Team) -> Queue:
    return queue_of(scored_run(team, [[1.0, 0.0]] * 12), overlap=2)


def test_only_items_that_two_people_judged_are_compared_and_skips_say_nothing(queue: Queue, owner: User, teammate: User) -> None:
    first, second, third, *_ = queue.items.order_by("place")
    judge(first, owner, "a")
    judge(first, teammate, "b")
    judge(second, owner, "a")
    judge(third, owner, "a")
    judge(third, teammate, "skip")
    ratings = ratings_of(queue)
    assert ratings.counts().tolist() == [[1, 0, 0, 1]]
    assert ratings.items.tolist() == [first.pk]
    assert set(ratings.people) == {owner.pk, teammate.pk}


def test_what_does_not_count_is_left_out(queue: Queue, owner: User, teammate: User) -> None:
    first = queue.items.order_by("place").first()
    assert first is not None
    judge(first, owner, "a")
    judge(first, teammate, "b", state=JudgementState.RETURNED)
    assert len(ratings_of(queue).items) == 0


def test_rankings_enter_as_their_implied_pairs() -> None:
    """{A=B}>C against A>B>C: they agree on two pairs of three; the third is a tie against a side."""
    ratings = collect_ratings(Kind.RANKING, [(1, 7, "ranked", None, [[0, 1], [2]]), (1, 8, "ranked", None, [[0], [1], [2]])], False)
    assert ratings.counts().tolist() == [[1, 1, 0], [2, 0, 0], [2, 0, 0]]
    assert ratings.items.tolist() == [1, 1, 1]


def test_pair_verdicts_lie_in_order_from_much_better_to_much_worse() -> None:
    told = [("a", 3), ("a", None), ("a", 1), ("tie", None), ("b", 1), ("b", 2), ("b", 3)]
    assert [find_ordinal_level(Kind.PAIR, verdict, strength, 7) for verdict, strength in told] == [0, 1, 2, 3, 4, 5, 6]
    assert find_ordinal_level(Kind.PAIR, "bad", None, 7) == 3
    assert [find_ordinal_level(Kind.PAIR, verdict, None, 3) for verdict in ("a", "tie", "b")] == [0, 1, 2]


def test_strength_matters_to_ordinal_alpha_only() -> None:
    rows = [(item, user, verdict, strength, None) for item, verdict in enumerate("abababab") for user, strength in ((1, 1), (2, 3))]
    ratings = collect_ratings(Kind.PAIR, rows, True)
    nominal = krippendorff_alpha(ratings.counts(), ratings.items, "nominal").value
    ordinal = krippendorff_alpha(ratings.counts(ordered=True), ratings.items, "ordinal").value
    assert nominal == 1.0
    assert ordinal is not None
    assert 0 < ordinal < 1


def test_step_labels_are_compared_step_by_step(team: Team, owner: User, teammate: User) -> None:
    queue = queue_of(scored_run(team, [[1.0]]), kind=Kind.SINGLE, overlap=2, steps=True)
    item = queue.items.get()
    for user, marks in ((owner, ("good", "bad")), (teammate, ("good", "good"))):
        steps = [{"start": place, "end": place + 1, "mark": mark, "text": "x"} for place, mark in enumerate(marks)]
        judge(item, user, "good", steps=steps)
    assert step_ratings_of(queue).counts().tolist() == [[0, 0, 2], [1, 0, 1]]


@pytest.mark.feature(63)
def test_a_labellers_line(queue: Queue, owner: User, teammate: User) -> None:
    items = list(queue.items.order_by("place"))
    for place, item in enumerate(items[:10]):
        judge(item, owner, "a", order=[0, 1] if place < 9 else [1, 0], seconds=100.0)
        judge(item, teammate, "a" if place < 5 else "tie", seconds=1.0)
    judge(items[10], teammate, "skip")
    one, other = sorted(summarize_labellers(queue, ratings_of(queue), []), key=lambda line: line.user.pk)
    assert (one.labels, one.seconds, one.hasty) == (10, 100.0, False)
    assert one.left == estimate_share(9, 10)
    assert one.left.off_half
    assert (other.ties, other.skips, other.hasty) == (estimate_share(5, 10), 1, True)
    assert one.others == other.others == estimate_share(5, 10)
    [only] = summarize_labellers(queue, ratings_of(queue), [], owner.pk)
    assert only == one


def test_agreement_with_gold(team: Team, owner: User, teammate: User) -> None:
    queue = queue_of(scored_run(team, [[1.0, 0.0]] * 4), gold={"verdict": "a"}, overlap=2)
    for item, verdict in zip(queue.items.order_by("place"), ("a", "a", "b", "skip"), strict=True):
        judge(item, owner, verdict)
    judge(queue.items.order_by("place")[0], teammate, "a")
    gold = gold_answers(queue)
    assert [answer.right for answer in gold if answer.user == owner.pk] == [True, True, False]
    assert gold_answers(queue, teammate.pk) == gold[-1:]
    assert {line.user: line.gold for line in summarize_labellers(queue, ratings_of(queue), gold)} == {
        owner: estimate_share(2, 3),
        teammate: estimate_share(1, 1),
    }


@pytest.mark.feature(107)
def test_drift_is_told_by_time_and_by_policy_step(team: Team, owner: User) -> None:
    queue = queue_of(scored_run(team, [[1.0, 0.0]] * 40), gold={"verdict": "a"})
    for place, item in enumerate(queue.items.order_by("-place")):
        judge(item, owner, "a" if place < 20 else "b")
    gold = gold_answers(queue)
    time, steps = over_time(gold), over_steps(team, gold)
    assert time.fell
    assert not steps.fell  # later steps were labelled first, and better
    assert sum(stretch.share.n for stretch in time.stretches) == 40
    assert (steps.stretches[0].first, steps.stretches[-1].last) == (1, 40)


def test_stretches_part_no_step_and_hold_enough() -> None:
    made = cut_into_stretches([(step, True) for step in range(4) for _ in range(9)])
    assert sum(stretch.share.n for stretch in made) == 36
    assert all(stretch.share.n >= LEAST for stretch in made)
    assert all(before.last < after.first for before, after in itertools.pairwise(made))
    assert cut_into_stretches([]) == []


def test_pairwise_kappa_needs_common_items() -> None:
    nobody = np.zeros(0, dtype=np.int64)
    assert cohen_kappa(nobody, nobody, 4, nobody).value is None
