"""Something that happened, and which rules it concerns."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone

from lab.labelling.labels.models import Queue, QueueMember
from lab.teams.accounts.addresses import team_path
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from lab.watching.alerts.models import Rule


@dataclass(frozen=True)
class AlertEvent:
    """``key`` names it within its team, the same whenever it is seen. ``url`` is a path with the team; ``rule`` the only one it concerns."""

    team: Team
    kind: str
    key: str
    subject: str
    text: str = ""
    url: str = ""
    at: datetime = field(default_factory=timezone.now)
    run: Run | None = None
    queue: Queue | None = None
    rule: Rule | None = None
    step: int | None = None  # of the run: where its charts are marked …
    mark: str = ""  # … with these words


def build_run_event(
    run: Run, kind: str, key: str, subject: str, text: str = "", at: datetime | None = None, page: str = "run", rule: Rule | None = None
) -> AlertEvent:
    return AlertEvent(
        run.team, kind, f"run:{run.pk}:{key}", subject, text, team_path(run.team, page, run.pk), at or timezone.now(), run=run, rule=rule
    )


def is_event_for_rule(rule: Rule, event: AlertEvent) -> bool:
    """Whether the event is one the rule asks for. Who may be told is another question (``notifying``)."""
    if rule.kind != event.kind or rule.team_id != event.team.pk or event.at < rule.since:
        return False
    if event.rule is not None:
        return event.rule.pk == rule.pk
    return (event.run is None or of_interest(rule, event.run)) and (event.queue is None or queue_of_interest(rule, event.queue))


def of_interest(rule: Rule, run: Run) -> bool:
    if rule.mine and run.created_by_id != rule.owner_id:
        return False
    if rule.run_id is not None and rule.run_id != run.pk:
        return False
    if rule.project_id is not None and rule.project_id != run.project_id:
        return False
    if rule.recipe and rule.recipe != run.recipe:
        return False
    return rule.words.casefold() in run.name.casefold()


def queue_of_interest(rule: Rule, queue: Queue) -> bool:
    if rule.project_id is not None and rule.project_id != queue.project_id:
        return False
    if rule.words.casefold() not in queue.name.casefold():
        return False
    return not rule.mine or queue.created_by_id == rule.owner_id or is_user_assigned(queue, rule.owner_id)


def is_user_assigned(queue: Queue, user_id: int | None) -> bool:
    members = QueueMember.objects.filter(queue=queue, user=user_id, paused_at=None)
    return members.filter(labels=True).exists() or members.filter(reviews=True).exists()
