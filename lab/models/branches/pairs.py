"""From a branch to a labelling queue: continuations against each other, or each against the completion they branch from.

What goes there becomes a rollout of the checkpoint's run (``lab.models.playground.stored_samples``), without a reward: that of a branch is of the
functions only, and no statistic of a run counts it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any

from django import forms
from django.db import transaction
from django.db.models import QuerySet

from lab.labelling.labels.models import Kind, Purpose, Queue, QueueStatus
from lab.labelling.labels.new_queues import NewItem, add_items, make_queue
from lab.labelling.labels.queue_items import taken_by
from lab.lib.numbers import MAX_ID
from lab.lib.refusals import Refusal
from lab.models.branches.models import Branch, Continuation
from lab.models.branches.requests import MOST_COUNT
from lab.models.playground.stored_samples import find_writer, store_as_rollouts
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from trainers.contract.events import Message

EACH, ORIGINAL = "each", "original"
AGAINST = ((ORIGINAL, "the original completion"), (EACH, "each other"))


def list_pair_queues(team: Team) -> QuerySet[Queue]:
    """That take more pairs, newest first."""
    return Queue.objects.of(team).filter(kind=Kind.PAIR, purpose=Purpose.LABELS).exclude(status=QueueStatus.CLOSED).order_by("-pk")


class PairForm(forms.Form):
    """Which pairs, and where to: an existing queue of pairs, or a new one where none is named."""

    against = forms.ChoiceField(label="Compare with", choices=AGAINST)
    numbers = forms.TypedMultipleChoiceField(label="Continuations", choices=[(n, str(n + 1)) for n in range(MOST_COUNT)], coerce=int, required=False)
    queue = forms.IntegerField(label="Queue", min_value=1, max_value=MAX_ID, required=False)
    name = forms.CharField(label="Name of the new queue", max_length=100, required=False)

    def __init__(self, branch: Branch, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        self.branch = branch
        self.chosen: Queue | None = None

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("queue") is not None:
            self.chosen = list_pair_queues(self.branch.team).filter(pk=given["queue"]).first()
            if self.chosen is None:
                self.add_error("queue", "Your team has no such open queue of pairs; choose another one, or a new one.")
        return given

    def add(self, user: User | None) -> tuple[Queue, int]:
        """The queue, and how many pairs were added. The form must be valid. Raises Refusal."""
        given = self.cleaned_data
        return add_branch_pairs(self.branch, user, given["against"], given["numbers"], self.chosen, given["name"].strip())


def add_branch_pairs(branch: Branch, user: User | None, against: str, numbers: Collection[int], queue: Queue | None, name: str) -> tuple[Queue, int]:
    """``numbers`` of continuations; none are all. Pairs that the queue has already are left out. Raises Refusal."""
    with transaction.atomic():
        locked = Branch.objects.select_for_update(of=("self",)).select_related("rollout__run", "rollout__prompt", "checkpoint").same_row(branch).get()
        if locked.is_open:
            raise Refusal("Wait until the continuations are written, or stop the branch.")
        rows = [one for one in locked.continuations.exclude(tokens=0) if not numbers or one.number in numbers]
        pairs = choose_pairs(locked, rows, against)
        if not pairs:
            raise Refusal("These completions are identical, or there is only one: there is nothing to compare.")
        needed = {one.pk for pair in pairs for one in pair if one is not None}
        store_continuations(locked, [one for one in rows if one.rollout is None and one.pk in needed])
        items = [
            NewItem(locked.rollout.prompt_id, (locked.rollout_id if first is None else first.rollout or 0, second.rollout or 0))
            for first, second in pairs
        ]
        if queue is None:
            made = make_queue(
                locked.team, user, name=name or f"Branch: rollout {locked.rollout_id}, token {locked.place}", kind=Kind.PAIR, items=items
            )
            return made, len(items)
        added = append_new_pairs(queue, items)
        if added:
            record_audit_entry("queue.change", queue, actor=user, items=added, branch=str(locked.pk))
    return queue, added


def choose_pairs(branch: Branch, rows: Sequence[Continuation], against: str) -> list[tuple[Continuation | None, Continuation]]:
    """Pairs that differ; None stands for the original completion."""
    if against == EACH:
        return [(first, second) for first, second in combinations(rows, 2) if first.text != second.text]
    return [(None, one) for one in rows if one.text != branch.rollout.completion]


def store_continuations(branch: Branch, rows: Sequence[Continuation]) -> None:
    """Raises Refusal while the checkpoint's run trains."""
    if rows:
        prompt = [Message(str(role), str(content)) for role, content in branch.rollout.prompt.messages]
        store_as_rollouts(find_writer(branch.team, branch.checkpoint, branch.label), rows, prompt, reference=branch.rollout.prompt.reference)


def append_new_pairs(queue: Queue, items: Sequence[NewItem]) -> int:
    """How many of the items the queue did not have."""
    Queue.objects.select_for_update(no_key=True).same_row(queue).get()
    known = taken_by(queue)
    return add_items(queue, [item for item in items if tuple(sorted(item.rollouts)) not in known])
