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
class Kind:
    """``permission``: only people whose role has it are told. ``about``: run, queue or team. ``ruled``: whether people make rules of it."""

    name: str
    words: str
    help: str
    permission: str
    about: str
    ruled: bool = True
    default: bool = False  # everybody whose role allows it begins with such a rule
    mail: bool = False  # … which also sends mail


KINDS: Registry[Kind] = Registry.of(
    "kind of notice",
    (
        Kind(FINISHED, "Run finished", "A run reached its last step.", "runs.read", "run", default=True),
        Kind(FAILED, "Run failed", "A run ended with an error, or lost its worker too often.", "runs.read", "run", default=True, mail=True),
        Kind(STALLED, "Run stalled or lost", "A trainer has been silent for two minutes, or its worker is gone.", "runs.read", "run", default=True),
        Kind(METRIC, "Metric above or below a number", "Once a run, at the first point beyond the number.", "runs.read", "run"),
        Kind(FLAT, "Metric without change", "Once a run, when a metric stayed within a band for that many steps.", "runs.read", "run"),
        Kind(DOCTOR, "Doctor finding", "Once for each thing the doctor finds in a run while it trains.", "runs.read", "run"),
        Kind(
            DUE, "Queue due", "A day before a queue is due while items wait, and when it is overdue.", "label.see", "queue", default=True, mail=True
        ),
        Kind(CONFLICTS, "Labels in conflict", "Labels of a queue differ and wait for a decision; at most once a day a queue.", "label.lead", "queue"),
        Kind(QUOTA, "Quota near or over", "The team has used most or all of a quota.", "usage.read", "team"),
        Kind(PROMOTION, "Promotion asked", "Somebody proposed a checkpoint for an alias.", "policies.promote", "team", default=True),
        Kind(WEBHOOK, "Webhook switched off", "A webhook failed for days and was switched off.", "alerts.manage", "team", ruled=False),
        Kind(NEWS, "News", "Something else that concerns you.", "lab.enter", "team", ruled=False),
    ),
)
ON_METRICS = (METRIC, FLAT)
