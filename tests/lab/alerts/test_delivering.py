"""Mails and webhooks leave the lab once, signed, to public addresses only, and are tried again when they fail."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import mail
from django.test import Client
from django.utils import timezone

from lab.teams.accounts.models import Membership, Team, User
from lab.teams.audit.models import Entry
from lab.watching.alerts import addresses, deliveries, kinds, mails, signatures
from lab.watching.alerts.models import Delivery, DeliveryState, Notice, Rule, Webhook
from lab.watching.alerts.notices import notify_members
from tests.security.test_incidents_requests import TAKEN, Server

pytestmark = pytest.mark.django_db
SECRET = "whsec_test"
FAILS = b"HTTP/1.1 503 Busy\r\n\r\nsecret-body"


@pytest.fixture
def receiver(settings: Any) -> Iterator[Callable[..., Server]]:
    settings.OUTGOING_ALLOW, settings.OUTGOING_PORTS = [ipaddress.ip_network("127.0.0.1/32")], [(1, 65535)]
    servers: list[Server] = []

    def begin(*answers: bytes) -> Server:
        servers.append(Server(list(answers) or [TAKEN]))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def hook_to(team: Team, server: Server) -> Webhook:
    url = f"http://127.0.0.1:{server.port}/hook"
    hook = Webhook.objects.create(team=team, name="Chat", **addresses.build_address_fields(url), secret=signatures.seal_webhook_secret(SECRET))
    Rule.objects.create(team=team, owner=None, kind=kinds.NEWS, inbox=False, webhook=hook)
    return hook


def tell(team: Team, key: str = "k1") -> None:
    notify_members(team, kinds.NEWS, "Run finished", url="/t/reasoning/runs/", text="Step 10 of 10.", key=key)


def soon() -> None:
    """As if the pauses were over."""
    Delivery.across_teams.update(next_try=timezone.now())


def parts(message: bytes) -> tuple[dict[str, str], bytes]:
    head, _, body = message.partition(b"\r\n\r\n")
    return dict(line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:]), body


@pytest.mark.feature(81)
def test_a_webhook_gets_a_signed_message_once(team: Team, receiver: Callable[..., Server], settings: Any) -> None:
    settings.LAB_URL = "https://lab.example.org"
    server = receiver()
    hook = hook_to(team, server)
    for _ in range(2):
        tell(team)
        deliveries.send_due_deliveries()
    [message] = server.got
    headers, body = parts(message)
    told = json.loads(body)
    one = Delivery.objects.get(webhook=hook)
    assert told == {
        "id": str(one.pk),
        "team": "reasoning",
        "kind": "news",
        "subject": "Run finished",
        "text": "Step 10 of 10.",
        "url": "https://lab.example.org/t/reasoning/runs/",
        "at": told["at"],
    }
    expected = hmac.new(SECRET.encode(), f"{headers['Policy-Lab-Timestamp']}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["Policy-Lab-Signature"] == f"v1={expected}"
    assert headers["Policy-Lab-Delivery"] == told["id"]
    assert abs(int(headers["Policy-Lab-Timestamp"]) - time.time()) < 60
    assert (one.state, one.status, one.tries) == (DeliveryState.DELIVERED, 204, 1)


def test_what_fails_is_tried_again_under_the_same_id_until_it_works(team: Team, receiver: Callable[..., Server]) -> None:
    server = receiver(FAILS, FAILS, TAKEN)
    hook = hook_to(team, server)
    tell(team)
    deliveries.send_due_deliveries()
    one = Delivery.across_teams.get()
    assert (one.state, one.status, one.problem) == (DeliveryState.WAITING, 503, "answered 503")
    assert one.next_try > timezone.now() + timedelta(seconds=10)
    deliveries.send_due_deliveries()
    assert len(server.got) == 1  # not before its time
    hook.refresh_from_db()
    assert hook.failing_since is not None
    for _ in range(3):
        soon()
        deliveries.send_due_deliveries()
    assert len({json.loads(parts(message)[1])["id"] for message in server.got}) == 1
    assert len(server.got) == 3
    hook.refresh_from_db()
    assert hook.failing_since is None
    assert Delivery.across_teams.get().state == DeliveryState.DELIVERED


def test_pauses_grow_and_end() -> None:
    assert all(FIRST / 2 <= deliveries.compute_retry_pause(1) <= FIRST for FIRST in [deliveries.FIRST_PAUSE] for _ in range(20))
    assert deliveries.compute_retry_pause(4) > deliveries.compute_retry_pause(1)
    assert deliveries.compute_retry_pause(100) <= deliveries.LONGEST_PAUSE


def test_a_delivery_is_given_up_and_a_webhook_that_failed_for_days_is_switched_off(team: Team, owner: User, receiver: Callable[..., Server]) -> None:
    hook = hook_to(team, receiver(FAILS))
    tell(team)
    for _ in range(deliveries.MAX_TRIES + 1):
        soon()
        deliveries.send_due_deliveries()
    one = Delivery.objects.get(webhook=hook)
    assert (one.state, one.tries) == (DeliveryState.FAILED, deliveries.MAX_TRIES)
    Webhook.across_teams.update(failing_since=timezone.now() - deliveries.GIVE_UP - timedelta(hours=1))
    tell(team, "k2")
    deliveries.send_due_deliveries()
    hook.refresh_from_db()
    assert not hook.enabled
    assert "answered 503" in hook.disabled_why
    assert Notice.across_teams.get(user=owner).kind == kinds.WEBHOOK
    tell(team, "k3")
    assert not Delivery.across_teams.filter(key="k3").exists()
    soon()
    deliveries.send_due_deliveries()
    assert Delivery.across_teams.get(key="k2").state == DeliveryState.DROPPED


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/", "http://169.254.169.254/latest/", "http://[::ffff:10.0.0.1]/", "https://localhost/"])
def test_a_webhook_reaches_nothing_inside(url: str, team: Team) -> None:
    hook = Webhook.objects.create(team=team, name="Inside", **addresses.build_address_fields(url), secret=signatures.seal_webhook_secret(SECRET))
    one = deliveries.send_webhook_test(hook)
    assert (one.state, one.status) == (DeliveryState.FAILED, None)
    assert "not on the public internet" in one.problem


def test_nothing_of_an_answer_is_kept_or_shown(team: Team, as_owner: Client, receiver: Callable[..., Server]) -> None:
    hook = hook_to(team, receiver(FAILS))
    as_owner.post(f"/alerts/webhooks/{hook.pk}/test/")
    page = as_owner.get(f"/alerts/webhooks/{hook.pk}/").content.decode()
    assert "answered 503" in page
    assert "secret-body" not in page + str(list(Delivery.across_teams.values_list()))


def test_after_a_rotation_both_secrets_sign_for_a_day(team: Team) -> None:
    hook = Webhook.objects.create(
        team=team, name="h", **addresses.build_address_fields("https://hooks.example.org/"), secret=signatures.seal_webhook_secret(SECRET)
    )
    fresh = signatures.rotate_signing_secret(hook)
    hook.refresh_from_db()
    assert signatures.secrets_of(hook) == [fresh, SECRET]
    assert signatures.sign_webhook_body(signatures.secrets_of(hook), 1, b"x").count("v1=") == 2
    Webhook.across_teams.update(former_until=timezone.now() - timedelta(seconds=1))
    hook.refresh_from_db()
    assert signatures.secrets_of(hook) == [fresh]
    assert SECRET.encode() not in bytes(hook.secret)


def test_a_mail_has_the_lab_s_own_links_and_no_header_of_its_text(team: Team, owner: User, settings: Any) -> None:
    settings.LAB_URL = "https://lab.example.org"
    Rule.objects.create(team=team, owner=owner, kind=kinds.NEWS, email=True)
    notify_members(team, kinds.NEWS, "a\r\nBcc: evil@example.org", url="/t/reasoning/runs/", text="line\n.\nend", key="k1")
    deliveries.send_due_deliveries()
    deliveries.send_due_deliveries()
    [sent] = mail.outbox
    assert sent.to == ["owner@example.org"]
    assert sent.subject == "[Reasoning] a Bcc: evil@example.org"
    assert "Bcc" not in sent.message()
    assert "https://lab.example.org/t/reasoning/runs/" in sent.body
    assert "https://lab.example.org/t/reasoning/alerts/" in sent.body
    assert "line\n.\nend" in sent.body
    assert str(Delivery.across_teams.get().pk) in sent.message()["Message-ID"]


def test_a_mail_to_who_has_left_meanwhile_is_dropped(team: Team, owner: User) -> None:
    Rule.objects.create(team=team, owner=owner, kind=kinds.NEWS, email=True)
    tell(team)
    Membership.objects.update(active=False)
    deliveries.send_due_deliveries()
    assert mail.outbox == []
    assert Delivery.across_teams.get().state == DeliveryState.DROPPED


def test_a_hundred_failing_runs_are_not_a_hundred_mails(team: Team, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mails, "AN_HOUR", 3)
    Rule.objects.create(team=team, owner=owner, kind=kinds.NEWS, inbox=False, email=True)
    for number in range(5):
        tell(team, f"k{number}")
    deliveries.send_due_deliveries()
    assert len(mail.outbox) == 3
    assert Notice.across_teams.filter(inbox=True).count() == 2
    assert Delivery.across_teams.filter(state=DeliveryState.DROPPED).count() == 2


def test_without_a_mail_server_no_mail_counts_as_delivered(team: Team, owner: User, settings: Any, tmp_path: Path) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = "lab.teams.accounts.mail.PrivateFolder", str(tmp_path / "mail")
    Rule.objects.create(team=team, owner=owner, kind=kinds.NEWS, inbox=False, email=True)
    tell(team)
    deliveries.send_due_deliveries()
    one = Delivery.across_teams.get()
    assert one.state == DeliveryState.DROPPED
    assert "no mail server (LAB_EMAIL_URL)" in one.problem
    assert Notice.across_teams.get().inbox
    assert len(list((tmp_path / "mail").iterdir())) == 1


def test_a_mail_server_that_is_away_is_tried_again(team: Team, owner: User, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", 1, 2
    Rule.objects.create(team=team, owner=owner, kind=kinds.NEWS, email=True)
    tell(team)
    deliveries.send_due_deliveries()
    one = Delivery.across_teams.get()
    assert (one.state, one.problem) == (DeliveryState.WAITING, "the e-mail could not be sent: ConnectionRefusedError")


def test_a_webhook_is_made_tested_and_given_a_new_secret_in_the_browser(team: Team, as_owner: Client, receiver: Callable[..., Server]) -> None:
    server = receiver()
    wrong = as_owner.post("/alerts/webhooks/new/", {"name": "Chat", "url": "http://10.0.0.1/", "enabled": "on"})
    assert "not on the public internet" in wrong.content.decode()
    assert 'value="http://10.0.0.1/"' in wrong.content.decode()
    made = as_owner.post("/alerts/webhooks/new/", {"name": "Chat", "url": f"http://127.0.0.1:{server.port}/", "enabled": "on"})
    hook = Webhook.across_teams.get()
    [secret] = signatures.secrets_of(hook)
    assert secret in made.content.decode()
    assert "no-store" in made.headers["Cache-Control"]
    assert secret not in as_owner.get(f"/alerts/webhooks/{hook.pk}/").content.decode()
    as_owner.post(f"/alerts/webhooks/{hook.pk}/test/")
    assert json.loads(parts(server.got[0])[1])["kind"] == "test"
    again = as_owner.post(f"/alerts/webhooks/{hook.pk}/secret/").content.decode()
    hook.refresh_from_db()
    assert signatures.secrets_of(hook)[0] in again
    assert signatures.secrets_of(hook)[1] == secret
    logged = list(Entry.across_teams.filter(action="webhook.change").values_list("details", flat=True))
    assert len(logged) == 2
    assert "whsec" not in str(logged)


def test_a_delivery_that_was_given_up_is_sent_again_by_hand(team: Team, as_owner: Client, receiver: Callable[..., Server]) -> None:
    server = receiver()
    hook_to(team, server)
    tell(team)
    Delivery.across_teams.update(state=DeliveryState.FAILED, tries=10)
    one = Delivery.across_teams.get()
    as_owner.post(f"/alerts/deliveries/{one.pk}/again/")
    deliveries.send_due_deliveries()
    assert json.loads(parts(server.got[0])[1])["id"] == str(one.pk)


def test_the_receiver_of_the_documentation_tells_genuine_messages(team: Team, receiver: Callable[..., Server]) -> None:
    text = (settings.BASE / "docs" / "alerts.md").read_text()
    example: dict[str, Any] = {}
    exec(text.split("```python\n")[1].split("```")[0], example)
    genuine = example["genuine"]
    server = receiver()
    hook = hook_to(team, server)
    signatures.rotate_signing_secret(hook)
    tell(team)
    deliveries.send_due_deliveries()
    headers, body = parts(server.got[0])
    assert genuine(SECRET, headers, body)  # the former secret still signs
    hook.refresh_from_db()
    assert genuine(signatures.secrets_of(hook)[0], headers, body)
    assert not genuine("whsec_other", headers, body)
    assert not genuine(SECRET, headers, body + b" ")
    assert not genuine(SECRET, headers, body, now=time.time() + 301)
    assert set(json.loads(text.split("```json\n")[1].split("```")[0])) == set(json.loads(body))


def test_the_documentation_names_every_kind() -> None:
    text = (settings.BASE / "docs" / "alerts.md").read_text()
    assert all(f"`{name}`" in text and one.words in text for name, one in kinds.KINDS.items() if one.ruled)
