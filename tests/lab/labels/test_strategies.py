"""Which candidates come first, and the model of disagreement."""

import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.labelling.labels.disagreement import model_for, with_reward
from lab.labelling.labels.item_order import EVERY, build_item_features, reorder_grown, reorder_unseen_items, to_front
from lab.labelling.labels.models import Judgement, JudgementState, Kind, Ordering, Preference, Queue, Strategy, Verdict
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.labelling.labels.strategies import LEAST, ItemFeatures, fit_disagreement_model, order_by_score, score_candidates, score_disagreement
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from tests.lab.supervisor.spools import make_run, rollout, started, store


def features(
    gap: list[float],
    entropy: list[float] | None = None,
    length: list[float] | None = None,
    spread: list[float] | None = None,
    judge: list[float] | None = None,
) -> ItemFeatures:
    count = len(gap)
    columns = (gap, length or [0.0] * count, [0.0] * count, entropy or [1.0] * count, spread or [1.0] * count, judge or [np.nan] * count)
    return ItemFeatures(*(np.array(column, dtype=float) for column in columns))


def first_to_last(strategy: Strategy, given: ItemFeatures) -> list[int]:
    return order_by_score(score_candidates(strategy, given, seed=3), seed=3).tolist()


def test_orders_by_hand() -> None:
    gap = [0.5, 2.0, np.nan, 0.0, 1.0]
    assert first_to_last(Strategy.LARGEST_GAP, features(gap)) == [1, 4, 0, 3, 2]
    assert first_to_last(Strategy.SMALLEST_GAP, features(gap)) == [3, 0, 4, 1, 2]
    assert first_to_last(Strategy.ENTROPY, features([0] * 3, entropy=[0.1, np.nan, 0.3])) == [2, 0, 1]


def test_random_is_decided_by_the_seed_alone() -> None:
    asked = features([0.0] * 50)
    one, again, other = (order_by_score(score_candidates(Strategy.RANDOM, asked, seed), seed).tolist() for seed in (1, 1, 2))
    assert one == again != other
    assert sorted(one) == list(range(50))


def test_equal_scores_are_in_an_order_the_seed_decides() -> None:
    asked = features([1.0] * 50)
    assert first_to_last(Strategy.LARGEST_GAP, asked) != list(range(50))


def test_without_votes_small_gaps_of_spread_and_undecided_groups_come_first() -> None:
    asked = features([0.1, 2.0, 0.1, 0.1, 0.0], entropy=[1.0, 1.0, 0.1, 1.0, 5.0], spread=[1.0, 1.0, 1.0, 0.1, 1.0])
    assert first_to_last(Strategy.DISAGREEMENT, asked) == [0, 1, 2, 3, 4]  # a pair without an order of the reward cannot be disagreed with


def test_too_few_votes_and_votes_that_all_say_the_same_give_no_model() -> None:
    rng = np.random.default_rng(0)
    assert fit_disagreement_model(rng.normal(size=(LEAST - 1, 3)), rng.random(LEAST - 1) < 0.5) is None
    assert fit_disagreement_model(rng.normal(size=(100, 3)), np.zeros(100, dtype=bool)) is None


@pytest.mark.feature(96)
def test_the_model_finds_what_people_disagree_about() -> None:
    rng = np.random.default_rng(1)
    seen = rng.normal(size=(600, 3)) * (1.0, 30.0, 0.2)
    truth = 1 / (1 + np.exp(1 + 1.5 * seen[:, 0] - 0.05 * seen[:, 1]))
    model = fit_disagreement_model(seen, rng.random(600) < truth)
    assert model is not None
    assert np.corrcoef(model.probability(seen), truth)[0, 1] > 0.95
    assert model.votes == 600


def test_few_separable_votes_stay_short_of_certainty() -> None:
    seen = np.column_stack([np.linspace(-1, 1, LEAST), np.zeros(LEAST), np.zeros(LEAST)])
    model = fit_disagreement_model(seen, seen[:, 0] > 0)
    assert model is not None
    assert 0.001 < model.probability(seen).min() < model.probability(seen).max() < 0.999


@pytest.fixture
def queue(team: Team, owner: User) -> Queue:
    """120 pairs of one run: the reward prefers the longer answer. Served in an order that is not the strategy's."""
    run = make_run(team)
    events = [
        rollout(step, 0, at, completion=f"{step} {at}", reward=at * (0.1 + step / 100), length=10 + at * step) for step in range(120) for at in (0, 1)
    ]
    store(run, started(), *events)
    found: dict[int, list[Rollout]] = {}
    for one in Rollout.across_teams.order_by("sample"):
        found.setdefault(one.step, []).append(one)
    items = [NewItem(pair[0].prompt_id, (pair[0].pk, pair[1].pk)) for _, pair in sorted(found.items())]
    return make_queue(team, owner, name="q", kind=Kind.PAIR, items=items, strategy=Strategy.DISAGREEMENT)


def vote(queue: Queue, user: User, count: int) -> None:
    """Labels the first ``count`` items that have none: people dislike answers that are much longer."""
    for item in queue.items.filter(room=queue.overlap).order_by("place")[:count]:
        step = Rollout.across_teams.get(pk=item.rollouts[0]).step
        chosen, rejected = item.rollouts if step > 60 else reversed(item.rollouts)
        said = Judgement.objects.create(item=item, queue=queue, user=user, key=uuid.uuid4(), verdict=Verdict.A, order=[0, 1], seconds=1)
        Preference.objects.create(judgement=said, item=item, chosen=chosen, rejected=rejected)
        queue.items.filter(pk=item.pk).update(room=0, labels=1, state="done")


def test_unserved_items_are_put_in_the_models_order_and_others_stay(queue: Queue, owner: User) -> None:
    queue.items.filter(pk__in=queue.items.order_by("place").values("pk")[:30]).update(place=1000)
    vote(queue, owner, 40)
    served = dict(queue.items.exclude(room=1).values_list("pk", "place"))
    gold = queue.items.filter(room=1).order_by("-place").first()
    assert gold is not None
    queue.items.filter(pk=gold.pk).update(gold={"verdict": "a"})
    before = sorted(queue.items.values_list("place", flat=True))
    done = reorder_unseen_items(queue)
    assert (done.votes, done.labels) == (40, 40)
    assert done.moved > 0
    assert dict(queue.items.exclude(room=1).values_list("pk", "place")) == served
    assert queue.items.get(pk=gold.pk).place == gold.place
    assert sorted(queue.items.values_list("place", flat=True)) == before
    waiting = [Rollout.across_teams.get(pk=item.rollouts[0]).step for item in queue.items.filter(room=1, gold__isnull=True).order_by("place")]
    assert np.mean(waiting[:10]) > np.mean(waiting[-10:])  # the much longer answers, which people dislike, come first


def test_without_enough_votes_the_order_says_so(queue: Queue, owner: User) -> None:
    vote(queue, owner, LEAST - 1)
    assert reorder_unseen_items(queue).votes == 0


def test_withdrawn_votes_and_another_teams_teach_nothing(queue: Queue, owner: User, stranger: User) -> None:
    vote(queue, owner, 80)
    runs = [Rollout.across_teams.first().run_id]  # type: ignore[union-attr]
    assert model_for(queue.team, runs) is not None
    assert model_for(stranger.memberships.get().team, runs) is None
    Judgement.across_teams.update(state=JudgementState.WITHDRAWN)
    assert model_for(queue.team, runs) is None


def test_a_queue_is_ordered_again_every_50_labels(queue: Queue, owner: User) -> None:
    assert reorder_grown() == 0
    vote(queue, owner, EVERY)
    assert reorder_grown() == 1
    assert reorder_grown() == 0
    vote(queue, owner, EVERY - 1)
    Ordering.across_teams.update(at="2020-01-01T00:00Z")
    assert reorder_grown() == 0
    vote(queue, owner, 1)
    assert reorder_grown() == 1


@pytest.mark.feature(68)
def test_agreement_with_the_reward_counts_votes_where_it_has_an_order(queue: Queue, owner: User) -> None:
    vote(queue, owner, 70)
    found, labels = with_reward(queue)
    assert (found.count, labels) == (70, 70)
    assert found.hits == 61  # steps 0 to 60: the higher reward was chosen


@given(st.permutations(range(12)), st.integers(0, 12))
def test_the_best_come_to_the_front_and_nobody_loses_a_place(order: list[int], front: int) -> None:
    moves = to_front(order[:front])
    now = [moves.get(at, at) for at in range(12)]
    assert sorted(now) == list(range(12))
    assert [now[at] for at in order[:front]] == list(range(front))
    assert len(moves) <= 2 * front


@pytest.mark.feature(96)
def test_people_judge_spread_and_entropy_are_one_order() -> None:
    """Three voters: the reward, a person (against it with 0.5 exp(-gap / spread)) and the judge."""
    alike = features([1.0] * 4, judge=[0.5, -0.5, 0.0, np.nan])
    dissent = 0.5 * np.exp(-1.0)
    expected = [2 * dissent / 3, 2 / 3, (dissent + 1) / 3, dissent]
    assert score_disagreement(alike, None) == pytest.approx(expected)
    assert first_to_last(Strategy.DISAGREEMENT, alike) == [1, 2, 3, 0]
    wide = features([1.0, 2.0, 1.0], spread=[1.0, 2.0, 1.0], entropy=[1.0, 1.0, 3.0])
    assert score_disagreement(wide, None) == pytest.approx([dissent, 2 * dissent, 3 * dissent])


def test_the_factors_hold_with_a_fitted_model_and_without_entropy() -> None:
    rng = np.random.default_rng(2)
    seen = rng.normal(size=(200, 3))
    model = fit_disagreement_model(seen, rng.random(200) < 1 / (1 + np.exp(seen[:, 0])))
    assert model is not None
    asked = features([1.0, 1.0, 1.0], entropy=[0.5, np.nan, 1.5], spread=[0.2, 0.2, 0.1])
    people = model.probability(asked.predictors)
    assert score_disagreement(asked, model) == pytest.approx(people * [0.2, 0.2, 0.1] * np.array([0.5, 1.0, 1.5]))
    assert score_disagreement(features([1.0], entropy=[np.nan]), model) == pytest.approx(model.probability(features([1.0]).predictors))


def test_a_new_order_reads_the_spread_of_groups_and_the_judge(team: Team) -> None:
    """Pairs of the first two of four answers: the spread is that of all four."""
    run = make_run(team)
    rewards = (1.0, 0.0, 3.0, 0.0)
    store(run, started(), *(rollout(1, 0, at, reward=value, rewards={"correct": value, "judge": -value}) for at, value in enumerate(rewards)))
    ids = list(Rollout.across_teams.order_by("sample").values_list("pk", flat=True))
    described, runs = build_item_features(team, [ids[:2], [ids[2], 10**9]], "judge")
    assert runs == {run.pk}
    assert described.gap[0] == 1.0
    assert described.spread[0] == pytest.approx(np.std(rewards))
    assert described.judge[0] == -1.0
    assert np.isnan(described.spread[1])
    assert np.isnan(build_item_features(team, [ids[:2]], "")[0].judge[0])


def test_another_teams_rollouts_describe_nothing(team: Team, stranger: User, queue: Queue) -> None:
    described, runs = build_item_features(stranger.memberships.get().team, [list(queue.items.all()[0].rollouts)], "")
    assert runs == set()
    assert np.isnan(described.gap[0])
