"""Deactivating, reactivating, removing and leaving: what is let go, what stays, and who may."""

import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from lab.labelling.labels.item_claims import claim_items
from lab.labelling.labels.models import Claim
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import ApiToken, Invitation, Membership, Role, Team, User
from lab.teams.audit.models import Entry
from lab.teams.people import departures
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Run, Status
from tests.conftest import make_member
from tests.lab.labels.queues import pair_queue
from tests.lab.supervisor.spools import make_run
from trainers.contract.spec import SpecError

pytestmark = pytest.mark.django_db


@pytest.fixture
def member(team: Team, teammate: User) -> Membership:
    return Membership.objects.get(team=team, user=teammate)


def token_of(team: Team, user: User | None, by: User, name: str = "laptop") -> ApiToken:
    digest = uuid.uuid4().hex
    return ApiToken.objects.create(team=team, user=user, created_by=by, name=name, prefix=digest[:12], digest=digest)


def invitation(team: Team, by: User, email: str) -> Invitation:
    return Invitation.objects.create(team=team, email=email, invited_by=by, digest=uuid.uuid4().hex, expires_at=timezone.now() + timedelta(days=1))


def held(team: Team, user: User) -> Claim:
    """An item of a fresh queue that the person has opened."""
    return claim_items(pair_queue(team, 1), user, hold=1)[0]


def test_nothing_of_theirs_is_left_in_the_team(team: Team, owner: User, member: Membership, client: Client) -> None:
    user = member.user
    client.force_login(user)
    assert client.get("/t/reasoning/team/role/").status_code == 200
    token, service = token_of(team, user, user), token_of(team, None, user, "ci")
    queued, training, others = (make_run(team, status=status) for status in (Status.QUEUED, Status.RUNNING, Status.QUEUED))
    Run.across_teams.filter(pk__in=(queued.pk, training.pk)).update(created_by=user)
    sent, own = invitation(team, user, "new@example.org"), invitation(team, owner, user.email.upper())
    other = invitation(team, owner, "x@example.org")

    departures.deactivate_member(member, owner)

    member.refresh_from_db()
    assert not member.active
    assert member.deactivated_at is not None
    assert client.get("/t/reasoning/team/role/").status_code == 302  # signed out: it was their only team
    for row, gone in ((token, True), (service, False), (sent, True), (own, True), (other, False)):
        row.refresh_from_db()
        assert (row.revoked_at is not None) is gone, row
    states = {run.pk: (run.status, run.created_by_id) for run in Run.across_teams.all()}
    assert states[queued.pk] == (Status.STOPPED, user.pk)  # history stays
    assert states[training.pk] == (Status.RUNNING, user.pk)
    assert states[others.pk][0] == Status.QUEUED
    assert "teammate@example.org left the team" in Run.across_teams.get(pk=queued.pk).reason
    entry = Entry.across_teams.get(action="member.deactivate")
    assert (entry.team, entry.actor, entry.label) == (team, owner, user.email)


def test_items_they_hold_are_free_at_once(team: Team, owner: User, member: Membership) -> None:
    held_item = held(team, member.user)
    departures.deactivate_member(member, owner)
    held_item.refresh_from_db()
    held_item.item.refresh_from_db()
    assert (held_item.seated, held_item.item.room) == (False, 1)


def test_what_they_hold_is_said_beforehand(team: Team, owner: User, member: Membership) -> None:
    user = member.user
    token_of(team, user, user)
    token_of(team, None, user, "ci")
    for status in (Status.QUEUED, Status.LOST, Status.RUNNING):
        run = make_run(team, status=status)
        Run.across_teams.filter(pk=run.pk).update(created_by=user)
    held(team, user)
    said = departures.list_member_holdings(member)
    ends, stays = (" ".join(one.words for one in said if one.stays is stay) for stay in (False, True))
    for words in ("Signed out everywhere", "1 access token is", "2 queued runs are", "1 item goes back"):
        assert words in ends
    assert "1 run that trains now goes on" in stays
    assert "“ci”" in stays


def test_who_is_in_another_team_stays_signed_in_there(team: Team, owner: User, member: Membership, client: Client) -> None:
    other = Team.objects.create(name="Other", slug="other")
    Membership.objects.create(team=other, user=member.user)
    elsewhere = token_of(other, member.user, member.user)
    client.force_login(member.user)
    departures.deactivate_member(member, owner)
    assert client.get("/t/other/team/role/").status_code == 200
    assert client.get("/t/reasoning/team/role/").status_code == 404
    elsewhere.refresh_from_db()
    assert elsewhere.revoked_at is None


def test_reactivated_they_have_their_role_and_nothing_else(team: Team, owner: User, member: Membership) -> None:
    token = token_of(team, member.user, member.user)
    departures.deactivate_member(member, owner)
    departures.reactivate_member(member, owner)
    member.refresh_from_db()
    token.refresh_from_db()
    assert (member.active, member.deactivated_at, member.role) == (True, None, Role.RESEARCHER)
    assert token.revoked_at is not None
    with pytest.raises(Refusal, match="already active"):
        departures.reactivate_member(member, owner)


def test_only_who_is_deactivated_can_be_removed_and_their_runs_keep_their_name(team: Team, owner: User, member: Membership) -> None:
    run = make_run(team, status=Status.FINISHED)
    Run.across_teams.filter(pk=run.pk).update(created_by=member.user)
    with pytest.raises(Refusal, match="Deactivate them first"):
        departures.remove_member(member, owner)
    departures.deactivate_member(member, owner)
    departures.remove_member(member, owner)
    assert not Membership.objects.filter(pk=member.pk).exists()
    run.refresh_from_db()
    assert run.created_by == member.user


def test_leaving_takes_all_but_the_session(team: Team, member: Membership, client: Client) -> None:
    client.force_login(member.user)
    token = token_of(team, member.user, member.user)
    departures.leave_team(member)
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert client.get("/teams/").status_code == 200
    assert client.get("/t/reasoning/team/").status_code == 404
    assert Entry.across_teams.filter(action="member.leave", actor=member.user).exists()


@pytest.mark.parametrize("verb", [departures.deactivate_member, departures.reactivate_member, departures.remove_member])
def test_who_may_not(verb: Any, team: Team, owner: User, member: Membership, stranger: User) -> None:
    admin = make_member("admin@example.org", team, Role.ADMIN)
    for by, target, why in (
        (member.user, Membership.objects.get(user=admin), "can no longer manage"),
        (stranger, member, "can no longer manage"),
        (admin, Membership.objects.get(user=owner), "Only an owner"),
        (admin, Membership.objects.get(user=admin), "You cannot change your own membership"),
        (None, member, "can no longer manage"),
    ):
        with pytest.raises(Refusal, match=why):
            verb(target, by)
    assert Membership.objects.filter(team=team, active=True).count() == 3


def test_the_last_owner_stays(team: Team, owner: User) -> None:
    mine = Membership.objects.get(user=owner)
    with pytest.raises(Refusal, match="only owner"):
        departures.leave_team(mine)
    with pytest.raises(Refusal, match="only owner"):
        departures.deactivate_member(mine, None, operator=True)
    second = make_member("second@example.org", team, Role.OWNER)
    User.objects.filter(pk=second.pk).update(is_active=False)  # somebody who cannot sign in owns nothing
    with pytest.raises(Refusal, match="only owner"):
        departures.leave_team(mine)
    User.objects.filter(pk=second.pk).update(is_active=True)
    departures.leave_team(mine)


def test_staff_acting_on_the_installation_need_not_be_members(team: Team, member: Membership, stranger: User) -> None:
    departures.deactivate_member(member, stranger, operator=True)
    assert Entry.across_teams.get(action="member.deactivate").actor == stranger


def test_a_launch_that_was_under_way_is_refused(team: Team, owner: User, member: Membership) -> None:
    departures.deactivate_member(member, owner)
    with pytest.raises(SpecError, match="deactivated"):
        launch_recipe(team, member.user, "grpo")
    assert not Run.across_teams.filter(created_by=member.user).exists()


def together(*acts: Any) -> list[BaseException | None]:
    """Runs the acts in threads at once; what each raised."""
    barrier, raised = threading.Barrier(len(acts)), [None] * len(acts)

    def run(number: int) -> None:
        barrier.wait(60)
        try:
            acts[number]()
        except BaseException as error:
            raised[number] = error  # type: ignore[call-overload]
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return raised


@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_deactivate_each_other_or_leave_at_once_one_stays(team: Team, owner: User) -> None:
    other = make_member("second@example.org", team, Role.OWNER)
    one, two = Membership.objects.get(user=owner), Membership.objects.get(user=other)
    raised = together(lambda: departures.deactivate_member(two, owner), lambda: departures.deactivate_member(one, other))
    assert sum(isinstance(error, Refusal) for error in raised) == 1, raised
    assert Membership.objects.filter(active=True).count() == 1

    Membership.objects.update(active=True, deactivated_at=None)
    raised = together(lambda: departures.leave_team(one), lambda: departures.leave_team(two))
    assert sum(isinstance(error, Refusal) for error in raised) == 1, raised
    assert Membership.objects.filter(active=True).count() == 1
