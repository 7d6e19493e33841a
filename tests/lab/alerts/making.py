"""What a team and a person have in the room of alerts: a notice, a rule each, a webhook and its delivery, with a mark in every text.

The webhook leads to an address set aside for documentation: its test is refused before anything leaves the machine.
"""

from __future__ import annotations

from lab.teams.accounts.models import Team, User
from lab.watching.alerts import addresses, kinds, signatures
from lab.watching.alerts.models import Delivery, DeliveryState, Notice, Rule, Webhook


def make_alerts(team: Team, user: User, mark: str) -> None:
    hook = Webhook.objects.create(
        team=team,
        name=f"webhook {mark}"[:80],
        **addresses.build_address_fields("https://192.0.2.1/"),
        secret=signatures.seal_webhook_secret(f"secret {mark}"),
    )
    condition = {"kind": kinds.METRIC, "metric": f"metric {mark}", "direction": "above", "number": 1e300, "words": f"word {mark}"[:100]}
    Rule.objects.create(team=team, owner=user, **condition)
    Rule.objects.create(team=team, owner=None, webhook=hook, **condition)
    words = {"key": f"made {mark}"[:200], "subject": f"subject {mark}"[:200], "text": f"text {mark}"}
    Notice.objects.create(team=team, user=user, kind=kinds.FINISHED, url=f"/t/{team.slug}/runs/", **words)
    event = {"kind": kinds.FINISHED, "subject": f"subject {mark}", "text": f"text {mark}", "url": "", "at": "2026-01-01T00:00:00+00:00"}
    Delivery.objects.create(team=team, webhook=hook, key=words["key"], event=event, state=DeliveryState.FAILED, problem="answered 500", status=500)
