"""Invitations: one address, one use, seven days; what the mail says; who may send them and who may use them."""

import re
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.utils import timezone

from lab.edges.api import tokens
from lab.labelling.labels.models import Kind, Queue, QueueMember, QueueStatus
from lab.lib.refusals import Refusal
from lab.teams.accounts.address_proof import is_verified, mark_verified
from lab.teams.accounts.models import Invitation, JoinRequest, Membership, Role, Team, User
from lab.teams.audit.models import Entry
from lab.teams.people import invitations
from tests.conftest import make_member
from tests.lab.accounts.signing_in import choose_password, give_app, link_in_the_mail, sign_in

pytestmark = pytest.mark.django_db

INVITE = "/t/reasoning/team/invite/"
PASSWORD = "a long enough secret"


def sent(client: Client, email: str = "new@example.org", role: str = "annotator", queues: Sequence[int] = ()) -> str:
    """The path of the link that the page shows after inviting."""
    response = client.post(INVITE, {"email": email, "role": role, "queues": queues})
    assert response.status_code == 200, response.content.decode()
    found = re.search(r"http://[^/<]+(/invitation/[-\w]+/)", response.content.decode())
    assert found
    return found[1]


def token(path: str) -> str:
    return path.split("/")[2]


def new_account(path: str, client: Client | None = None, **fields: str) -> Any:
    return (client or Client()).post(path, {"name": "Ada Byron", "password": PASSWORD, **fields})


def test_the_mail_has_the_link_and_says_who_what_and_how_long(as_owner: Client, team: Team) -> None:
    path = sent(as_owner)
    [message] = mail.outbox
    assert path not in str(message.body)  # that link is another one
    assert message.to == ["new@example.org"]
    assert message.subject == "You are invited to team Reasoning in Policy Lab"
    for words in ("http://127.0.0.1:8000/invitation/", "owner@example.org", "as annotator", "works once", "only for new@example.org"):
        assert words in str(message.body)
    assert "/t/reasoning" not in str(message.body)  # who is invited is not in the team yet


def test_a_team_name_of_two_lines_makes_no_header(as_owner: Client, team: Team) -> None:
    Team.objects.update(name="Evil\nBcc: all@example.org")
    sent(as_owner)
    assert mail.outbox[0].subject == "You are invited to team Evil Bcc: all@example.org in Policy Lab"
    assert mail.outbox[0].recipients() == ["new@example.org"]


def test_without_mail_the_link_is_still_there(as_owner: Client, settings: Any) -> None:
    settings.EMAIL_BACKEND = "no.such.Backend"
    response = as_owner.post(INVITE, {"email": "new@example.org", "role": "viewer"})
    assert "could not be sent" in response.content.decode()
    assert "/invitation/" in response.content.decode()


def test_only_a_fingerprint_is_stored_and_the_audit_log_has_no_secret(as_owner: Client) -> None:
    secret = token(sent(as_owner))
    made = Invitation.across_teams.get()
    assert secret not in (made.digest, str(made.__dict__))
    entry = Entry.across_teams.get(action="member.invite")
    assert (entry.label, entry.details) == ("new@example.org", {"role": "annotator"})


def test_somebody_new_sets_name_and_password_there_and_is_in(as_owner: Client, team: Team) -> None:
    path, visitor = sent(as_owner), Client()
    assert "new@example.org" in visitor.get(path).content.decode()
    response = new_account(path, visitor)
    assert response.headers["Location"] == "/t/reasoning/"
    user = User.objects.get(email="new@example.org")
    assert (user.get_full_name(), user.check_password(PASSWORD), user.is_staff) == ("Ada Byron", True, False)
    assert Membership.objects.get(user=user).role == Role.ANNOTATOR
    address = EmailAddress.objects.get(user=user)
    assert (address.email, address.verified, address.primary) == ("new@example.org", False, True)
    assert visitor.get("/t/reasoning/label/").status_code == 200
    assert Entry.across_teams.get(action="member.join").actor == user
    assert Client().get(path).status_code == 410
    assert new_account(path, name="Eve").status_code == 410
    assert User.objects.filter(email="new@example.org").count() == 1


def test_the_mailed_link_verifies_the_address_and_the_shown_one_does_not(as_owner: Client) -> None:
    """The inviter sees the other one: with it they could make somebody else's account before them."""
    for email, of_mail in (("a@example.org", True), ("b@example.org", False)):
        shown = sent(as_owner, email)
        visitor = Client()
        new_account(link_in_the_mail(email) if of_mail else shown, visitor)
        user = User.objects.get(email=email)
        assert is_verified(user) is of_mail
        assert visitor.get("/t/reasoning/label/").status_code == 200
        proofs = [one for one in mail.outbox if one.to == [email] and "Verify your e-mail address" in one.subject]
        assert len(proofs) == (0 if of_mail else 1)
        for one in (shown, link_in_the_mail(email) if of_mail else shown):
            assert Client().get(one).status_code == 410  # whichever was used, both are


def test_without_a_mail_server_no_link_verifies(as_owner: Client, settings: Any, tmp_path: Path) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = "lab.teams.accounts.mail.PrivateFolder", str(tmp_path / "mail")
    path = sent(as_owner)
    [file] = (tmp_path / "mail").iterdir()
    assert path in file.read_text()  # the operator may hand it over
    new_account(path)
    assert not is_verified(User.objects.get(email="new@example.org"))
    assert Invitation.across_teams.get().mailed_digest is None
    assert len(list((tmp_path / "mail").iterdir())) == 1


def test_a_link_from_before_there_was_a_mail_server_verifies_nothing_afterwards(as_owner: Client, settings: Any, tmp_path: Path) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = "lab.teams.accounts.mail.PrivateFolder", str(tmp_path / "mail")
    path = sent(as_owner)
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    new_account(path)
    assert not is_verified(User.objects.get(email="new@example.org"))


def test_who_finds_their_invitation_used_by_somebody_else_gets_the_account(as_owner: Client, owner: User, team: Team) -> None:
    """The whole attack: an admin invites, uses the shown link themselves, and sets up what would outlive a new password."""
    shown, thief, victim = sent(as_owner), Client(), Client()
    new_account(shown, thief)
    stolen = User.objects.get(email="new@example.org")
    give_app(stolen)
    _, secret = tokens.create_access_token(team, stolen, "thief's", ["label.see"], None)
    mail_link = next(str(one.body) for one in mail.outbox if one.subject.startswith("You are invited"))
    page = victim.get(re.search(r"(/invitation/[-\w]+/)", mail_link)[1]).content.decode()  # type: ignore[index]
    assert "/accounts/password/reset/" in page
    victim.post("/accounts/password/reset/", {"email": stolen.email})
    choose_password(victim, link_in_the_mail(stolen.email), "the owner chose this")
    assert is_verified(stolen)
    assert thief.get("/account/").status_code == 302
    assert tokens.find_usable_token(secret) is None
    assert sign_in(thief, stolen.email, PASSWORD).status_code == 200
    assert sign_in(victim, stolen.email, "the owner chose this").headers["Location"] == "/"  # no code of the thief's app is asked for
    assert victim.get("/t/reasoning/label/").status_code == 200


def test_an_address_with_an_account_nobody_has_proved_is_told_the_way_to_it(as_owner: Client, stranger: User) -> None:
    path = sent(as_owner, stranger.email)
    assert "Somebody else may have" in Client().get(path).content.decode()
    mark_verified(stranger)
    assert "Somebody else may have" not in Client().get(path).content.decode()


def test_the_team_sees_whose_address_is_verified(as_owner: Client, owner: User, teammate: User, team: Team) -> None:
    mark_verified(owner)
    assert as_owner.get("/t/reasoning/team/").content.decode().count("address not verified") == 1
    member = Membership.objects.get(user=teammate)
    assert "not verified" in as_owner.get(f"/t/reasoning/team/members/{member.pk}/").content.decode()
    mark_verified(teammate)
    assert "not verified" not in as_owner.get("/t/reasoning/team/").content.decode()
    assert "not verified" not in as_owner.get(f"/t/reasoning/team/members/{member.pk}/").content.decode()
    stranger = User.objects.create_user("stranger@example.org", PASSWORD)
    JoinRequest.objects.create(team=team, user=stranger)
    assert "address not verified" in as_owner.get("/t/reasoning/team/").content.decode()


def test_a_second_click_of_the_same_person_leads_to_the_team(as_owner: Client) -> None:
    path, visitor = sent(as_owner), Client()
    new_account(path, visitor)
    for response in (visitor.get(path), visitor.post(path)):
        assert response.headers["Location"] == "/t/reasoning/"
    assert as_owner.get(path).status_code == 410


@pytest.mark.parametrize(("fields", "words"), [
    ({"password": "password1"}, "too common"),
    ({"password": "new@example.org"}, "too similar"),
    ({"name": ""}, "required"),
    ({"name": "a\0b"}, "Null characters"),
    ({"password": "x" * 5000}, "at most 1000"),
])  # fmt: skip
def test_a_bad_name_or_password_is_said_and_the_link_stays_good(as_owner: Client, fields: dict[str, str], words: str) -> None:
    path = sent(as_owner)
    response = new_account(path, **fields)
    assert response.status_code == 422
    assert words in response.content.decode()
    assert not User.objects.filter(email="new@example.org").exists()
    assert new_account(path).status_code == 302


def test_who_has_an_account_signs_in_with_it_first(as_owner: Client, stranger: User, team: Team) -> None:
    path, visitor = sent(as_owner, "Stranger@Example.org", "researcher"), Client()
    page = visitor.get(path).content.decode()
    assert "Sign in" in page
    assert 'name="password"' not in page
    assert new_account(path, visitor).status_code == 200  # no second account for the address
    assert User.objects.filter(email__iexact="stranger@example.org").count() == 1
    visitor.force_login(stranger)
    assert visitor.post(path).headers["Location"] == "/t/reasoning/"
    assert Membership.objects.get(user=stranger, team=team).role == Role.RESEARCHER


def test_a_proved_second_address_counts_and_an_unproved_one_does_not(as_owner: Client, stranger: User, as_stranger: Client) -> None:
    path = sent(as_owner, "other-address@example.org")
    address = EmailAddress.objects.create(user=stranger, email="other-address@example.org", verified=False)
    assert as_stranger.post(path).status_code == 403
    address.verified = True
    address.save()
    assert as_stranger.post(path).status_code == 302


def test_another_person_is_refused_in_words_and_the_link_stays_good(as_owner: Client, as_stranger: Client, team: Team) -> None:
    path = sent(as_owner)
    for response in (as_stranger.get(path), as_stranger.post(path)):
        assert response.status_code == 403
        page = response.content.decode()
        assert "new@example.org" in page
        assert "stranger@example.org" in page
    assert Membership.objects.filter(team=team).count() == 1
    assert new_account(path).status_code == 302


def test_an_expired_withdrawn_or_replaced_link_opens_nothing(as_owner: Client) -> None:
    path = sent(as_owner)
    Invitation.across_teams.update(expires_at=timezone.now())
    for client in (Client(), as_owner):
        assert "has expired" in client.get(path).content.decode()
    [made] = Invitation.across_teams.all()
    again = as_owner.post(f"/t/reasoning/team/invitations/{made.pk}/again/").content.decode()
    fresh = re.search(r"(/invitation/[-\w]+/)", again)
    assert fresh
    assert len(mail.outbox) == 2
    assert "newer link has replaced" in Client().get(path).content.decode()
    assert Client().get(fresh[1]).status_code == 200
    as_owner.post(f"/t/reasoning/team/invitations/{made.pk}/withdraw/")
    assert new_account(fresh[1]).status_code == 410
    assert Client().get("/invitation/nothing/").status_code == 410
    assert Client().get("/invitation/%ff%00/").status_code == 410


def test_who_is_in_the_team_or_invited_already_is_said_at_the_field(as_owner: Client, team: Team, teammate: User) -> None:
    sent(as_owner)
    for email, words in (
        ("NEW@example.org", "has an open invitation"),
        ("Teammate@example.org", "already in the team, as researcher"),
        ("no address", "valid email"),
        ("", "required"),
    ):
        response = as_owner.post(INVITE, {"email": email, "role": "viewer"})
        assert response.status_code == 422
        page = response.content.decode()
        assert words in page
        assert f'value="{email}"' in page or not email  # nothing typed is lost
    Membership.objects.filter(user=teammate).update(active=False)
    assert "Reactivate them" in as_owner.post(INVITE, {"email": teammate.email, "role": "viewer"}).content.decode()


def test_a_deactivated_member_does_not_come_back_by_an_older_link(as_owner: Client, team: Team, teammate: User) -> None:
    made = Invitation.objects.create(
        team=team, email=teammate.email, digest=invitations.hash_link_token("old"), expires_at=timezone.now() + timedelta(days=1)
    )
    Membership.objects.filter(user=teammate).update(active=False)
    client = Client()
    client.force_login(teammate)
    assert client.post("/invitation/old/").status_code == 410
    made.refresh_from_db()
    assert made.accepted_at is None
    assert not Membership.objects.get(user=teammate).active


def test_an_admin_makes_no_owner_and_sends_no_owners_invitation_again(as_owner: Client, team: Team) -> None:
    admin = make_member("admin@example.org", team, Role.ADMIN)
    client = Client()
    client.force_login(admin)
    assert client.post(INVITE, {"email": "x@example.org", "role": "owner"}).status_code == 422
    with pytest.raises(Refusal, match="Only an owner"):
        invitations.create_invitation(team, "x@example.org", "owner", admin)
    sent(as_owner, "y@example.org", "owner")
    made = Invitation.across_teams.get()
    assert client.post(f"/t/reasoning/team/invitations/{made.pk}/again/").status_code == 302
    made.refresh_from_db()
    assert made.invited_by != admin
    assert client.post(INVITE, {"email": "z@example.org", "role": "admin"}).status_code == 200


@pytest.mark.parametrize("role", ["researcher", "annotator", "viewer"])
def test_others_invite_nobody(team: Team, owner: User, role: str) -> None:
    client = Client()
    client.force_login(make_member("other@example.org", team, Role(role)))
    assert client.post(INVITE, {"email": "x@example.org", "role": "viewer"}).status_code == 403
    assert not Invitation.across_teams.exists()


def test_another_teams_invitations_are_not_found(as_owner: Client, as_stranger: Client) -> None:
    sent(as_owner)
    made = Invitation.across_teams.get()
    for verb in ("again", "withdraw"):
        for pk in (made.pk, 10**25):
            assert as_stranger.post(f"/t/elsewhere/team/invitations/{pk}/{verb}/").status_code == 404
    made.refresh_from_db()
    assert made.revoked_at is None


def test_a_team_sends_fifty_a_day(as_owner: Client, owner: User, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitations, "MOST_A_DAY", 2)
    sent(as_owner, "a@example.org")
    made = Invitation.across_teams.get()
    as_owner.post(f"/t/reasoning/team/invitations/{made.pk}/again/")  # counts too
    response = as_owner.post(INVITE, {"email": "b@example.org", "role": "viewer"})
    assert response.status_code == 422
    assert "the limit is 2" in response.content.decode()
    assert len(mail.outbox) == 2


@pytest.mark.django_db(transaction=True)
def test_of_two_who_use_one_link_at_once_one_gets_in(team: Team, owner: User) -> None:
    made = invitations.create_invitation(team, "new@example.org", "researcher", owner)
    secret, barrier = token(made.link.removeprefix("http://127.0.0.1:8000")), threading.Barrier(4)
    outcomes: list[str] = []

    def use(name: str) -> None:
        barrier.wait(60)
        try:
            invitations.accept_as_new(secret, name, PASSWORD)
            outcomes.append("in")
        except (Refusal, ValidationError):
            outcomes.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=use, args=(f"Person {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(outcomes) == ["in", "refused", "refused", "refused"]
    assert User.objects.filter(email="new@example.org").count() == 1
    assert Membership.objects.filter(team=team).count() == 2


@pytest.fixture
def other_team(db: None) -> Team:
    return Team.objects.create(name="Other", slug="other")


def queue(team: Team, name: str, status: QueueStatus = QueueStatus.OPEN) -> Queue:
    return Queue.objects.create(team=team, name=name, kind=Kind.PAIR, status=status, assigned_only=True)


def test_an_invitation_names_queues_and_one_closed_meanwhile_is_left_out_and_told(as_owner: Client, team: Team, other_team: Team) -> None:
    sums, words, gone = queue(team, "Sums"), queue(team, "Words"), queue(team, "Gone")
    queue(team, "Old", QueueStatus.CLOSED)
    queue(other_team, "Theirs")
    page = as_owner.get("/t/reasoning/team/").content.decode()
    assert all(name in page for name in ("Sums", "Words", "Gone"))
    assert "Old" not in page
    assert "Theirs" not in page
    path = sent(as_owner, queues=[sums.pk, words.pk, gone.pk])
    assert "for 3 queues" in as_owner.get("/t/reasoning/team/").content.decode()
    assert Entry.across_teams.get(action="member.invite").details == {"role": "annotator", "queues": ["Sums", "Words", "Gone"]}
    Queue.across_teams.filter(pk=words.pk).update(status=QueueStatus.CLOSED)
    gone.delete()
    visitor = Client()
    new_account(path, visitor)
    said = visitor.get("/t/reasoning/label/").content.decode()
    assert "You can label in Sums. Not in Words, a queue that is deleted: closed since you were invited." in said
    user = User.objects.get(email="new@example.org")
    assert list(QueueMember.across_teams.filter(user=user).values_list("queue", "labels")) == [(sums.pk, True)]
    assert Entry.across_teams.get(action="member.join").details["closed_queues"] == ["Words", "a queue that is deleted"]


def test_who_has_an_account_is_assigned_too_and_so_is_who_comes_by_single_sign_on(as_owner: Client, stranger: User, team: Team) -> None:
    sums = queue(team, "Sums")
    path, visitor = sent(as_owner, stranger.email, queues=[sums.pk]), Client()
    visitor.force_login(stranger)
    visitor.post(path)
    assert QueueMember.objects.filter(queue=sums, user=stranger, labels=True).exists()
    sent(as_owner, "sso@example.org", queues=[sums.pk])
    there = User.objects.create_user("sso@example.org")
    invitations.accept_all(there)
    assert QueueMember.objects.filter(queue=sums, user=there, labels=True).exists()


def test_queues_that_cannot_be_named_are_refused_at_their_field(as_owner: Client, owner: User, team: Team, other_team: Team) -> None:
    sums, theirs = queue(team, "Sums"), queue(other_team, "Theirs")
    closed = queue(team, "Closed", QueueStatus.CLOSED)
    for wrong in (theirs.pk, closed.pk, "x", 10**30):
        response = as_owner.post(INVITE, {"email": "new@example.org", "role": "annotator", "queues": [sums.pk, wrong]})
        assert response.status_code == 422
        page = response.content.decode()
        assert "One of these queues is no longer open." in page
        assert re.search(rf'value="{sums.pk}"[^>]*checked', page)
        assert "new@example.org" in page
    response = as_owner.post(INVITE, {"email": "new@example.org", "role": "viewer", "queues": [sums.pk]})
    assert response.status_code == 422
    assert "The role viewer cannot label. Choose another role, or no queue." in response.content.decode()
    with pytest.raises(Refusal, match="1 of these queues is not open"):
        invitations.create_invitation(team, "new@example.org", "annotator", owner, [theirs.pk])
    assert not Invitation.across_teams.exists()
