"""Where items stand, what reviewers do, what is taken out and put back, and a random walk over all verbs."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.labelling.labels.answers import AnswerError
from lab.labelling.labels.item_claims import claim_items, release_claims
from lab.labelling.labels.judgements import revise_judgement, save_draft, submit_judgement, undo_last_judgement
from lab.labelling.labels.models import Change, Claim, Item, ItemState, Judgement, Preference, Queue, QueueMember
from lab.labelling.labels.progress import count_queue_progress
from lab.labelling.labels.settlement import (
    SEATED,
    accept_judgement,
    decide_queue_item,
    drop_item,
    restore_dropped_item,
    restore_judgement,
    send_back,
    withdraw_judgement,
)
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.lab.labels.queues import judge, pair_queue
from tests.lab.refusal_checks import refused


def item_of(queue: Queue) -> Item:
    return queue.items.get()


def test_people_who_differ_leave_a_conflict_and_a_decision_settles_it(team: Team, ann: User, bob: User, owner: User) -> None:
    queue = pair_queue(team, items=1, overlap=2)
    judge(queue, ann, "a")
    assert item_of(queue).state == ItemState.OPEN
    judge(queue, bob, "tie")
    item = item_of(queue)
    assert (item.state, item.labels, item.room) == (ItemState.CONFLICT, 2, 0)
    decide_queue_item(item, owner, {"choice": "1", "strength": 3, "rationale": "checked"}, [1, 0], comment="second look")
    item = item_of(queue)
    assert (item.state, item.final["verdict"], item.final["strength"], item.final_by, item.final_comment) == ("settled", "b", 3, owner, "second look")
    assert Preference.across_teams.count() == 1, "what people said stays as it was"
    change = Change.across_teams.get(what="settled")
    assert (change.before, change.after["verdict"], change.comment) == (None, "b", "second look")


def test_who_judged_an_item_does_not_decide_it(team: Team, ann: User, owner: User) -> None:
    queue = pair_queue(team, items=1, overlap=2)
    judge(queue, owner, "a")
    judge(queue, ann, "b")
    with refused(match="labelled this item yourself"):
        decide_queue_item(item_of(queue), owner, {"choice": "1"}, [0, 1])
    with refused(match="are not a reviewer"):
        decide_queue_item(item_of(queue), make_member("cy@example.org", team, Role.ANNOTATOR), {"choice": "1"}, [0, 1])
    assert item_of(queue).state == ItemState.CONFLICT


def test_who_skipped_an_item_may_decide_it(team: Team, owner: User) -> None:
    queue = pair_queue(team, items=1)
    judge(queue, owner, "skip", reason="later")
    decide_queue_item(item_of(queue), owner, {"choice": "tie"}, [0, 1])
    assert item_of(queue).final["verdict"] == "tie"


@pytest.mark.parametrize(
    ("data", "order"), [({"choice": "skip", "reason": "?"}, [0, 1]), ({}, [0, 1]), ({"choice": "1"}, [0, 0]), ({"choice": "1"}, [0])]
)
def test_a_decision_is_an_answer(team: Team, owner: User, data: dict[str, Any], order: list[int]) -> None:
    queue = pair_queue(team, items=1)
    with pytest.raises(AnswerError):
        decide_queue_item(item_of(queue), owner, data, order)
    assert item_of(queue).final is None


def test_reviewers_accept_and_send_back_but_never_their_own(team: Team, ann: User, bob: User, owner: User) -> None:
    queue = pair_queue(team, items=1, reviewed=True)
    said = judge(queue, ann, "a")
    with refused(match="are not a reviewer"):
        accept_judgement(said, bob)
    member = QueueMember.objects.create(queue=queue, user=ann, reviews=True)
    with refused(match="your own"):
        accept_judgement(said, ann)
    QueueMember.across_teams.filter(pk=member.pk).update(user=bob)
    assert accept_judgement(said, bob, "good").state == "accepted"
    with pytest.raises(AnswerError, match="comment"):
        send_back(said, owner, " ")
    assert send_back(said, owner, "the second is shorter").state == "returned"
    assert (item_of(queue).state, item_of(queue).room, Preference.across_teams.count()) == (ItemState.OPEN, 0, 0)
    assert accept_judgement(said, owner).state == "accepted"
    assert (item_of(queue).state, Preference.across_teams.count()) == (ItemState.DONE, 1)
    assert list(Change.across_teams.order_by("pk").values_list("what", flat=True)) == ["submitted", "accepted", "returned", "accepted"]


def test_skips_and_what_was_taken_back_need_no_review(team: Team, ann: User, owner: User) -> None:
    queue = pair_queue(team, items=2)
    said = judge(queue, ann, "a")
    undo_last_judgement(queue, ann)
    with refused(match="withdrawn"):
        accept_judgement(said, owner)
    judge(queue, ann, "b")
    skip = judge(queue, ann, "skip", reason="?")
    with refused(match="skip"):
        accept_judgement(skip, owner)


def test_a_recalled_label_leaves_and_comes_back_as_it_was(team: Team, ann: User, owner: User) -> None:
    queue = pair_queue(team, items=1)
    said = judge(queue, ann, "a")
    accept_judgement(said, owner)
    withdraw_judgement(said, owner, "recalled", "bought labels")
    withdraw_judgement(said, owner, "recalled", "twice")
    item = item_of(queue)
    assert (item.state, item.labels, item.room, Preference.across_teams.count()) == (ItemState.OPEN, 0, 1, 0)
    assert restore_judgement(said, owner).state == "accepted"
    item = item_of(queue)
    assert (item.state, item.labels, item.room, Preference.across_teams.get().chosen) == (ItemState.DONE, 1, 0, item.rollouts[0])
    assert list(Change.across_teams.order_by("pk").values_list("what", flat=True)) == ["submitted", "accepted", "recalled", "restored"]
    with refused():
        restore_judgement(said, owner)


def test_a_restored_label_whose_seat_was_taken_is_one_more(team: Team, ann: User, bob: User, owner: User) -> None:
    queue = pair_queue(team, items=1)
    said = judge(queue, ann, "a")
    withdraw_judgement(said, owner)
    judge(queue, bob, "a")
    restore_judgement(said, owner)
    item = item_of(queue)
    assert (item.labels, item.room, item.state) == (2, 0, ItemState.DONE)


def test_what_its_author_took_back_is_not_restored(team: Team, ann: User, owner: User) -> None:
    queue = pair_queue(team, items=1)
    said = judge(queue, ann, "a")
    undo_last_judgement(queue, ann)
    with refused():
        restore_judgement(said, owner)


def test_a_dropped_item_comes_back_where_it_was(team: Team, ann: User, bob: User, owner: User) -> None:
    queue = pair_queue(team, items=3)
    judge(queue, ann, "a")
    judge(queue, ann, "b")
    first, second, third = queue.items.order_by("place")
    decide_queue_item(second, owner, {"choice": "tie"}, [0, 1])
    for item in (first, second, third):
        drop_item(item, owner, "recalled", "leaked prompt")
    assert set(queue.items.values_list("state", flat=True)) == {"dropped"}
    assert claim_items(queue, bob) == []
    for item in (first, second, third):
        restore_dropped_item(item, owner)
    assert list(queue.items.order_by("place").values_list("state", flat=True)) == ["done", "settled", "open"]
    assert [one.item_id for one in claim_items(queue, bob)] == [third.pk]


@pytest.mark.feature(63)
def test_progress_counts_what_has_its_labels(team: Team, ann: User, bob: User, owner: User) -> None:
    queue = pair_queue(team, items=5, overlap=2)
    for one, other in (("a", "a"), ("a", "b"), ("b", "a")):
        judge(queue, ann, one)
        judge(queue, bob, other)
    judge(queue, ann, "skip", reason="?")
    decide_queue_item(queue.items.order_by("place")[2], owner, {"choice": "1"}, [0, 1])
    drop_item(queue.items.order_by("place")[4], owner)
    found = count_queue_progress(queue, ann)
    assert (found.done, found.total, found.conflicts, found.mine, found.open) == (3, 4, 1, 4, 1)


def test_progress_of_a_large_queue_is_counted_once_in_a_while(team: Team, ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.labelling.labels.progress.LARGE", 2)
    queue = pair_queue(team, items=3)
    assert count_queue_progress(queue).done == 0
    judge(queue, ann, "a")
    assert count_queue_progress(queue).done == 0
    monkeypatch.setattr("lab.labelling.labels.progress.KEPT", 0.0)
    assert count_queue_progress(queue).done == 1


VERBS = st.tuples(
    st.sampled_from(
        ["claim", "submit", "submit", "skip", "undo", "expire", "release", "draft", "accept", "back", "revise", "recall", "decide", "twice"]
    ),
    st.integers(0, 2),
    st.sampled_from(["1", "2", "tie"]),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3), st.lists(VERBS, min_size=5, max_size=25))
def test_whatever_people_do_seats_and_preferences_stay_counted(team: Team, owner: User, overlap: int, moves: list[tuple[str, int, str]]) -> None:
    with transaction.atomic():
        people = [make_member(f"{uuid.uuid4()}@example.org", team, Role.ANNOTATOR) for _ in range(3)]
        queue = pair_queue(team, items=3, overlap=overlap)
        for verb, who, choice in moves:
            with suppress(Refusal):
                move(queue, people[who], owner, verb, choice)
            sound(queue)
        transaction.set_rollback(True)


def move(queue: Queue, user: User, owner: User, verb: str, choice: str) -> None:
    held = Claim.objects.filter(queue=queue, user=user).order_by("pk").first()
    mine = Judgement.objects.filter(queue=queue, user=user).order_by("-changed_at").first()
    key = uuid.uuid4()
    if verb == "claim":
        claim_items(queue, user)
    elif verb in ("submit", "twice", "skip"):
        held = held or next(iter(claim_items(queue, user, hold=1)), None)
        data = {"choice": "skip", "reason": "?"} if verb == "skip" else {"choice": choice}
        for _ in range(2 if verb == "twice" else 1):
            if held:
                submit_judgement(queue, user, held.token, key, data, 1.0)
    elif verb == "undo":
        undo_last_judgement(queue, user)
    elif verb == "expire":
        Claim.objects.filter(queue=queue, user=user).update(expires_at=timezone.now() - timedelta(seconds=1))
    elif verb == "release" and held:
        release_claims(queue, user, [held.token])
    elif verb == "draft" and held:
        save_draft(queue, user, held.token, {"choice": choice})
    elif verb == "decide":
        decide_queue_item(queue.items.order_by("place")[len(user.email) % 3], owner, {"choice": choice}, [0, 1])
    elif mine:
        if verb == "accept":
            accept_judgement(mine, owner)
        elif verb == "back":
            send_back(mine, owner, "look again")
        elif verb == "revise":
            revise_judgement(mine, user, key, {"choice": choice}, 1.0)
        elif verb == "recall":
            withdraw_judgement(mine, owner)


def sound(queue: Queue) -> None:
    for item in queue.items.all():
        judgements = Judgement.objects.filter(item=item).exclude(verdict="skip")
        claims = Claim.objects.filter(item=item, seated=True)
        assert item.room == queue.overlap - judgements.filter(state__in=SEATED).count() - claims.count() >= 0
        assert item.labels == judgements.counting().count() <= queue.overlap
        assert item.state == ItemState.SETTLED or (item.state == ItemState.OPEN) == (item.labels < queue.overlap)
        wanted = [(row.pk, *(item.rollouts if row.verdict == "a" else item.rollouts[::-1])) for row in judgements.counting() if row.verdict in "ab"]
        assert Counter(Preference.objects.filter(item=item).values_list("judgement", "chosen", "rejected")) == Counter(wanted)
        assert not set(claims.values_list("user", flat=True)) & set(judgements.filter(state__in=SEATED).values_list("user", flat=True))
