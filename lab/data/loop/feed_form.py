"""Which of a run's groups go where: into a queue there is, or into a new one."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db import transaction

from lab.data.loop.feed_chores import restart_feed
from lab.data.loop.models import Feed
from lab.labelling.labels.forms import LabForm, make_choice_field, make_number_field
from lab.labelling.labels.models import Kind, Purpose, Queue, QueueStatus, Strategy
from lab.labelling.labels.new_queues import make_queue
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Run

NEW = "new"
KINDS = ((Kind.RANKING.value, "Rank the whole group, with ties"), (Kind.PAIR.value, "One pair of each group"))
KIND_WORDS = {Kind.RANKING.value: "rankings", Kind.PAIR.value: "pairs"}
OFFERED = 100  # queues
MOST_LABELS = 9
MOST_ROUTED = 100_000


class FeedForm(LabForm):
    """``queue`` is "new" or the id of a queue; name, kind, strategy and overlap are those of a new one."""

    queue = forms.ChoiceField(error_messages={"invalid_choice": "Your team has no such open queue. Choose one from the list."})
    name = forms.CharField(required=False, max_length=100)
    kind = make_choice_field(KINDS, Kind.RANKING)
    strategy = make_choice_field(Strategy.choices, Strategy.LARGEST_GAP)
    overlap = make_number_field(1, MOST_LABELS, 1)
    share = make_number_field(1, 100, 20)
    most = make_number_field(1, MOST_ROUTED, 200)
    stored = forms.BooleanField(required=False)

    def __init__(self, data: Any, run: Run) -> None:
        self.run = run
        super().__init__(data, initial={"queue": NEW, "name": f"#{run.number} {run.name}, live"[:100]})
        self.queues = {str(queue.pk): queue for queue in list_eligible_queues(run)}
        named: Any = self.fields["queue"]
        named.choices = [(NEW, "New queue"), *((pk, f"{queue.name} ({KIND_WORDS[queue.kind]})") for pk, queue in self.queues.items())]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if data.get("queue") == NEW and not (data.get("name") or "").strip():
            self.add_error("name", "Enter a name for the new queue.")
        chosen = self.queues.get(data.get("queue", ""))
        if chosen is not None and Feed.objects.filter(run=self.run, queue=chosen, stopped_at=None).exists():
            self.add_error("queue", "This run already feeds this queue. Stop that feed first, or choose another queue.")
        return data

    def save(self, user: User) -> Feed:
        """Starts the feed, or lets one that was stopped go on where it was. Of a form that is valid."""
        data, run = self.cleaned_data, self.run
        share, most = data["share"] / 100, data["most"]
        with transaction.atomic():
            queue = self.queues.get(data["queue"]) or self.new_queue(user)
            seen_to = 0 if data["stored"] else run.last_rollout
            fields = {"team": run.team, "share": share, "most": most, "seen_to": seen_to, "created_by": user}
            feed, created = Feed.objects.get_or_create(run=run, queue=queue, defaults=fields)
            if not created:
                restart_feed(feed, share, most)
            record_audit_entry("feed.start", feed, actor=user, share=share, most=most)
        return feed

    def new_queue(self, user: User) -> Queue:
        data = self.cleaned_data
        kind = Kind(data["kind"])
        selection = f"run={self.run.number}"
        settings = {"strategy": data["strategy"], "overlap": data["overlap"], "selection": selection, "project": self.run.project}
        return make_queue(self.run.team, user, name=data["name"].strip(), kind=kind, **settings)


def list_eligible_queues(run: Run) -> list[Queue]:
    """Queues that groups can go into: not those of matches and of trainers' questions."""
    queues = Queue.objects.of(run.team).filter(purpose=Purpose.LABELS, kind__in=KIND_WORDS).exclude(status=QueueStatus.CLOSED)
    return list(queues.order_by("-created_at")[:OFFERED])
