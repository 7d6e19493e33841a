"""Groups of a training run into queues as they arrive: whole groups only, each once, whoever looks and however the rollouts come."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from lab.data.loop.feed_chores import find_complete_groups, is_in_feed_share, route_feeds
from lab.data.loop.models import Feed
from lab.labelling.labels.models import Kind, Queue, QueueStatus, Strategy
from lab.labelling.labels.new_queues import make_queue
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import Run, Status
from tests.conftest import make_member
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import Rollout as Event

SIZE = 4


@pytest.fixture
def run(team: Team) -> Run:
    spec = {"recipe": "grpo", "training": {"trainer": "grpo", "num_generations": SIZE}}
    return make_run(team, spec=spec, status=Status.RUNNING)


def answers(step: int, group: int, samples: range | list[int] = range(SIZE), **fields: Any) -> list[Event]:
    return [
        rollout(step, group, sample, completion=f"answer {sample} of {step}/{group}", reward=sample / 10, **{"attempt": 1, **fields})
        for sample in samples
    ]


def feed_of(run: Run, kind: Kind = Kind.RANKING, share: float = 1.0, most: int = 100, **settings: Any) -> Feed:
    queue = make_queue(run.team, None, name="live", kind=kind, **settings)
    return Feed.objects.create(team=run.team, run=run, queue=queue, share=share, most=most)


def groups_in(queue: Queue) -> list[tuple[int, int]]:
    """(step, group) of each item, in the order they are served."""
    found = []
    for item in queue.items.order_by("place"):
        [key] = set(Rollout.across_teams.filter(pk__in=item.rollouts).values_list("step", "group"))
        found.append(key)
    return found


def test_whole_groups_become_rankings_in_the_order_they_came(run: Run) -> None:
    feed = feed_of(run)
    store(run, started(), *answers(1, 0), *answers(1, 1, [0, 1]))
    route_feeds()
    assert groups_in(feed.queue) == [(1, 0)]
    store(run, *answers(1, 1, [3, 2]), *answers(2, 0))
    route_feeds()
    assert sorted(groups_in(feed.queue)) == [(1, 0), (1, 1), (2, 0)]
    item = feed.queue.items.order_by("place").first()
    assert item is not None
    assert item.rollouts == list(Rollout.across_teams.filter(step=1, group=0).order_by("sample").values_list("pk", flat=True))
    feed.refresh_from_db()
    assert (feed.routed, feed.stopped_at) == (3, None)
    route_feeds()
    assert feed.queue.items.count() == 3


def test_a_pair_queue_gets_one_pair_a_group_by_its_strategy(run: Run) -> None:
    feed = feed_of(run, Kind.PAIR, strategy=Strategy.LARGEST_GAP)
    store(run, started(), *answers(1, 0), *answers(1, 1))
    route_feeds()
    assert sorted(groups_in(feed.queue)) == [(1, 0), (1, 1)]
    for item in feed.queue.items.all():
        assert sorted(Rollout.across_teams.filter(pk__in=item.rollouts).values_list("sample", flat=True)) == [0, SIZE - 1]


def test_a_share_is_drawn_from_run_step_and_group_alone(run: Run) -> None:
    feed = feed_of(run, share=0.3)
    other = feed_of(run, share=0.3)
    store(run, started())
    for step in range(1, 41):
        store(run, *answers(step, 0), *answers(step, 1))
        if step % 7 == 0:
            route_feeds()
    route_feeds()
    assert set(groups_in(feed.queue)) == set(groups_in(other.queue))
    rows = [(0, 0, "train", step, group) for step in range(1, 41) for group in range(2)]
    assert set(groups_in(feed.queue)) == {row[3:5] for row in rows if is_in_feed_share(feed, row)}
    assert 10 <= feed.queue.items.count() <= 40


def test_it_stops_at_its_limit_with_the_queue_and_with_the_run(run: Run) -> None:
    full, closed, open_ = feed_of(run, most=2), feed_of(run), feed_of(run)
    Queue.across_teams.filter(pk=closed.queue_id).update(status=QueueStatus.CLOSED)
    store(run, started(), *[event for group in range(5) for event in answers(1, group)])
    route_feeds()
    for feed in (full, closed, open_):
        feed.refresh_from_db()
    assert (full.routed, full.stopped_at is None) == (2, False)
    assert (closed.routed, closed.stopped_at is None) == (0, False)
    assert (open_.routed, open_.stopped_at) == (5, None)
    store(run, *answers(2, 0), *answers(2, 1, [0]))
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED)
    route_feeds()
    open_.refresh_from_db()
    assert (open_.routed, open_.stopped_at is None) == (6, False)  # the group that was never whole is left out


def test_a_group_whose_trainer_died_holds_nothing_up(run: Run) -> None:
    feed = feed_of(run)
    store(run, started(), *answers(1, 0, [0, 1]))
    for step in range(2, 6):
        store(run, *answers(step, 0))
    route_feeds()
    assert groups_in(feed.queue) == [(2, 0), (3, 0), (4, 0), (5, 0)]


def test_replayed_steps_are_asked_about_once_they_count(run: Run) -> None:
    feed = feed_of(run)
    store(run, started(), *answers(1, 0), *answers(2, 0))
    store(run, started(attempt=2, from_step=1), *answers(2, 0, attempt=2))
    route_feeds()
    assert sorted(groups_in(feed.queue)) == [(1, 0), (2, 0)]
    attempts = {row.attempt for item in feed.queue.items.all() for row in Rollout.across_teams.filter(pk__in=item.rollouts, step=2)}
    assert attempts == {2}


def test_groups_with_one_text_are_not_asked_about(run: Run) -> None:
    feed = feed_of(run)
    same = [rollout(1, 0, sample, completion="the same") for sample in range(SIZE)]
    two = [rollout(1, 1, sample, completion=f"answer {sample % 2}") for sample in range(SIZE)]
    store(run, started(), *same, *two)
    route_feeds()
    assert [len(item.rollouts) for item in feed.queue.items.all()] == [2]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1)), min_size=1, max_size=18), st.lists(st.integers(1, 5), min_size=1, max_size=18))
def test_no_order_of_arrival_loses_or_doubles_a_group(keys: list[tuple[int, int]], looks: list[int]) -> None:
    """Rollouts of groups of three in any order, looked at in any portions: what is whole in the end was given exactly once."""
    rows: list[Any] = []
    samples: dict[tuple[int, int], int] = {}
    for pk, key in enumerate(keys, 1):
        if (sample := samples.get(key, 0)) < 3:
            samples[key] = sample + 1
            rows.append((pk, None, "train", *key, sample))
    given_, seen_to, until = [], 0, 0
    for portion in [*looks, len(rows)]:
        until = min(len(rows), until + portion)
        found = find_complete_groups([row for row in rows[:until] if row[0] > seen_to], 3, ended=until == len(rows))
        seen_to = max(seen_to, found.seen_to)
        given_ += [group[0][3:5] for group in found.groups]
    newest_first = sorted(given_)
    assert newest_first == sorted(key for key, count in samples.items() if count == 3)


@pytest.mark.django_db(transaction=True)
def test_workers_that_look_at_the_same_moment_route_once(team: Team) -> None:
    run = make_run(team, spec={"recipe": "grpo", "training": {"trainer": "grpo", "num_generations": SIZE}}, status=Status.RUNNING)
    feed = feed_of(run)
    store(run, started(), *[event for group in range(30) for event in answers(1, group)])
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        try:
            route_feeds()
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    feed.refresh_from_db()
    assert feed.routed == feed.queue.items.count() == len(set(groups_in(feed.queue))) == 30


# The page


def form(**values: Any) -> dict[str, Any]:
    return {"queue": "new", "name": "live", "kind": "pair", "strategy": "random", "overlap": 2, "share": 50, "most": 10, "token": "t", **values}


def test_a_lead_starts_and_stops_a_feed(client: Client, owner: User, run: Run) -> None:
    client.force_login(owner)
    store(run, started(), *answers(1, 0))
    address = reverse("run-feeds", args=[run.pk])
    assert "Route groups into a queue" in client.get(address).content.decode()
    assert client.post(address, form()).status_code == 302
    assert client.post(address, form()).status_code == 302  # the same form twice
    feed = Feed.across_teams.get()
    assert (feed.share, feed.most, feed.seen_to, feed.team) == (0.5, 10, run.last_rollout, run.team)
    assert (feed.queue.name, feed.queue.kind, feed.queue.overlap, feed.queue.strategy) == ("live", "pair", 2, "random")
    assert "live" in client.get(address).content.decode()
    taken = client.post(address, form(queue=feed.queue_id, token="u"))
    assert taken.status_code == 422
    assert "already" in taken.content.decode()
    client.post(reverse("feed-stop", args=[feed.pk]))
    feed.refresh_from_db()
    assert feed.stopped_at is not None
    client.post(address, form(queue=feed.queue_id, most=5, token="v"))  # goes on where it was
    feed.refresh_from_db()
    assert (feed.stopped_at, feed.most, Feed.across_teams.count()) == (None, 5, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("share", "0"), ("share", "x"), ("most", "-1"), ("queue", "999"), ("name", "  "), ("overlap", ""), ("kind", "clearer")],
)
def test_a_value_that_cannot_be_used_is_named_and_nothing_is_lost(client: Client, owner: User, run: Run, field: str, value: str) -> None:
    client.force_login(owner)
    answer = client.post(reverse("run-feeds", args=[run.pk]), form(**{"name": "kept words", field: value}))
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert field == "name" or "kept words" in answer.content.decode()
    assert Feed.across_teams.count() == Queue.across_teams.count() == 0


def test_only_leads_route_and_only_running_groups_are_routed(client: Client, owner: User, run: Run) -> None:
    address = reverse("run-feeds", args=[run.pk])
    client.force_login(make_member("ann@example.org", run.team, Role.ANNOTATOR))
    assert client.get(address).status_code == 403
    client.force_login(make_member("viewer@example.org", run.team, Role.VIEWER))
    assert client.get(address).status_code == 200
    assert client.post(address, form()).status_code == 403
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED)
    client.force_login(owner)
    refused = client.post(address, form())
    assert refused.status_code == 422
    assert "no more groups arrive" in refused.content.decode()
