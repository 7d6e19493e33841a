"""Each kind of alert comes from what really happened, once, to those who asked for it and may know."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from lab.labelling.labels.models import Item, ItemState, Queue, QueueMember
from lab.teams.accounts.models import Membership, Project, Role, Team, User
from lab.training.runs.models import Run, Status
from lab.training.runs.run_marks import list_run_marks
from lab.watching.alerts import addresses, chores, kinds
from lab.watching.alerts.models import Delivery, Looked, Notice, Rule, Watch, Webhook
from lab.watching.alerts.notices import notify_members
from lab.watching.usage.models import Quota, Storage
from tests.conftest import make_member
from tests.lab.alerts.conftest import look
from tests.lab.labels.queues import judge, pair_queue
from tests.lab.supervisor.spools import make_run, measured, started, store

pytestmark = pytest.mark.django_db
Maker = Callable[..., Rule]


def told(user: User) -> list[str]:
    return list(Notice.across_teams.filter(user=user).order_by("created_at").values_list("kind", flat=True))


def end(run: Run, status: Status = Status.FINISHED) -> None:
    Run.across_teams.filter(pk=run.pk).update(
        status=status, finished_at=timezone.now(), reason="out of memory" if status == Status.FAILED else "", attempt=1
    )


def test_what_has_just_ended_is_found_by_an_index(team: Team) -> None:
    now = timezone.now()
    for number in range(1, 101):  # so many that the index on when they ended tells the planner more than any other
        make_run(team, status=Status.FINISHED, finished_at=now - timedelta(days=number))
    ended = Run.across_teams.filter(status__in=(Status.FINISHED, Status.FAILED), finished_at__gt=now - timedelta(minutes=2), finished_at__lte=now)
    with connections["default"].cursor() as cursor:
        cursor.execute("ANALYZE runs_run")
        cursor.execute("SET LOCAL enable_seqscan = off")  # a table of a test is too small for any index
    assert "run_ended" in ended.explain()


@pytest.mark.parametrize(("status", "kind"), [(Status.FINISHED, kinds.FINISHED), (Status.FAILED, kinds.FAILED)])
def test_a_run_that_ends_is_told_once(team: Team, owner: User, rule: Maker, status: Status, kind: str) -> None:
    rule(kind)
    run = make_run(team, name="math 7b", status=Status.RUNNING)
    look()
    assert told(owner) == []
    end(run, status)
    look()
    look()
    one = Notice.across_teams.get(user=owner)
    assert (one.kind, one.subject) == (kind, f"#{run.number} math 7b {status}")
    assert one.url == f"/t/reasoning/runs/{run.pk}/" + ("logs/" if status == Status.FAILED else "")
    assert ("out of memory" in one.text) == (status == Status.FAILED)


def test_a_run_that_is_resumed_and_ends_again_is_told_again(team: Team, owner: User, rule: Maker) -> None:
    rule(kinds.FAILED)
    run = make_run(team)
    end(run, Status.FAILED)
    look()
    Run.across_teams.filter(pk=run.pk).update(attempt=2, finished_at=timezone.now())
    look()
    Run.across_teams.filter(pk=run.pk).update(attempt=3, finished_at=timezone.now())
    look()
    assert told(owner) == [kinds.FAILED] * 3


def test_what_happened_before_the_rule_is_not_told(team: Team, owner: User, rule: Maker) -> None:
    end(make_run(team))
    Run.across_teams.update(finished_at=timezone.now() - timedelta(seconds=1))
    rule(kinds.FINISHED)
    look()
    assert told(owner) == []


@pytest.mark.feature(86)
def test_a_silent_trainer_and_a_lost_worker_are_told(team: Team, owner: User, rule: Maker) -> None:
    rule(kinds.STALLED, since=timezone.now() - timedelta(minutes=1))
    silent = make_run(team, name="silent", status=Status.RUNNING, progress_at=timezone.now() - timedelta(seconds=125))
    make_run(team, name="at work", status=Status.RUNNING, progress_at=timezone.now() - timedelta(seconds=20))
    lost = make_run(team, name="lost", status=Status.LOST, reason="lost its worker w1", rescues=1)
    look()
    look()
    assert set(Notice.across_teams.values_list("subject", flat=True)) == {f"{silent} has stalled", f"{lost} lost its worker"}
    Run.across_teams.filter(pk=lost.pk).update(rescues=2)  # taken up, and lost again
    look()
    assert Notice.across_teams.filter(user=owner).count() == 3


def training(team: Team, **fields: Any) -> Run:
    run = make_run(team, status=Status.RUNNING, attempt=1, **fields)
    store(run, started())
    return run


@pytest.mark.feature(81)
def test_a_metric_beyond_its_number_is_told_at_the_first_point(team: Team, owner: User, rule: Maker) -> None:
    rule(kinds.METRIC, metric="kl", direction="above", number=0.5)
    run = training(team)
    store(run, *(measured(step, values={"kl": 0.1}) for step in range(1, 4)))
    look()
    assert told(owner) == []
    store(run, measured(4, values={"kl": 0.75}), measured(5, values={"kl": 0.2}))
    look()
    store(run, measured(6, values={"kl": 0.9}))
    look()
    one = Notice.across_teams.get(user=owner)
    assert "kl is 0.75 at step 4" in one.text


@pytest.mark.feature(29)
def test_alerts_are_marks_on_the_charts_of_those_who_asked(team: Team, owner: User, viewer: User, rule: Maker, as_owner: Client) -> None:
    rule(kinds.METRIC, metric="kl", direction="above", number=0.5)
    rule(kinds.METRIC, metric="loss", direction="below", number=0.2, owner=None)
    run = training(team)
    store(run, measured(4, values={"kl": 0.75, "loss": 0.5}), measured(6, values={"kl": 0.9, "loss": 0.1}))
    look()
    look()
    mine = [{"step": 4, "kind": "alert", "label": "kl above 0.5 at step 4"}]
    of_the_team = [{"step": 6, "kind": "alert", "label": "loss below 0.2 at step 6"}]
    assert (list_run_marks(run, owner), list_run_marks(run, viewer)) == (mine + of_the_team, of_the_team)
    assert as_owner.get(f"/t/reasoning/runs/{run.pk}/metrics.json?part=marks").json() == {"marks": mine + of_the_team}
    Rule.across_teams.all().delete()
    assert list_run_marks(run, owner) == mine + of_the_team


def test_a_rule_made_while_a_run_trains_judges_its_newest_point_only(team: Team, owner: User, rule: Maker) -> None:
    spiked, low = training(team, name="spiked"), training(team, name="low")
    store(spiked, measured(1, values={"kl": 0.9}), measured(2, values={"kl": 0.1}))
    store(low, measured(1, values={"kl": 0.9}))
    rule(kinds.METRIC, metric="kl", direction="above", number=0.5)
    below = rule(kinds.METRIC, metric="kl", direction="below", number=0.2)
    look()
    assert set(Notice.across_teams.values_list("subject", flat=True)) == {f"{low}: kl above 0.5", f"{spiked}: kl below 0.2"}
    assert Looked.objects.filter(rule=below, told=True).count() == 1


def test_a_metric_without_change_is_told_once_it_lasts(team: Team, owner: User, rule: Maker) -> None:
    rule(kinds.FLAT, metric="reward", number=0.01, steps=5)
    run = training(team)
    store(run, *(measured(step, values={"reward": 0.1 * step}) for step in range(1, 6)))
    look()
    store(run, *(measured(step, values={"reward": 0.5}) for step in range(6, 10)))
    look()
    assert told(owner) == []  # steps 5 to 9 are four steps of change
    store(run, measured(10, values={"reward": 0.505}))
    look()
    look()
    one = Notice.across_teams.get(user=owner)
    assert "reward is 0.505 at step 10" in one.text
    assert one.subject == f"{run}: reward within 0.01 for 5 steps"


def test_what_the_doctor_finds_is_told_once_for_each_finding(team: Team, owner: User, rule: Maker) -> None:
    rule(kinds.DOCTOR)
    run = training(team, trainer="grpo")
    store(run, *(measured(step, values={"reward": 0.5, "entropy": 0.6 - 0.0059 * step}) for step in range(1, 101)))
    look()
    first = Notice.across_teams.filter(user=owner).count()
    assert first >= 1
    assert Notice.across_teams.filter(user=owner, url=f"/t/reasoning/runs/{run.pk}/doctor/").count() == first
    store(run, measured(101, values={"reward": 0.5, "entropy": 0.01}))
    Looked.across_teams.update(at=timezone.now() - timedelta(minutes=5))
    look()
    assert Notice.across_teams.filter(user=owner).values("key").distinct().count() == Notice.across_teams.filter(user=owner).count()


def test_a_queue_is_told_a_day_before_it_is_due_and_when_it_is_overdue(team: Team, owner: User, annotator: User, rule: Maker) -> None:
    rule(kinds.DUE, owner=annotator, mine=True)
    queue = pair_queue(team, items=1, due=timezone.now() + timedelta(hours=30), assigned_only=True)
    look()
    Queue.across_teams.update(due=timezone.now() + timedelta(hours=20))
    look()
    assert told(annotator) == []  # not assigned
    QueueMember.objects.create(queue=queue, user=annotator)
    look()
    look()
    assert Notice.across_teams.get(user=annotator).subject == "Queue “q” is due soon"
    Queue.across_teams.update(due=timezone.now() - timedelta(seconds=0.01))
    Rule.across_teams.update(since=timezone.now() - timedelta(minutes=1))
    look()
    assert Notice.across_teams.filter(user=annotator).latest("created_at").subject == "Queue “q” is overdue"
    Item.across_teams.update(state=ItemState.DONE)
    Queue.across_teams.update(due=timezone.now() + timedelta(hours=2))
    look()
    assert Notice.across_teams.filter(user=annotator).count() == 2  # nothing waits in it


def test_labels_in_conflict_are_told_to_leads_only(team: Team, owner: User, teammate: User, annotator: User, rule: Maker) -> None:
    rule(kinds.CONFLICTS)
    rule(kinds.CONFLICTS, owner=annotator)
    queue = pair_queue(team, items=1, overlap=2)
    judge(queue, annotator, "a")
    judge(queue, teammate, "b")
    assert queue.items.get().state == ItemState.CONFLICT
    look()
    look()
    assert Notice.across_teams.get().subject == "1 conflict in queue “q”"
    assert Notice.across_teams.get().user == owner


def test_a_quota_that_is_used_up_is_told_once_a_month(team: Team, owner: User, rule: Maker) -> None:
    rule(kinds.QUOTA)
    Quota.objects.create(team=team, storage_bytes=1000)
    Storage.objects.create(team=team)
    look()
    assert told(owner) == []
    Storage.across_teams.update(spools=2000)
    look()
    look()
    assert told(owner) == [kinds.QUOTA]


def test_filters_narrow_a_rule(team: Team, owner: User, teammate: User, rule: Maker) -> None:
    project = Project.objects.create(team=team, name="math")
    rule(kinds.FINISHED, mine=True, project=project, words="MATH", recipe="dapo")
    fits = {"name": "big math", "created_by": owner, "project": project, "recipe": "dapo"}
    for change in ({}, {"name": "code"}, {"created_by": teammate}, {"project": None}, {"recipe": "grpo"}):
        end(make_run(team, **{**fits, **change}))
    look()
    assert [one.subject for one in Notice.across_teams.filter(user=owner)] == ["#1 big math finished"]


def test_a_rule_of_the_team_tells_all_who_may_know(team: Team, owner: User, teammate: User, annotator: User, stranger: User, rule: Maker) -> None:
    gone = make_member("gone@example.org", team, Role.RESEARCHER)
    Membership.objects.filter(user=gone).update(active=False)
    rule(kinds.FINISHED, owner=None)
    rule(kinds.FINISHED, owner=stranger, team=stranger.memberships.get().team)
    rule(kinds.FINISHED, owner=gone)
    end(make_run(team))
    look()
    assert set(Notice.across_teams.values_list("user", flat=True)) == {owner.pk, teammate.pk}


def test_two_rules_tell_once_by_both_channels(team: Team, owner: User, rule: Maker) -> None:
    rule(kinds.FINISHED)
    rule(kinds.FINISHED, inbox=False, email=True)
    end(make_run(team))
    look()
    assert Notice.across_teams.get().inbox
    assert Delivery.across_teams.get().notice == Notice.across_teams.get()


def test_everybody_begins_with_rules_about_their_own_things_and_keeps_what_they_change(
    team: Team, owner: User, annotator: User, viewer: User
) -> None:
    look()
    assert set(Rule.objects.of(team, owner).values_list("kind", flat=True)) == {
        kinds.FINISHED,
        kinds.FAILED,
        kinds.STALLED,
        kinds.DUE,
        kinds.PROMOTION,
    }
    assert list(Rule.objects.of(team, annotator).values_list("kind", "mine")) == [(kinds.DUE, True)]
    assert kinds.PROMOTION not in Rule.objects.of(team, viewer).values_list("kind", flat=True)
    Rule.objects.of(team, owner).delete()
    look()
    assert not Rule.objects.of(team, owner).exists()
    end(make_run(team, created_by=owner))
    look()
    assert told(owner) == []


def test_notify_is_idempotent_and_knows_who_may_know(team: Team, owner: User, teammate: User, annotator: User, stranger: User) -> None:
    url = "/t/reasoning/policies/"
    for _ in range(2):
        notify_members(team, kinds.PROMOTION, "candidate\r\nBcc: x", url=url, users=[owner, teammate, annotator, stranger], key="p1")
    assert [(one.user, one.subject) for one in Notice.across_teams.all()] == [(owner, "candidate Bcc: x")]
    assert notify_members(team, kinds.NEWS, "n", url="//evil.example.org", users=[annotator], key="n1") == 1
    assert Notice.across_teams.get(user=annotator).url == ""
    with pytest.raises(KeyError):
        notify_members(team, "gossip", "n", url="", key="k")


def test_a_watcher_that_fails_silences_no_other(team: Team, owner: User, rule: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("unreadable")

    monkeypatch.setitem(chores.WATCHERS, "defaults", (fails, timedelta(seconds=5)))
    rule(kinds.FINISHED)
    end(make_run(team))
    look()
    assert told(owner) == [kinds.FINISHED]


def test_a_round_with_nothing_due_is_one_query(team: Team, django_assert_num_queries: Any) -> None:
    look()
    Watch.objects.update(next_at=timezone.now() + timedelta(hours=1))
    with django_assert_num_queries(1):
        chores.run_due_watchers()


@pytest.mark.django_db(transaction=True)
def test_several_workers_tell_once(team: Team, owner: User, rule: Maker) -> None:
    hook = Webhook.objects.create(team=team, name="h", **addresses.build_address_fields("https://hooks.example.org/"), secret=b"")
    rule(kinds.FINISHED, email=True)
    rule(kinds.FINISHED, owner=None, webhook=hook, email=True)
    chores.run_due_watchers()
    for _ in range(5):
        end(make_run(team))
    start = Barrier(4)

    def work() -> None:
        start.wait()
        chores.run_watcher("runs", timezone.now())
        chores.run_due_watchers()
        connections.close_all()

    Watch.objects.update(next_at=timezone.now())
    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Notice.across_teams.filter(user=owner).count() == 5
    assert Delivery.objects.filter(webhook=hook).count() == 5
    assert Delivery.across_teams.filter(notice__user=owner).count() == 5
