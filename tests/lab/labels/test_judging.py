"""What is recorded when a person labels, takes back and revises."""

from __future__ import annotations

import random
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from lab.labelling.labels.answers import AnswerError, as_shown
from lab.labelling.labels.item_claims import claim_items
from lab.labelling.labels.judgements import ClaimExpired, revise_judgement, save_draft, submit_judgement, undo_last_judgement
from lab.labelling.labels.models import Change, Claim, Item, ItemState, Judgement, Kind, Preference, Queue, QueueMember, QueueStatus, SkipHandling
from lab.labelling.labels.settlement import accept_judgement, decide_queue_item, drop_item, send_back
from lab.teams.accounts.models import Team, User
from tests.lab.labels.queues import group_queue, judge, pair_queue
from tests.lab.refusal_checks import refused


def send(queue: Queue, user: User, held: Claim, choice: str = "1", **answer: Any) -> Judgement:
    return submit_judgement(queue, user, held.token, uuid.uuid4(), {"choice": choice, **answer}, 1.0)


def what(item: Item | int) -> list[str]:
    return list(Change.objects.filter(item=item).order_by("pk").values_list("what", flat=True))


@pytest.mark.feature(54)
def test_a_pair_is_recorded_in_stored_places_whatever_side_it_was_shown_on(team: Team, ann: User) -> None:
    queue = pair_queue(team, items=20)
    orders = set()
    for _ in range(20):
        [held] = claim_items(queue, ann, hold=1)
        orders.add(tuple(held.order))
        said = submit_judgement(queue, ann, held.token, uuid.uuid4(), {"choice": "1", "strength": 2}, 3.5)
        better = held.item.rollouts[held.order[0]]
        [preference] = Preference.objects.filter(judgement=said)
        assert (preference.chosen, said.verdict, said.strength, said.seconds) == (better, "ab"[held.order[0]], 2, 3.5)
        assert said.order == held.order
    assert orders == {(0, 1), (1, 0)}
    assert set(queue.items.values_list("room", "labels", "state")) == {(0, 1, ItemState.DONE)}
    assert not Claim.across_teams.exists()


@pytest.mark.feature(54)
@pytest.mark.parametrize(("choice", "verdict"), [("tie", "tie"), ("bad", "bad")])
def test_ties_and_both_bad_prefer_nothing(team: Team, ann: User, choice: str, verdict: str) -> None:
    said = judge(pair_queue(team), ann, choice, strength=3)
    assert (said.verdict, said.strength, Preference.across_teams.count()) == (verdict, None, 0)


def test_a_ranking_of_five_with_two_ties_writes_eight_preferences(team: Team, ann: User) -> None:
    queue = group_queue(team, Kind.RANKING, items=1, answers=5)
    [held] = claim_items(queue, ann, hold=1)
    shown = {stored: place for place, stored in enumerate(held.order)}
    tiers = [[shown[0], shown[1]], [shown[2]], [shown[4], shown[3]]]
    said = submit_judgement(queue, ann, held.token, uuid.uuid4(), {"tiers": tiers}, 1.0)
    a, b, c, d, e = held.item.rollouts
    assert said.tiers == [[0, 1], [2], [3, 4]]
    found = set(Preference.across_teams.values_list("chosen", "rejected"))
    assert found == {(a, c), (b, c), (a, d), (a, e), (b, d), (b, e), (c, d), (c, e)}
    assert [sorted(tier) for tier in as_shown(said, held.order)["tiers"]] == [sorted(tier) for tier in tiers]


def test_of_two_pairs_the_clearer_is_recorded_as_stored(team: Team, ann: User) -> None:
    random.seed(1)  # orders with either pair in front
    queue = group_queue(team, Kind.CLEARER, items=8, answers=4)
    firsts = set()
    for _ in range(8):
        [held] = claim_items(queue, ann, hold=1)
        said = send(queue, ann, held, "1")
        firsts.add(said.verdict)
        assert said.verdict == ("first" if held.order[0] in (0, 1) else "second")
        assert as_shown(said, held.order)["choice"] == "1"
    assert firsts == {"first", "second"}
    assert not Preference.across_teams.exists()


def test_sending_the_same_answer_again_changes_nothing(team: Team, ann: User) -> None:
    queue = pair_queue(team)
    [held] = claim_items(queue, ann, hold=1)
    key = uuid.uuid4()
    first = submit_judgement(queue, ann, held.token, key, {"choice": "1"}, 1.0)
    assert submit_judgement(queue, ann, held.token, key, {"choice": "2"}, 9.0).pk == first.pk
    first.refresh_from_db()
    assert (first.seconds, what(held.item)) == (1.0, ["submitted"])


def test_another_answer_to_a_submitted_item_is_not_taken(team: Team, ann: User) -> None:
    queue = pair_queue(team)
    [held] = claim_items(queue, ann, hold=1)
    send(queue, ann, held)
    with pytest.raises(ClaimExpired):
        send(queue, ann, held, "2")
    assert Judgement.across_teams.count() == 1


def test_a_key_of_somebody_elses_answer_gives_nothing_away(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team)
    said = judge(queue, ann, "a")
    [held] = claim_items(queue, bob, hold=1)
    with pytest.raises(AnswerError) as error:
        submit_judgement(queue, bob, held.token, said.key, {"choice": "1"}, 1.0)
    assert error.value.problems[0].field == "key"
    assert Judgement.across_teams.count() == 1


def test_a_late_answer_is_taken_while_nobody_has_the_seat(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=2)
    held = claim_items(queue, ann)
    Claim.across_teams.update(expires_at=timezone.now() - timedelta(hours=1))
    claim_items(queue, bob, hold=1)  # takes the first, and the second lost its seat
    assert Claim.across_teams.filter(seated=True).count() == 1
    send(queue, ann, held[1])
    with pytest.raises(ClaimExpired) as error:
        send(queue, ann, held[0], rationale="long thought")
    assert (error.value.by, error.value.item) == (bob, held[0].item)
    assert Claim.across_teams.get(pk=held[0].pk).draft == {"choice": "1", "rationale": "long thought"}
    with pytest.raises(ClaimExpired):
        send(queue, ann, held[0], rationale="long thought")
    assert what(held[0].item) == ["expired"]
    assert Item.across_teams.get(pk=held[0].item_id).labels == 0


def test_who_judged_the_item_meanwhile_is_named(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=1)
    [held] = claim_items(queue, ann)
    Claim.across_teams.update(expires_at=timezone.now() - timedelta(hours=1))
    judge(queue, bob, "b")
    with pytest.raises(ClaimExpired) as error:
        send(queue, ann, held)
    assert error.value.by == bob


@pytest.mark.parametrize("status", [QueueStatus.PAUSED, QueueStatus.CLOSED])
def test_an_answer_to_a_queue_that_is_not_open_is_kept_as_draft(team: Team, ann: User, status: str) -> None:
    queue = pair_queue(team)
    [held] = claim_items(queue, ann, hold=1)
    Queue.across_teams.filter(pk=queue.pk).update(status=status)
    with refused():
        send(queue, ann, held, rationale="kept")
    assert Claim.across_teams.get().draft["rationale"] == "kept"
    assert not Judgement.across_teams.exists()
    Queue.across_teams.filter(pk=queue.pk).update(status=QueueStatus.OPEN)
    assert send(queue, ann, held, rationale="kept").rationale == "kept"


def test_dropped_and_decided_items_take_no_answers(team: Team, ann: User, owner: User) -> None:
    queue = pair_queue(team, items=2)
    first, second = claim_items(queue, ann)
    drop_item(first.item, owner)
    decide_queue_item(second.item, owner, {"choice": "1"}, [0, 1])
    for held, by in ((first, None), (second, owner)):
        with pytest.raises(ClaimExpired) as error:
            send(queue, ann, held)
        assert error.value.by == by
    assert claim_items(queue, ann) == []


def test_drafts_are_kept_and_come_with_the_claim(team: Team, ann: User) -> None:
    queue = pair_queue(team)
    [held] = claim_items(queue, ann, hold=1)
    save_draft(queue, ann, held.token, {"choice": "2", "rationale": "so far"})
    assert claim_items(queue, ann, hold=1)[0].draft == {"choice": "2", "rationale": "so far"}
    with pytest.raises(ClaimExpired):
        save_draft(queue, ann, uuid.uuid4(), {})


def test_a_draft_that_is_too_late_is_kept_all_the_same(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=1)
    [held] = claim_items(queue, ann)
    Claim.across_teams.update(expires_at=timezone.now() - timedelta(hours=1))
    claim_items(queue, bob)
    with pytest.raises(ClaimExpired) as error:
        save_draft(queue, ann, held.token, {"rationale": "so far"})
    assert error.value.by == bob
    assert Claim.across_teams.get(pk=held.pk).draft == {"rationale": "so far"}


def test_a_draft_takes_a_free_seat_again(team: Team, ann: User, bob: User) -> None:
    queue = pair_queue(team, items=2)
    held = claim_items(queue, ann)
    Claim.across_teams.update(expires_at=timezone.now() - timedelta(hours=1))
    claim_items(queue, bob, hold=1)
    save_draft(queue, ann, held[1].token, {"rationale": "still here"})
    assert [one.pk for one in claim_items(queue, ann, hold=1)] == [held[1].pk]


@pytest.mark.feature(61)
def test_undo_gives_the_item_back_with_the_answer_and_the_sides(team: Team, ann: User) -> None:
    queue = pair_queue(team)
    [held] = claim_items(queue, ann, hold=1)
    said = send(queue, ann, held, "2", strength=1, rationale="because")
    claim_items(queue, ann)
    back = undo_last_judgement(queue, ann)
    assert (back.item_id, back.order, back.draft) == (held.item_id, held.order, {"choice": "2", "strength": 1, "rationale": "because"})
    assert claim_items(queue, ann)[0].pk == back.pk, "it comes before what was fetched ahead"
    said.refresh_from_db()
    assert (said.state, Preference.across_teams.count()) == ("withdrawn", 0)
    again = send(queue, ann, back, "1")
    assert again.pk == said.pk
    assert what(held.item) == ["submitted", "undone", "submitted"]
    assert [change.before and change.before["verdict"] for change in Change.across_teams.order_by("pk")][1:] == [said.verdict, said.verdict]


def test_the_key_of_an_undone_answer_may_come_again_late_or_anew(team: Team, ann: User) -> None:
    queue = pair_queue(team)
    [held] = claim_items(queue, ann, hold=1)
    key = uuid.uuid4()
    said = submit_judgement(queue, ann, held.token, key, {"choice": "1"}, 1.0)
    back = undo_last_judgement(queue, ann)
    late = submit_judgement(queue, ann, held.token, key, {"choice": "1"}, 1.0)
    assert (late.pk, late.state) == (said.pk, "withdrawn"), "a repeated request does not bring back what was undone"
    assert submit_judgement(queue, ann, back.token, key, {"choice": "1"}, 1.0).state == "submitted"


def test_undo_goes_back_through_time_not_through_ids(team: Team, ann: User) -> None:
    queue = pair_queue(team, items=3)
    first, second, third = (judge(queue, ann, "a") for _ in range(3))
    backs = [undo_last_judgement(queue, ann), undo_last_judgement(queue, ann)]
    assert [back.item_id for back in backs] == [third.item_id, second.item_id]
    for back in backs:
        send(queue, ann, back)
    assert undo_last_judgement(queue, ann).item_id == second.item_id
    assert undo_last_judgement(queue, ann).item_id == third.item_id
    assert undo_last_judgement(queue, ann).item_id == first.item_id
    with refused(409, "nothing-to-undo"):
        undo_last_judgement(queue, ann)


def test_undo_stops_where_a_reviewer_has_spoken(team: Team, ann: User, owner: User) -> None:
    queue = pair_queue(team)
    said = judge(queue, ann, "a")
    accept_judgement(said, owner)
    with refused(409, "reviewed", match="accepted"):
        undo_last_judgement(queue, ann)
    send_back(said, owner, "look again")
    with refused(409, "reviewed", match="sent your last label back"):
        undo_last_judgement(queue, ann)


def test_a_dropped_item_comes_back_when_its_skip_is_undone(team: Team, ann: User, owner: User) -> None:
    queue = pair_queue(team, items=2, skipping=SkipHandling.DROP)
    said = judge(queue, ann, "skip", reason="broken")
    item = queue.items.get(pk=said.item_id)
    assert (item.state, said.rationale, what(item)) == (ItemState.DROPPED, "broken", ["skipped"])
    back = undo_last_judgement(queue, ann)
    assert back.draft == {"choice": "skip", "reason": "broken"}
    assert queue.items.get(pk=said.item_id).state == ItemState.OPEN
    send(queue, ann, back, "skip", reason="broken")
    Change.objects.create(item=item, user=owner, what="recalled")
    with refused(409, "nothing-to-undo"):
        undo_last_judgement(queue, ann)


def test_where_skipping_is_not_allowed_it_is_refused_in_words(team: Team, ann: User) -> None:
    queue = pair_queue(team, skipping=SkipHandling.NEVER)
    with pytest.raises(AnswerError, match="not allowed"):
        judge(queue, ann, "skip", reason="?")
    with pytest.raises(AnswerError, match="Give a reason"):
        judge(pair_queue(team), ann, "skip", reason="  ")


def test_what_was_sent_back_is_revised_and_counts_again(team: Team, ann: User, owner: User) -> None:
    queue = pair_queue(team)
    said = judge(queue, ann, "a", rationale="first")
    send_back(said, owner, "read the guidelines")
    item = queue.items.get(pk=said.item_id)
    assert (item.state, item.labels, item.room, Preference.across_teams.count()) == (ItemState.OPEN, 0, 0, 0)
    key = uuid.uuid4()
    other = str(said.order.index(1) + 1)
    revised = revise_judgement(said, ann, key, {"choice": other, "rationale": "second"}, 4.0)
    assert (revised.verdict, revised.state, revised.seconds) == ("b", "submitted", 5.0)
    assert revise_judgement(said, ann, key, {"choice": "tie"}, 4.0).verdict == "b"
    item.refresh_from_db()
    assert (item.state, item.labels, Preference.across_teams.get().chosen) == (ItemState.DONE, 1, item.rollouts[1])
    assert what(item) == ["submitted", "returned", "revised"]
    change = Change.across_teams.get(what="revised")
    assert (change.before["rationale"], change.after["rationale"]) == ("first", "second")


def test_nobody_revises_anothers_label_nor_an_accepted_one(team: Team, ann: User, bob: User, owner: User) -> None:
    queue = pair_queue(team)
    said = judge(queue, ann, "a")
    with refused():
        revise_judgement(said, bob, uuid.uuid4(), {"choice": "1"}, 1.0)
    accept_judgement(said, owner)
    with refused(409, "reviewed"):
        revise_judgement(said, ann, uuid.uuid4(), {"choice": "1"}, 1.0)


def gold_queue(team: Team, **settings: Any) -> Queue:
    queue = pair_queue(team, items=8, min_trust=0.6, trust_after=3, **settings)
    queue.items.update(gold={"verdict": "a"})
    return queue


def test_a_labeller_who_misses_too_much_of_what_is_known_is_paused(team: Team, ann: User, bob: User) -> None:
    queue = gold_queue(team)
    claim_items(queue, ann)
    for verdict in "abb":
        assert not QueueMember.across_teams.exists()
        judge(queue, ann, verdict)
    member = QueueMember.across_teams.get()
    assert (member.user, member.labels) == (ann, True)
    assert member.paused_reason == "You agreed with 1 of 3 gold items; this queue requires 60%."
    with refused(match="1 of 3"):
        claim_items(queue, ann)
    assert not Claim.across_teams.filter(user=ann, seated=True).exists()
    assert [one.item.place for one in claim_items(queue, bob)] == [4, 5]


def test_one_wrong_answer_of_many_pauses_nobody_and_skips_do_not_count(team: Team, ann: User) -> None:
    queue = gold_queue(team)
    for verdict in "aab":
        judge(queue, ann, verdict)
    judge(queue, ann, "skip", reason="?")
    assert not QueueMember.across_teams.exists()
    assert len(claim_items(queue, ann)) == 2


def test_seconds_must_be_a_number_of_seconds(team: Team, ann: User) -> None:
    queue = pair_queue(team)
    [held] = claim_items(queue, ann, hold=1)
    for wrong in (-1, float("nan"), float("inf"), "3", True, None):
        with pytest.raises(AnswerError) as error:
            submit_judgement(queue, ann, held.token, uuid.uuid4(), {"choice": "1"}, wrong)  # type: ignore[arg-type]
        assert error.value.problems[0].field == "seconds"
    assert submit_judgement(queue, ann, held.token, uuid.uuid4(), {"choice": "1"}, 10**9).seconds == 86_400
