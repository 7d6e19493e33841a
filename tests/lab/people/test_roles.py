"""Who makes whom what: roles, handing over, and what pages show to whom."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.accounts.permissions import TABLE
from lab.teams.audit.models import Entry
from lab.teams.people.roles import change_role, transfer_ownership
from tests.conftest import make_member
from tests.lab.people.test_leaving import together

pytestmark = pytest.mark.django_db


@pytest.fixture
def people(team: Team, owner: User) -> dict[str, Membership]:
    found = {role.value: make_member(f"{role.value}2@example.org", team, role) for role in Role}
    return {"first": Membership.objects.get(user=owner), **{role: Membership.objects.get(user=user) for role, user in found.items()}}


def attempt(by: Membership, target: Membership, role: str) -> bool:
    try:
        change_role(target, role, by.user)
    except Refusal:
        return False
    return True


@pytest.mark.parametrize("by", ["owner", "admin", "researcher", "annotator", "viewer"])
def test_the_rules_of_roles_for_every_pair(by: str, people: dict[str, Membership]) -> None:
    for target, member in people.items():
        for role in Role.values:
            Membership.objects.filter(pk=member.pk).update(role="owner" if target == "first" else target)
            allowed = by == "owner" or (by == "admin" and target not in ("first", "owner") and role != "owner")
            if target == by:
                allowed = False  # nobody changes what they are themselves
            assert attempt(people[by], member, role) is allowed, (by, target, role)


def test_a_change_is_logged_with_both_roles_and_none_is_not(people: dict[str, Membership]) -> None:
    change_role(people["viewer"], "researcher", people["first"].user)
    change_role(people["researcher"], "researcher", people["first"].user)
    entry = Entry.across_teams.get(action="member.role")
    assert entry.details == {"before": "viewer", "after": "researcher"}


def test_the_last_owner_is_not_demoted_and_a_stranger_cannot(people: dict[str, Membership], stranger: User) -> None:
    change_role(people["owner"], "viewer", people["first"].user)
    with pytest.raises(Refusal, match="only owner"):
        change_role(people["first"], "admin", None, operator=True)
    with pytest.raises(Refusal, match="can no longer manage"):
        change_role(people["viewer"], "admin", stranger)
    with pytest.raises(Refusal, match="no role"):
        change_role(people["viewer"], "god", people["first"].user)


@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_demote_each_other_one_stays(team: Team, owner: User) -> None:
    other = make_member("second@example.org", team, Role.OWNER)
    one, two = Membership.objects.get(user=owner), Membership.objects.get(user=other)
    raised = together(lambda: change_role(two, "viewer", owner), lambda: change_role(one, "viewer", other))
    assert sum(isinstance(error, Refusal) for error in raised) == 1, raised
    assert Membership.objects.filter(role=Role.OWNER).count() == 1


@pytest.mark.feature(76)
def test_handing_over_asks_for_the_password(as_owner: Client, people: dict[str, Membership]) -> None:
    form = {"member": str(people["researcher"].pk), "password": "wrong"}
    url = "/t/reasoning/team/transfer/"
    refused = as_owner.post(url, form)
    assert refused.status_code == 422
    assert "Wrong password" in refused.content.decode()
    assert "wrong" not in refused.content.decode()
    assert as_owner.post(url, {**form, "password": "correct horse battery"}).status_code == 302
    roles = {name: Membership.objects.get(pk=one.pk).role for name, one in people.items()}
    assert (roles["first"], roles["researcher"]) == (Role.ADMIN, Role.OWNER)
    assert Entry.across_teams.get(action="team.transfer").details["to"] == people["researcher"].user.email
    assert as_owner.get(url).status_code == 403


def test_the_password_is_not_guessed(as_owner: Client, people: dict[str, Membership]) -> None:
    form = {"member": str(people["researcher"].pk), "password": "wrong"}
    answers = [as_owner.post("/t/reasoning/team/transfer/", form).content.decode() for _ in range(11)]
    assert "Too many attempts" in answers[-1]
    late = as_owner.post("/t/reasoning/team/transfer/", {**form, "password": "correct horse battery"})
    assert late.status_code == 422


def test_who_signs_in_elsewhere_has_signed_in_of_late(as_owner: Client, owner: User, people: dict[str, Membership]) -> None:
    owner.set_unusable_password()
    owner.last_login = timezone.now() - timedelta(hours=1)
    owner.save()
    as_owner.force_login(owner)  # the change of password has ended the session
    User.objects.filter(pk=owner.pk).update(last_login=timezone.now() - timedelta(hours=1))
    form = {"member": str(people["admin"].pk)}
    response = as_owner.post("/t/reasoning/team/transfer/", form)
    assert response.status_code == 422
    assert "Sign out and in again" in response.content.decode()
    User.objects.filter(pk=owner.pk).update(last_login=timezone.now())
    assert as_owner.post("/t/reasoning/team/transfer/", form).status_code == 302


def test_nobody_outside_or_deactivated_is_handed_a_team(people: dict[str, Membership], as_owner: Client, stranger: User) -> None:
    elsewhere = Membership.objects.get(user=stranger)
    with pytest.raises(Refusal):
        transfer_ownership(people["first"], elsewhere)
    form = {"member": str(elsewhere.pk), "password": "correct horse battery"}
    assert as_owner.post("/t/reasoning/team/transfer/", form).status_code == 422
    Membership.objects.filter(pk=people["viewer"].pk).update(active=False)
    with pytest.raises(Refusal, match="deactivated"):
        transfer_ownership(people["first"], people["viewer"])


def test_the_members_page_for_an_admin_and_for_a_viewer(people: dict[str, Membership], as_owner: Client) -> None:
    page = as_owner.get("/t/reasoning/team/").content.decode()
    for member in people.values():
        assert member.user.email in page
    assert "Invite" in page
    viewer = Client()
    viewer.force_login(people["viewer"].user)
    page = viewer.get("/t/reasoning/team/").content.decode()
    assert people["annotator"].user.email in page
    assert "invite-title" not in page
    assert "/team/members/" not in page
    annotator = Client()
    annotator.force_login(people["annotator"].user)
    assert annotator.get("/t/reasoning/team/").status_code == 403
    assert annotator.get("/t/reasoning/team/role/").status_code == 200


def test_members_are_listed_with_as_many_queries_for_one_as_for_ten(team: Team, as_owner: Client, django_assert_max_num_queries: Any) -> None:
    def ask() -> int:
        with django_assert_max_num_queries(30) as counted:
            as_owner.get("/t/reasoning/team/")
        return len(counted)

    ask()
    few = ask()
    for number in range(10):
        make_member(f"many{number}@example.org", team)
    assert ask() == few


def test_what_each_role_may_is_the_permission_table(people: dict[str, Membership], as_owner: Client) -> None:
    page = as_owner.get("/t/reasoning/team/role/").content.decode().replace("&#x27;", "'")
    for permission in TABLE.values():
        assert permission.words in page
    yes = sum(len(permission.roles) for permission in TABLE.values())
    assert page.count(">yes</span>") == yes


def test_acts_by_the_page(people: dict[str, Membership], as_owner: Client) -> None:
    pk = people["viewer"].pk
    assert "Viewer2" not in as_owner.get(f"/t/reasoning/team/members/{pk}/").content.decode()
    as_owner.post(f"/t/reasoning/team/members/{pk}/role/", {"role": "researcher"})
    assert Membership.objects.get(pk=pk).role == Role.RESEARCHER
    assert as_owner.post(f"/t/reasoning/team/members/{pk}/remove/").status_code == 409
    as_owner.post(f"/t/reasoning/team/members/{pk}/deactivate/")
    page = as_owner.get(f"/t/reasoning/team/members/{pk}/").content.decode()
    assert "Reactivate" in page
    as_owner.post(f"/t/reasoning/team/members/{pk}/reactivate/")
    assert Membership.objects.get(pk=pk).active
    own = as_owner.post(f"/t/reasoning/team/members/{people['first'].pk}/deactivate/")
    assert own.status_code == 409
    assert "You cannot change your own membership" in own.content.decode()
    assert as_owner.get(f"/t/reasoning/team/members/{10**25}/").status_code == 404
