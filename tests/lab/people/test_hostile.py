"""What people type about themselves and their teams: no field breaks on it, and no page holds it as markup."""

from typing import Any
from urllib.parse import urlencode

import pytest
from django.core import mail
from django.test import Client

from lab.teams.accounts.models import JoinRequest, Membership, Team, User
from lab.teams.people import invitations
from tests.conftest import make_member
from tests.hostile import MARK, PAYLOADS, stored

pytestmark = pytest.mark.django_db

FORM = "application/x-www-form-urlencoded"


def post(client: Client, path: str, **fields: str) -> Any:
    return client.post(path, urlencode(fields, errors="surrogatepass"), content_type=FORM)


def test_every_text_field_takes_or_refuses_every_payload(team: Team, owner: User, as_owner: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitations, "MOST_A_DAY", 10_000)
    link = invitations.create_invitation(team, "new@example.org", "viewer", owner).link
    invitation = "/" + link.split("/", 3)[3]
    broken = []
    for text in PAYLOADS:
        answers = (
            post(as_owner, "/t/reasoning/team/invite/", email=text, role=text),
            post(as_owner, "/t/reasoning/team/invite/", email=f'"{text[:40]}"@example.org', role="viewer"),
            post(as_owner, "/t/reasoning/team/settings/", name=text),
            post(as_owner, "/t/reasoning/team/delete/", name=f"not {text}"),
            post(as_owner, "/teams/join/", team=text, message=text),
            post(as_owner, "/teams/new/", name=text[:80]),
            post(Client(), invitation, name=text, password="short"),
            post(Client(), f"/invitation/{stored(text)[:50]}".split("\n")[0].replace("\r", ""), name=text),
            as_owner.get("/teams/join/", {"team": stored(text)[:500]}),
        )
        broken += [(text[:30], answer.request["PATH_INFO"], answer.status_code) for answer in answers if answer.status_code >= 500]
        broken += [(text[:30], answer.request["PATH_INFO"]) for answer in answers if holds_markup(answer)]
    assert broken == []
    for message in mail.outbox:
        assert "\n" not in message.subject


def holds_markup(response: Any) -> bool:
    page = response.content.decode()
    return any(f"{before}window.{MARK}" in page for before in ("<script>", "<img src=x onerror=", "<svg onload="))


@pytest.mark.parametrize("text", [text for text in PAYLOADS if MARK in text], ids=lambda text: text[:20])
def test_no_page_of_the_room_holds_it_as_markup(text: str, team: Team, owner: User, as_owner: Client) -> None:
    member = make_member("evil@example.org", team)
    User.objects.filter(pk__in=(member.pk, owner.pk)).update(first_name=stored(text)[:150])
    Team.objects.filter(pk=team.pk).update(name=stored(text)[:80], join_requests=True)
    asking = User.objects.create_user("asking@example.org", "x", first_name=stored(text)[:150])
    JoinRequest.objects.create(team=team, user=asking, message=stored(text)[:300])
    invitation = invitations.create_invitation(Team.objects.get(pk=team.pk), "new@example.org", "viewer", owner).link
    pk = Membership.objects.get(user=member).pk
    pages = [f"/t/reasoning/team/{page}" for page in ("", f"members/{pk}/", "role/", "settings/", "transfer/", "leave/", "delete/")]
    for path in (*pages, "/teams/", "/t/reasoning/nothing/", "/" + invitation.split("/", 3)[3]):
        page = (Client() if "/invitation/" in path else as_owner).get(path).content.decode()
        assert stored(text)[:30] not in page, path
        assert f"<script>window.{MARK}" not in page, path
