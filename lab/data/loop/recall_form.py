"""What can be recalled: a labeller, a prompt, a queue or a setting of a rule, read from an address or a form, and told in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lab.data.datasets.models import Recall, RecallKind, Version
from lab.labelling.labels.models import Judgement, Queue
from lab.lib.numbers import parse_whole_number
from lab.rollouts.trajectories.models import Prompt
from lab.teams.accounts.models import Team, User

REASON_LENGTH = 2000
MOST_QUEUES = 300
SETTINGS = ("aggregation", "corrections", "margin", "heldout", "finished_only", "ties_against", "min_labels", "min_agreement")  # of a rule
CLEANING = ("action", "vote")
KINDS = {
    RecallKind.LABELLER: "Labeller",
    RecallKind.PROMPT: "Prompt",
    RecallKind.QUEUE: "Queue",
    RecallKind.RULE: "Rule setting",
}


@dataclass
class RecallForm:
    team: Team
    data: Mapping[str, str]
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        kind = self.data.get("kind", "")
        return kind if kind in KINDS else RecallKind.LABELLER

    @cached_property
    def people(self) -> list[User]:
        """Everybody of the team, and whoever has labelled in it."""
        labellers = Judgement.objects.of(self.team).order_by().values("user").distinct()
        members = self.team.memberships.values("user")
        return list(User.objects.filter(pk__in=labellers.union(members)).order_by("email"))

    @cached_property
    def queues(self) -> list[Queue]:
        return list(Queue.objects.of(self.team).order_by("-created_at")[:MOST_QUEUES])

    @cached_property
    def rules(self) -> list[tuple[str, str]]:
        """(value, words) of the settings that the team's versions were made under."""
        counts: Counter[str] = Counter()
        for rule in Version.objects.of(self.team).values_list("rule", flat=True):
            counts.update(json.dumps(part) for part in parts_of(rule))
        return sorted((value, f"{rule_words(json.loads(value))} ({count} version{'' if count == 1 else 's'})") for value, count in counts.items())

    @cached_property
    def target(self) -> Recall | None:
        """What is chosen, not saved; None while nothing is, with a message where it cannot be found."""
        recall = Recall(team=self.team, kind=self.kind)
        text = self.data.get(self.kind, "").strip()
        if not text:
            return None
        if self.kind == RecallKind.RULE:
            recall.rule = json.loads(text) if text in dict(self.rules) else None
            resolved = recall.rule is not None
        else:
            number = parse_whole_number(text) or 0
            resolved = getattr(self, f"_{self.kind}")(recall, number)
        if not resolved:
            self.errors[self.kind] = f"Your team has no such {KINDS[RecallKind(self.kind)].lower()}: “{text[:40]}”."
            return None
        return recall

    def _labeller(self, recall: Recall, number: int) -> bool:
        recall.labeller = next((user for user in self.people if user.pk == number), None)
        return recall.labeller is not None

    def _prompt(self, recall: Recall, number: int) -> bool:
        recall.prompt = Prompt.objects.filter(team=self.team, pk=number).values_list("pk", flat=True).first()
        return recall.prompt is not None

    def _queue(self, recall: Recall, number: int) -> bool:
        recall.queue = Queue.objects.of(self.team).filter(pk=number).first()
        return recall.queue is not None

    @cached_property
    def reason(self) -> str:
        text = self.data.get("reason", "").replace("\r\n", "\n").strip()
        if not text:
            self.errors["reason"] = "Enter a reason: it is shown with the flag."
        elif len(text) > REASON_LENGTH:
            self.errors["reason"] = f"At most {REASON_LENGTH:,} characters; this has {len(text):,}."
        return text


def parts_of(rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings of a stored rule that can be recalled, each as a part of it."""
    parts: list[dict[str, Any]] = [{name: rule[name]} for name in SETTINGS if name in rule]
    cleaning = rule.get("cleaning")
    if isinstance(cleaning, Mapping) and cleaning.get("by"):
        parts += [{"cleaning": {name: cleaning[name]}} for name in CLEANING if name in cleaning]
    return parts


def rule_words(part: Mapping[str, Any]) -> str:
    [(name, value)] = part.items()
    if isinstance(value, Mapping):
        [(inner, value)] = value.items()
        name = f"{name} {inner}"
    return f"{name.replace('_', ' ')} = {value if isinstance(value, str) else json.dumps(value)}"


def describe_recall(recall: Recall) -> str:
    """What a recall took back; what it named may be gone."""
    if recall.kind == RecallKind.LABELLER:
        return f"Labels by {recall.labeller}" if recall.labeller else "Labels by a deleted account"
    if recall.kind == RecallKind.PROMPT:
        text = Prompt.objects.filter(team=recall.team_id, pk=recall.prompt or 0).values_list("text", flat=True).first() or ""
        return f"Labels on prompt {recall.prompt}" + (f": “{text[:80]}{'…' if len(text) > 80 else ''}”" if text else "")
    if recall.kind == RecallKind.QUEUE:
        return f"Labels of the queue “{recall.queue}”" if recall.queue else "Labels of a deleted queue"
    return f"Versions created with {rule_words(recall.rule)}" if recall.rule else "Versions created with a rule"
