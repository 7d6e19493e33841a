"""Many people at once, each on a database connection of their own: no seat twice, nothing lost, nothing doubled."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from lab.labelling.labels.item_claims import claim_items, free_claims
from lab.labelling.labels.judgements import ClaimExpired, submit_judgement, undo_last_judgement
from lab.labelling.labels.models import Change, Claim, Item, Judgement, Preference, Queue
from lab.labelling.labels.pages import settings as pages
from lab.labelling.labels.settlement import SEATED, accept_judgement, decide_queue_item, lock_item
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Membership, Role, Team, User
from tests.conftest import make_member
from tests.lab.labels.queues import judge, pair_queue
from tests.lab.refusal_checks import is_refusal

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """Runs the jobs in threads that start together, as many connections at a time as the pool has; what each returned or raised."""
    gate, results = threading.Barrier(len(jobs)), [None] * len(jobs)

    def work(number: int) -> None:
        try:
            gate.wait(60)
            results[number] = jobs[number]()
        except Exception as error:
            results[number] = error  # type: ignore[call-overload]
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


def people(team: Team, count: int) -> list[User]:
    users = User.objects.bulk_create(User(email=f"person{number}@example.org", password="!") for number in range(count))
    Membership.objects.bulk_create(Membership(team=team, user=user, role=Role.ANNOTATOR) for user in users)
    return users


def sound(queue: Queue) -> None:
    """What holds whenever nobody is in the middle of something."""
    for item in Item.objects.filter(queue=queue):
        judgements = Judgement.objects.filter(item=item).exclude(verdict="skip")
        seats = judgements.filter(state__in=SEATED).count()
        claims = Claim.objects.filter(item=item, seated=True).count()
        assert item.room == queue.overlap - seats - claims >= 0
        assert item.labels == judgements.counting().count() <= queue.overlap
        wanted = {row.pk for row in judgements.counting() if row.verdict in "ab"}
        assert Counter(Preference.objects.filter(item=item).values_list("judgement", flat=True)) == Counter(wanted)


@pytest.mark.parametrize("overlap", [1, 3])
def test_fifty_people_asking_at_once_never_share_a_seat(team: Team, overlap: int) -> None:
    queue = pair_queue(team, items=60, overlap=overlap)
    users = people(team, 50)
    found = at_once(*(lambda user=user: claim_items(queue, user, hold=2) for user in users))
    taken = Counter(one.item_id for claims in found for one in claims)
    assert max(taken.values()) <= overlap
    assert sum(taken.values()) == Claim.across_teams.count() == min(100, 60 * overlap)
    sound(queue)


def test_an_answer_sent_twice_at_once_is_recorded_once(team: Team) -> None:
    queue = pair_queue(team)
    [user] = people(team, 1)
    [held] = claim_items(queue, user, hold=1)
    key = uuid.uuid4()
    sent = lambda: submit_judgement(queue, user, held.token, key, {"choice": "1"}, 1.0)  # noqa: E731
    results = at_once(*[sent] * 4)
    assert {row.pk for row in results} == {Judgement.across_teams.get().pk}
    assert (Preference.across_teams.count(), Change.across_teams.filter(what="submitted").count()) == (1, 1)
    sound(queue)


def test_two_windows_with_different_answers_record_one_and_tell_the_other(team: Team) -> None:
    queue = pair_queue(team)
    [user] = people(team, 1)
    [held] = claim_items(queue, user, hold=1)
    results = at_once(*(lambda choice=choice: submit_judgement(queue, user, held.token, uuid.uuid4(), {"choice": choice}, 1.0) for choice in "12"))
    assert sorted(type(result).__name__ for result in results) == ["ClaimExpired", "Judgement"]
    sound(queue)


def test_a_late_answer_against_somebody_who_takes_the_seat(team: Team) -> None:
    """Either the answer comes first and nobody gets the item, or the seat goes first and the answer is kept as a draft."""
    ann, bob = people(team, 2)
    seen: Counter[str] = Counter()
    for _ in range(8):
        queue = pair_queue(team, items=1)
        [held] = claim_items(queue, ann, hold=1)
        Claim.across_teams.filter(pk=held.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
        late = lambda: submit_judgement(queue, ann, held.token, uuid.uuid4(), {"choice": "1", "rationale": "mine"}, 1.0)  # noqa: B023, E731
        said, taken = at_once(late, lambda: claim_items(queue, bob))  # noqa: B023
        seen[type(said).__name__] += 1
        if isinstance(said, ClaimExpired):
            assert (said.by, len(taken)) == (bob, 1)
            assert Claim.across_teams.get(pk=held.pk).draft["rationale"] == "mine"
            assert Change.objects.get(item=held.item, what="expired").after["answer"]["rationale"] == "mine"
        else:
            assert (said.verdict in "ab", taken) == (True, [])
        sound(queue)
    assert set(seen) <= {"ClaimExpired", "Judgement"}


def test_undo_never_lets_anybody_slip_into_the_seat(team: Team) -> None:
    ann, bob = people(team, 2)
    for _ in range(5):
        queue = pair_queue(team, items=1)
        judge(queue, ann, "a")
        back, taken = at_once(lambda: undo_last_judgement(queue, ann), lambda: claim_items(queue, bob))  # noqa: B023
        assert (back.item_id, taken) == (queue.items.get().pk, [])
        sound(queue)


def test_undoing_a_skip_against_somebody_who_takes_the_item(team: Team) -> None:
    ann, bob = people(team, 2)
    for _ in range(5):
        queue = pair_queue(team, items=1)
        judge(queue, ann, "skip", reason="?")
        back, taken = at_once(lambda: undo_last_judgement(queue, ann), lambda: claim_items(queue, bob))  # noqa: B023
        assert is_refusal(back, 409, "nothing-to-undo") == bool(taken)
        sound(queue)


def test_undoing_twice_at_once_takes_back_two_or_says_there_is_one(team: Team) -> None:
    queue = pair_queue(team, items=1)
    [ann] = people(team, 1)
    judge(queue, ann, "a")
    results = at_once(lambda: undo_last_judgement(queue, ann), lambda: undo_last_judgement(queue, ann))
    assert sorted(type(result).__name__ for result in results) == ["Claim", "Refusal"]
    assert any(is_refusal(result, 409, "nothing-to-undo") for result in results)
    sound(queue)


def test_who_is_deactivated_while_they_submit_is_in_or_out_but_not_half(team: Team) -> None:
    users = people(team, 6)
    queue = pair_queue(team, items=6)
    held = [claim_items(queue, user, hold=1)[0] for user in users]
    sends = [
        lambda user=user, mine=mine: submit_judgement(queue, user, mine.token, uuid.uuid4(), {"choice": "1", "rationale": "kept"}, 1.0)
        for user, mine in zip(users, held, strict=True)
    ]
    leaves = [lambda user=user: User.objects.filter(pk=user.pk).update(is_active=False) for user in users]
    results = at_once(*sends, *leaves)[:6]
    assert all(isinstance(result, Judgement) or is_refusal(result) for result in results), results
    assert Judgement.across_teams.count() == sum(isinstance(result, Judgement) for result in results)
    for result, mine in zip(results, held, strict=True):
        if is_refusal(result):
            assert Claim.across_teams.get(pk=mine.pk).draft["rationale"] == "kept"
    boss = make_member("boss@example.org", team)
    claim_items(queue, boss)
    sound(queue)
    assert not Claim.across_teams.filter(seated=True).exclude(user=boss).exists()


def test_the_last_two_labels_of_an_item_settle_it_together(team: Team) -> None:
    """Both read the item under its lock: whoever comes second sees the first, so a conflict is never missed."""
    ann, bob = people(team, 2)
    queue = pair_queue(team, items=5, overlap=2)
    for _ in range(5):
        mine, theirs = claim_items(queue, ann, hold=1)[0], claim_items(queue, bob, hold=1)[0]
        assert mine.item_id == theirs.item_id
        pairs: Sequence[tuple[User, Claim, int]] = ((ann, mine, 0), (bob, theirs, 1))
        at_once(
            *(
                lambda user=user, held=held, place=place: submit_judgement(
                    queue, user, held.token, uuid.uuid4(), {"choice": str(held.order.index(place) + 1)}, 1.0
                )
                for user, held, place in pairs
            )
        )
    assert set(queue.items.values_list("state", "labels", "room")) == {("conflict", 2, 0)}
    sound(queue)


def test_accepting_against_undoing_and_deciding_against_submitting(team: Team) -> None:
    ann, bob = people(team, 2)
    boss = make_member("boss@example.org", team)
    queue = pair_queue(team, items=1, overlap=2)
    said = judge(queue, ann, "a")
    accepted, back = at_once(lambda: accept_judgement(said, boss), lambda: undo_last_judgement(queue, ann))
    said.refresh_from_db()
    assert said.state == ("withdrawn" if isinstance(back, Claim) else "accepted")
    assert is_refusal(accepted) == isinstance(back, Claim)
    [held] = claim_items(queue, bob, hold=1)
    submitted, decided = at_once(
        lambda: submit_judgement(queue, bob, held.token, uuid.uuid4(), {"choice": "1"}, 1.0),
        lambda: decide_queue_item(held.item, boss, {"choice": "tie"}, [0, 1]),
    )
    assert decided is None
    assert isinstance(submitted, (Judgement, ClaimExpired))
    item = queue.items.get()
    assert (item.state, item.final["verdict"]) == ("settled", "tie")
    sound(queue)


def test_a_crowd_that_labels_expires_undoes_and_is_freed_leaves_every_seat_counted(team: Team) -> None:
    users = people(team, 8)
    queue = pair_queue(team, items=12, overlap=2)

    def work(number: int) -> Callable[[], None]:
        user = users[number]

        def labour() -> None:
            for turn in range(6):
                held = claim_items(queue, user, hold=2)
                if not held:
                    return
                if (turn + number) % 5 == 0:
                    Claim.across_teams.filter(pk=held[-1].pk).update(expires_at=timezone.now())
                try:
                    submit_judgement(queue, user, held[0].token, uuid.uuid4(), {"choice": "12"[turn % 2]}, 1.0)
                    if (turn + number) % 3 == 0:
                        undo_last_judgement(queue, user)
                except Refusal as error:
                    assert error.code in ("expired", "nothing-to-undo")  # noqa: PT017
            if number % 4 == 0:
                free_claims(queue, user)

        return labour

    assert [error for error in at_once(*(work(number) for number in range(8))) if error] == []
    sound(queue)
    assert Judgement.across_teams.values("item", "user").distinct().count() == Judgement.across_teams.count()


def test_somebody_who_is_submitting_while_a_queue_gets_more_seats_is_not_in_the_way(team: Team) -> None:
    """Who submits holds an item and refers to the queue; who widens holds the queue and wants every item."""
    [ann] = people(team, 1)
    queue = pair_queue(team, items=2)
    [held] = claim_items(queue, ann, hold=1)
    form: Any = SimpleNamespace(fields_of_queue=lambda: {"overlap": 2}, cleaned_data={})
    holding = threading.Event()

    def label() -> Judgement:
        with transaction.atomic():
            lock_item(held.item_id)
            holding.set()
            until_somebody_waits()
            return submit_judgement(queue, ann, held.token, uuid.uuid4(), {"choice": "1"}, 1.0)

    def widen() -> None:
        holding.wait(30)
        pages.save_queue_settings(queue, form, [])

    said, widened = at_once(label, widen)
    assert (type(said).__name__, widened) == ("Judgement", None)
    queue.refresh_from_db()
    sound(queue)
    assert list(queue.items.order_by("place").values_list("room", "state")) == [(1, "open"), (2, "open")]


def until_somebody_waits() -> None:
    """For a lock."""
    for _ in range(600):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
        time.sleep(0.05)
    raise AssertionError("nobody came")
