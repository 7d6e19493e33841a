"""What the lab tells people about: each kind with its words, whom it may reach, and what a rule of that kind may be narrowed to."""

from __future__ import annotations

from dataclasses import dataclass

from lab.lib.registry import Registry

FINISHED, FAILED, STALLED = "run-finished", "run-failed", "run-stalled"
METRIC, FLAT, DOCTOR = "metric", "metric-flat", "doctor"
DUE, CONFLICTS = "queue-due", "labels-conflict"
QUOTA, PROMOTION = "quota", "promotion"
WEBHOOK, NEWS = "webhook", "news"


@dataclass(frozen=True)
class AlertKind:
    """``permission``: only people whose role has it are told. ``about``: run, queue or team. ``ruled``: whether people make rules of it."""

    name: str
    words: str
    help: str
    permission: str
    about: str
    ruled: bool = True
    default: bool = False  # everybody whose role allows it begins with such a rule
    mail: bool = False  # … which also sends mail


KINDS: Registry[AlertKind] = Registry.of(
    "kind of notice",
    (
        AlertKind(FINISHED, "Run finished", "A run reached its last step.", "runs.read", "run", default=True),
        AlertKind(FAILED, "Run failed", "A run ended with an error, or lost its worker too often.", "runs.read", "run", default=True, mail=True),
        AlertKind(
            STALLED, "Run stalled or lost", "A trainer has reported nothing for two minutes, or its worker is lost.", "runs.read", "run", default=True
        ),
        AlertKind(METRIC, "Metric above or below a threshold", "Once per run, at the first value past the threshold.", "runs.read", "run"),
        AlertKind(FLAT, "Metric without change", "Once per run, when a metric stays within a band for that many steps.", "runs.read", "run"),
        AlertKind(DOCTOR, "Health check finding", "Once for each finding of a run's health checks during training.", "runs.read", "run"),
        AlertKind(
            DUE,
            "Queue due",
            "A day before a queue with unfinished items is due, and when it is overdue.",
            "label.see",
            "queue",
            default=True,
            mail=True,
        ),
        AlertKind(
            CONFLICTS, "Labels in conflict", "Labels of a queue differ and need a decision; at most once a day per queue.", "label.lead", "queue"
        ),
        AlertKind(QUOTA, "Quota nearly or fully used", "The team has used most or all of a quota.", "usage.read", "team"),
        AlertKind(PROMOTION, "Alias requested", "Someone requested an alias for a checkpoint.", "policies.promote", "team", default=True),
        AlertKind(WEBHOOK, "Webhook disabled", "A webhook failed for days and was disabled.", "alerts.manage", "team", ruled=False),
        AlertKind(NEWS, "Other", "Other events that concern you.", "lab.enter", "team", ruled=False),
    ),
)
ON_METRICS = (METRIC, FLAT)
