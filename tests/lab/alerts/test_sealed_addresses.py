"""A webhook's address lets whoever knows it post there: it is stored sealed and no page, answer or file shows it whole."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from lab.teams.accounts.models import Team, User
from lab.watching.alerts import addresses, deliveries, signatures
from lab.watching.alerts.models import Webhook

SECRET_PATH = "/services/T0000/B0000/abcdefghijklmnopdK3f"
URL = f"https://hooks.example.org{SECRET_PATH}"
SHOWN = "https://hooks.example.org/…dK3f"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, SHOWN),
        ("https://hooks.example.org:8443/hook?token=abcdefghijklmnop", "https://hooks.example.org:8443/…mnop"),
        ("https://hooks.example.org/short", "https://hooks.example.org/…"),
        ("https://hooks.example.org/?key=secret", "https://hooks.example.org/…"),
        ("https://hooks.example.org", "https://hooks.example.org"),
        ("https://[2606:4700::1]/", "https://[2606:4700::1]/"),
    ],
)
def test_an_address_is_shown_without_what_lets_one_in(url: str, shown: str) -> None:
    assert addresses.shorten_webhook_url(url) == shown


def test_it_is_sealed_in_the_database_and_on_every_page(team: Team, as_owner: Client) -> None:
    as_owner.post("/alerts/webhooks/new/", {"name": "Chat", "url": URL, "enabled": "on"})
    hook = Webhook.across_teams.get()
    assert addresses.address_of(hook) == URL
    with connection.cursor() as cursor:
        cursor.execute("SELECT alerts_webhook::text FROM alerts_webhook")
        stored = str(cursor.fetchall())
    pages = [as_owner.get(path).content.decode() for path in ("/alerts/team/", f"/alerts/webhooks/{hook.pk}/")]
    for text in (stored, *pages):
        assert "B0000" not in text
        assert SHOWN in text or SHOWN.encode("unicode_escape").decode() in text


@pytest.mark.parametrize("written", ["", SHOWN])
def test_a_change_without_an_address_keeps_it_and_one_with_it_replaces_it(team: Team, as_owner: Client, written: str) -> None:
    hook = Webhook.objects.create(team=team, name="Chat", **addresses.build_address_fields(URL), secret=signatures.seal_webhook_secret("whsec"))
    as_owner.post(f"/alerts/webhooks/{hook.pk}/", {"name": "Other", "url": written, "enabled": "on"})
    hook.refresh_from_db()
    assert (hook.name, addresses.address_of(hook)) == ("Other", URL)
    as_owner.post(f"/alerts/webhooks/{hook.pk}/", {"name": "Other", "url": "https://other.example.org/", "enabled": "on"})
    hook.refresh_from_db()
    assert addresses.address_of(hook) == hook.shown == "https://other.example.org/"


def test_under_another_signing_key_the_delivery_says_what_to_do(team: Team, settings: Any) -> None:
    hook = Webhook.objects.create(team=team, name="Chat", **addresses.build_address_fields(URL), secret=signatures.seal_webhook_secret("whsec"))
    settings.SECRET_KEY = "another key " * 6
    assert deliveries.send_webhook_test(hook).problem == "this webhook address was stored with a different signing key; enter it again"


@pytest.mark.django_db(transaction=True)
def test_the_migration_seals_what_is_there_and_can_be_taken_back(team: Team, owner: User) -> None:
    def at(name: str) -> Any:
        executor = MigrationExecutor(connection)
        executor.migrate([("alerts", name)])
        return executor.loader.project_state([("alerts", name)]).apps.get_model("alerts", "Webhook")

    try:
        at("0001_alerts").objects.create(
            team_id=team.pk, name="Chat", url=URL, secret=signatures.seal_webhook_secret("whsec"), created_by_id=owner.pk
        )
        after = at("0003_sealed_addresses").objects.get()
        assert addresses.address_of(after) == URL
        assert after.shown == SHOWN
        assert at("0001_alerts").objects.get().url == URL
    finally:
        call_command("migrate", verbosity=0)
