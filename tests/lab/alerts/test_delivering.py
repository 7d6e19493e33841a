"""Mails and webhooks leave the lab once, signed, to public addresses only, and are tried again when they fail."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core import mail
from django.test import Client
from django.utils import timezone

from lab.accounts.models import Membership, Team, User
from lab.alerts import delivering, kinds, mails, signing
from lab.alerts.models import Delivery, DeliveryState, Notice, Rule, Webhook
from lab.alerts.notifying import notify
from lab.audit.models import Entry
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
        server.listener.close()


def hook_to(team: Team, server: Server) -> Webhook:
    url = f"http://127.0.0.1:{server.port}/hook"
    hook = Webhook.objects.create(team=team, name="Chat", url=url, secret=signing.keep(SECRET))
    Rule.objects.create(team=team, owner=None, kind=kinds.NEWS, inbox=False, webhook=hook)
    return hook


def tell(team: Team, key: str = "k1") -> None:
    notify(team, kinds.NEWS, "Run finished", url="/t/reasoning/runs/", text="Step 10 of 10.", key=key)


def soon() -> None:
    """As if the pauses were over."""
    Delivery.objects.update(next_try=timezone.now())


def parts(message: bytes) -> tuple[dict[str, str], bytes]:
    head, _, body = message.partition(b"\r\n\r\n")
    return dict(line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:]), body


def test_a_webhook_gets_a_signed_message_once(team: Team, receiver: Callable[..., Server], settings: Any) -> None:
    settings.LAB_URL = "https://lab.example.org"
    server = receiver()
    hook = hook_to(team, server)
    for _ in range(2):
        tell(team)
        delivering.deliver()
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
    delivering.deliver()
    one = Delivery.objects.get()
    assert (one.state, one.status, one.problem) == (DeliveryState.WAITING, 503, "answered 503")
    assert one.next_try > timezone.now() + timedelta(seconds=10)
    delivering.deliver()
    assert len(server.got) == 1  # not before its time
    hook.refresh_from_db()
    assert hook.failing_since is not None
    for _ in range(3):
        soon()
        delivering.deliver()
    assert len({json.loads(parts(message)[1])["id"] for message in server.got}) == 1
    assert len(server.got) == 3
    hook.refresh_from_db()
    assert hook.failing_since is None
    assert Delivery.objects.get().state == DeliveryState.DELIVERED


def test_pauses_grow_and_end() -> None:
    assert all(FIRST / 2 <= delivering.pause(1) <= FIRST for FIRST in [delivering.FIRST_PAUSE] for _ in range(20))
    assert delivering.pause(4) > delivering.pause(1)
    assert delivering.pause(100) <= delivering.LONGEST_PAUSE


def test_a_delivery_is_given_up_and_a_webhook_that_failed_for_days_is_switched_off(team: Team, owner: User, receiver: Callable[..., Server]) -> None:
    hook = hook_to(team, receiver(FAILS))
    tell(team)
    for _ in range(delivering.MAX_TRIES + 1):
        soon()
        delivering.deliver()
    one = Delivery.objects.get(webhook=hook)
    assert (one.state, one.tries) == (DeliveryState.FAILED, delivering.MAX_TRIES)
    Webhook.objects.update(failing_since=timezone.now() - delivering.GIVE_UP - timedelta(hours=1))
    tell(team, "k2")
    delivering.deliver()
    hook.refresh_from_db()
    assert not hook.enabled
    assert "answered 503" in hook.disabled_why
    assert Notice.objects.get(user=owner).kind == kinds.WEBHOOK
    tell(team, "k3")
    assert not Delivery.objects.filter(key="k3").exists()
    soon()
    delivering.deliver()
    assert Delivery.objects.get(key="k2").state == DeliveryState.DROPPED


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/", "http://169.254.169.254/latest/", "http://[::ffff:10.0.0.1]/", "https://localhost/"])
def test_a_webhook_reaches_nothing_inside(url: str, team: Team) -> None:
    hook = Webhook.objects.create(team=team, name="Inside", url=url, secret=signing.keep(SECRET))
    one = delivering.test(hook)
    assert (one.state, one.status) == (DeliveryState.FAILED, None)
    assert "not on the public internet" in one.problem


def test_nothing_of_an_answer_is_kept_or_shown(team: Team, as_owner: Client, receiver: Callable[..., Server]) -> None:
    hook = hook_to(team, receiver(FAILS))
    as_owner.post(f"/alerts/webhooks/{hook.pk}/test/")
    page = as_owner.get(f"/alerts/webhooks/{hook.pk}/").content.decode()
    assert "answered 503" in page
    assert "secret-body" not in page + str(list(Delivery.objects.values_list()))


def test_after_a_rotation_both_secrets_sign_for_a_day(team: Team) -> None:
    hook = Webhook.objects.create(team=team, name="h", url="https://hooks.example.org/", secret=signing.keep(SECRET))
    fresh = signing.rotate(hook)
    hook.refresh_from_db()
    assert signing.secrets_of(hook) == [fresh, SECRET]
    assert signing.signature(signing.secrets_of(hook), 1, b"x").count("v1=") == 2
    Webhook.objects.update(former_until=timezone.now() - timedelta(seconds=1))
    hook.refresh_from_db()
    assert signing.secrets_of(hook) == [fresh]
    assert SECRET.encode() not in bytes(hook.secret)


def test_a_mail_has_the_lab_s_own_links_and_no_header_of_its_text(team: Team, owner: User, settings: Any) -> None:
    settings.LAB_URL = "https://lab.example.org"
    Rule.objects.create(team=team, owner=owner, kind=kinds.NEWS, email=True)
    notify(team, kinds.NEWS, "a\r\nBcc: evil@example.org", url="/t/reasoning/runs/", text="line\n.\nend", key="k1")
    delivering.deliver()
    delivering.deliver()
    [sent] = mail.outbox
    assert sent.to == ["owner@example.org"]
    assert sent.subject == "[Reasoning] a Bcc: evil@example.org"
    assert "Bcc" not in sent.message()
    assert "https://lab.example.org/t/reasoning/runs/" in sent.body
    assert "https://lab.example.org/t/reasoning/alerts/" in sent.body
    assert "line\n.\nend" in sent.body
    assert str(Delivery.objects.get().pk) in sent.message()["Message-ID"]


def test_a_mail_to_who_has_left_meanwhile_is_dropped(team: Team, owner: User) -> None:
    Rule.objects.create(team=team, owner=owner, kind=kinds.NEWS, email=True)
    tell(team)
    Membership.objects.update(active=False)
    delivering.deliver()
    assert mail.outbox == []
    assert Delivery.objects.get().state == DeliveryState.DROPPED


def test_a_hundred_failing_runs_are_not_a_hundred_mails(team: Team, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mails, "AN_HOUR", 3)
    Rule.objects.create(team=team, owner=owner, kind=kinds.NEWS, inbox=False, email=True)
    for number in range(5):
        tell(team, f"k{number}")
    delivering.deliver()
    assert len(mail.outbox) == 3
    assert Notice.objects.filter(inbox=True).count() == 2
    assert Delivery.objects.filter(state=DeliveryState.DROPPED).count() == 2


def test_a_mail_server_that_is_away_is_tried_again(team: Team, owner: User, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", 1, 2
    Rule.objects.create(team=team, owner=owner, kind=kinds.NEWS, email=True)
    tell(team)
    delivering.deliver()
    one = Delivery.objects.get()
    assert (one.state, one.problem) == (DeliveryState.WAITING, "the mail could not be sent: ConnectionRefusedError")


def test_a_webhook_is_made_tested_and_given_a_new_secret_in_the_browser(team: Team, as_owner: Client, receiver: Callable[..., Server]) -> None:
    server = receiver()
    wrong = as_owner.post("/alerts/webhooks/new/", {"name": "Chat", "url": "http://10.0.0.1/", "enabled": "on"})
    assert "not on the public internet" in wrong.content.decode()
    assert 'value="http://10.0.0.1/"' in wrong.content.decode()
    made = as_owner.post("/alerts/webhooks/new/", {"name": "Chat", "url": f"http://127.0.0.1:{server.port}/", "enabled": "on"})
    hook = Webhook.objects.get()
    [secret] = signing.secrets_of(hook)
    assert secret in made.content.decode()
    assert "no-store" in made.headers["Cache-Control"]
    assert secret not in as_owner.get(f"/alerts/webhooks/{hook.pk}/").content.decode()
    as_owner.post(f"/alerts/webhooks/{hook.pk}/test/")
    assert json.loads(parts(server.got[0])[1])["kind"] == "test"
    again = as_owner.post(f"/alerts/webhooks/{hook.pk}/secret/").content.decode()
    hook.refresh_from_db()
    assert signing.secrets_of(hook)[0] in again
    assert signing.secrets_of(hook)[1] == secret
    logged = list(Entry.objects.filter(action="webhook.change").values_list("details", flat=True))
    assert len(logged) == 2
    assert "whsec" not in str(logged)


def test_a_delivery_that_was_given_up_is_sent_again_by_hand(team: Team, as_owner: Client, receiver: Callable[..., Server]) -> None:
    server = receiver()
    hook_to(team, server)
    tell(team)
    Delivery.objects.update(state=DeliveryState.FAILED, tries=10)
    one = Delivery.objects.get()
    as_owner.post(f"/alerts/deliveries/{one.pk}/again/")
    delivering.deliver()
    assert json.loads(parts(server.got[0])[1])["id"] == str(one.pk)


def test_the_receiver_of_the_documentation_tells_genuine_messages(team: Team, receiver: Callable[..., Server]) -> None:
    text = (settings.BASE / "docs" / "alerts.md").read_text()
    example: dict[str, Any] = {}
    exec(text.split("```python\n")[1].split("```")[0], example)
    genuine = example["genuine"]
    server = receiver()
    hook = hook_to(team, server)
    signing.rotate(hook)
    tell(team)
    delivering.deliver()
    headers, body = parts(server.got[0])
    assert genuine(SECRET, headers, body)  # the former secret still signs
    hook.refresh_from_db()
    assert genuine(signing.secrets_of(hook)[0], headers, body)
    assert not genuine("whsec_other", headers, body)
    assert not genuine(SECRET, headers, body + b" ")
    assert not genuine(SECRET, headers, body, now=time.time() + 301)
    assert set(json.loads(text.split("```json\n")[1].split("```")[0])) == set(json.loads(body))


def test_the_documentation_names_every_kind() -> None:
    text = (settings.BASE / "docs" / "alerts.md").read_text()
    assert all(f"`{name}`" in text and one.words in text for name, one in kinds.KINDS.items() if one.ruled)
