"""Who gets which item: in order, never one seat twice, back when the time has run out."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from lab.labelling.labels.item_claims import claim_items, free_claims, release_claims, renew_claims, shuffle_answer_order, why_nothing
from lab.labelling.labels.judgements import save_draft
from lab.labelling.labels.models import Claim, Kind, Queue, QueueMember, QueueStatus
from lab.teams.accounts.models import Membership, Role, Team, User
from tests.conftest import make_member
from tests.lab.labels.queues import group_queue, judge, pair_queue
from tests.lab.refusal_checks import refused


def expire(*claims: Claim) -> None:
    Claim.across_teams.filter(pk__in=[one.pk for one in claims]).update(expires_at=timezone.now() - timedelta(seconds=1))


def places(claims: list[Claim]) -> list[float]:
    return [one.item.place for one in claims]


def test_items_come_in_order_and_nobody_gets_anothers(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=5)
    assert places(claim_items(queue, ann)) == [1, 2]
    assert places(claim_items(queue, bob)) == [3, 4]
    assert places(claim_items(queue, ann)) == [1, 2], "asking again gives what one holds"
    assert places(claim_items(queue, ann, hold=5)) == [1, 2, 5]
    assert set(queue.items.values_list("room", flat=True)) == {0}


def test_asking_again_does_not_extend(team: Team, ann: User) -> None:
    queue = pair_queue(team)
    before = [one.expires_at for one in claim_items(queue, ann)]
    assert [one.expires_at for one in claim_items(queue, ann)] == before


@pytest.mark.feature(62)
def test_with_overlap_each_item_goes_to_so_many_different_people(team: Team, ann: User, bob: User, owner: User) -> None:
    queue = pair_queue(team, items=1, overlap=2)
    judge(queue, ann, "a")
    assert claim_items(queue, ann) == []
    assert len(claim_items(queue, bob)) == 1
    assert claim_items(queue, owner) == []
    judge(queue, bob, "a")
    item = queue.items.get()
    assert (item.room, item.labels, item.state) == (0, 2, "done")


@pytest.mark.feature(62)
def test_an_expired_claim_goes_to_who_asks_next(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=1)
    [mine] = claim_items(queue, ann)
    assert claim_items(queue, bob) == []
    expire(mine)
    assert places(claim_items(queue, bob)) == [1]
    assert claim_items(queue, ann) == []


def test_who_comes_back_gets_the_item_with_draft_sides_and_token_as_they_were(team: Team, ann: User) -> None:
    queue = pair_queue(team, items=1)
    [mine] = claim_items(queue, ann)
    save_draft(queue, ann, mine.token, {"rationale": "half a thought"})
    expire(mine)
    [again] = claim_items(queue, ann)
    assert (again.token, again.order, again.draft) == (mine.token, mine.order, {"rationale": "half a thought"})
    assert again.expires_at > timezone.now()


def test_renewing_extends_and_takes_a_free_seat_again(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=3)
    first, second = claim_items(queue, ann)
    expire(first, second)
    assert places(claim_items(queue, bob, hold=1)) == [1]
    held = renew_claims(queue, ann, [first.token, second.token, uuid.uuid4()])
    assert list(held) == [second.token]
    assert held[second.token] > timezone.now() + timedelta(minutes=queue.lock_minutes - 1)
    assert places(claim_items(queue, ann, hold=1)) == [2]


def test_released_items_go_to_others_and_a_draft_waits_for_its_author(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=2)
    first, second = claim_items(queue, ann)
    save_draft(queue, ann, first.token, {"choice": "1"})
    assert release_claims(queue, ann, [first.token, second.token]) == 2
    assert release_claims(queue, ann, [first.token]) == 0
    assert set(queue.items.values_list("room", flat=True)) == {1}
    assert Claim.across_teams.filter(user=ann).count() == 1, "only the draft is left"
    [taken] = claim_items(queue, bob, hold=1)
    assert taken.draft == {}
    release_claims(queue, bob, [taken.token])
    assert claim_items(queue, ann, hold=1)[0].draft == {"choice": "1"}


def test_nobody_releases_or_renews_for_another(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team)
    tokens = [one.token for one in claim_items(queue, ann)]
    assert release_claims(queue, bob, tokens) == 0
    assert renew_claims(queue, bob, tokens) == {}
    assert len(claim_items(queue, ann)) == 2


def refusal(queue: Queue, user: User) -> str:
    with refused() as error:
        claim_items(queue, user)
    assert error.value.fix
    return error.value.message


def test_paused_and_closed_queues_give_nothing(team: Team, ann: User) -> None:
    queue = pair_queue(team)
    for status in (QueueStatus.PAUSED, QueueStatus.CLOSED):
        Queue.across_teams.filter(pk=queue.pk).update(status=status)
        assert status in refusal(queue, ann), "the queue's row is asked, not what the caller holds"


def test_a_pause_of_the_queue_takes_nothing_from_who_holds_items(team: Team, ann: User) -> None:
    queue = pair_queue(team)
    held = claim_items(queue, ann)
    Queue.across_teams.filter(pk=queue.pk).update(status=QueueStatus.PAUSED)
    refusal(queue, ann)
    Queue.across_teams.filter(pk=queue.pk).update(status=QueueStatus.OPEN)
    assert [one.token for one in claim_items(queue, ann)] == [one.token for one in held]


def test_viewers_and_strangers_get_nothing(team: Team, stranger: User) -> None:
    queue = pair_queue(team)
    assert "viewer" in refusal(queue, make_member("eye@example.org", team, Role.VIEWER))
    assert "no longer in this team" in refusal(queue, stranger)


def test_assigned_queues_are_for_who_is_assigned(team: Team, ann: User, bob: User, owner: User) -> None:
    queue = pair_queue(team, assigned_only=True)
    QueueMember.objects.create(queue=queue, user=ann)
    QueueMember.objects.create(queue=queue, user=bob, labels=False, reviews=True)
    assert len(claim_items(queue, ann)) == 2
    assert "not assigned" in refusal(queue, bob)
    assert "not assigned" in refusal(queue, owner)


def test_a_reviewer_who_does_not_label_gets_nothing_of_an_open_pool_either(team: Team, bob: User) -> None:
    queue = pair_queue(team)
    QueueMember.objects.create(queue=queue, user=bob, labels=False, reviews=True)
    assert "not assigned" in refusal(queue, bob)


def test_the_seats_of_who_left_are_freed_by_whoever_asks(team: Team, ann: User, bob: User, owner: User) -> None:
    queue = pair_queue(team, items=2)
    claim_items(queue, ann, hold=1)
    claim_items(queue, bob, hold=1)
    User.objects.filter(pk=ann.pk).update(is_active=False)
    Membership.objects.filter(user=bob).delete()
    assert places(claim_items(queue, owner)) == [1, 2]
    assert "deactivated" in refusal(queue, ann)


def test_a_paused_labeller_loses_their_seats_at_once(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=1)
    claim_items(queue, ann)
    QueueMember.objects.create(queue=queue, user=ann, paused_at=timezone.now(), paused_reason="Too fast to have read it.")
    assert refusal(queue, ann) == "Too fast to have read it."
    assert queue.items.get().room == 1
    assert len(claim_items(queue, bob)) == 1


def test_claims_can_be_freed_for_somebody(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team)
    claim_items(queue, ann)
    claim_items(queue, bob, hold=1)
    free_claims(queue, ann)
    assert list(queue.items.order_by("place").values_list("room", flat=True)) == [1, 1, 0]


def test_why_there_is_nothing_is_said_in_words(team: Team, ann: User, bob: User) -> None:
    empty = pair_queue(team, items=0)
    assert "no items" in why_nothing(empty, ann).reason
    queue = pair_queue(team, items=1, overlap=2)
    judge(queue, ann, "a")
    assert "You have labelled every item" in why_nothing(queue, ann).reason
    judge(queue, bob, "skip", reason="not my language")
    assert "labelled or skipped" in why_nothing(queue, bob).reason
    single = pair_queue(team, items=1)
    claim_items(single, bob)
    why = why_nothing(single, ann)
    assert "assigned to others" in why.reason
    assert "15 min" in why.fix
    judge(single, bob, "b")
    assert "Every item" in why_nothing(single, ann).reason


def test_nobody_gets_what_they_skipped_and_others_do(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=1)
    judge(queue, ann, "skip", reason="cannot tell")
    assert claim_items(queue, ann) == []
    assert len(claim_items(queue, bob)) == 1


@given(st.sampled_from(list(Kind)), st.integers(1, 26))
def test_an_order_is_a_permutation_and_pairs_stay_together(kind: Kind, count: int) -> None:
    count = 4 if kind == Kind.CLEARER else count
    order = shuffle_answer_order(kind, count)
    assert sorted(order) == list(range(count))
    if kind == Kind.CLEARER:
        assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 1}), frozenset({2, 3})}


@pytest.mark.feature(59)
def test_every_order_of_two_pairs_happens(team: Team) -> None:
    assert len({tuple(shuffle_answer_order(Kind.CLEARER, 4)) for _ in range(500)}) == 8


def test_a_ranking_is_shown_in_any_order(team: Team, ann: User) -> None:
    queue = group_queue(team, Kind.RANKING, items=6, answers=5)
    assert len({tuple(one.order) for one in claim_items(queue, ann, hold=6)}) > 1
