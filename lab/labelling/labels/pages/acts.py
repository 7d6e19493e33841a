"""What a lead does with a queue: open, pause, close, delete it, add items, and change its people. One verb a press."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.db import OperationalError, transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from lab.labelling.labels import item_order, queue_acts, queue_items
from lab.labelling.labels.forms import MOST_GOLD
from lab.labelling.labels.models import Queue, QueueStatus, Strategy
from lab.labelling.labels.pages.access import find_visible_queue
from lab.labelling.labels.recipe import MOST_ITEMS
from lab.labelling.labels.repeated_gold import repeat_gold
from lab.lib.numbers import parse_whole_number
from lab.rollouts.browse.regex import TooSlow
from lab.teams.accounts.models import User
from lab.teams.accounts.requests import LabRequest
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.form_tokens import act_once_per_token

MOST_MORE = 10_000  # items by one press


@require_POST
def run_queue_action(request: LabRequest, queue_id: int) -> HttpResponse:
    queue = find_visible_queue(request, queue_id)
    verb = VERBS.get(request.POST.get("act", ""))
    if verb is None:
        messages.error(request, "Unknown action. Nothing was changed.")
        return redirect("queue", queue_id=queue.pk)
    return redirect(verb(request, queue))


def set_status(status: QueueStatus, words: str) -> Callable[[LabRequest, Queue], str]:
    def verb(request: LabRequest, queue: Queue) -> str:
        queue_acts.set_status(queue, status)
        messages.success(request, words)
        return reverse("queue", args=[queue.pk])

    return verb


def delete_queue(request: LabRequest, queue: Queue) -> str:
    """Only while nobody has said anything: labels are never deleted with their queue. Its items are locked first, as everybody who labels does, so
    that no label arrives between the look and the deletion.
    """
    url = reverse("queue", args=[queue.pk])
    try:
        with transaction.atomic():
            len(queue.items.order_by("pk").select_for_update(nowait=True).values_list("pk"))
            locked = Queue.objects.select_for_update(nowait=True).same_row(queue).get()
            if locked.judgements.exists():
                messages.error(request, "This queue has labels, so it cannot be deleted. Close it instead: labelling stops and all labels are kept.")
                return url
            record_audit_entry("queue.delete", locked)
            locked.delete()
    except OperationalError:  # a lock is taken
        messages.error(request, "Someone is labelling in this queue right now, so it was not deleted. Pause it first, or try again.")
        return url
    messages.success(request, f"“{queue.name}” was deleted. It had no labels.")
    return reverse("queues")


def add_items(request: LabRequest, queue: Queue) -> str:
    """More of what the queue was made from."""
    url = reverse("queue", args=[queue.pk])
    count = parse_whole_number(request.POST.get("count", "").strip(), MOST_MORE)
    if not count:
        messages.error(request, f"More items: enter a whole number from 1 to {MOST_MORE:,}.")
        return url
    if queue.items.count() + count > MOST_ITEMS:
        messages.error(request, f"A queue has at most {MOST_ITEMS:,} items. Enter fewer, or create another queue.")
        return url
    try:
        plan = queue_items.plan_more_items(queue, count)
    except TooSlow:
        messages.error(request, "The regular expression of the selection is too slow. Nothing was added.")
        return url
    if not len(plan):
        messages.warning(request, f"The selection gives no further items: {nothing_left(plan)}. Copy the queue to change how items are created.")
        return url

    def add() -> str:
        added = queue_items.append_planned_items(queue, plan)
        record_audit_entry("queue.change", queue, items_added=added)
        messages.success(request, f"{added:,} more items.")
        return url

    return act_once_per_token(request, f"queue-more/{queue.pk}/{request.POST.get('token', '')[:64]}", add)


def ask_gold_again(request: LabRequest, queue: Queue) -> str:
    """Answered gold items of this queue, or of another of its kind, among those that still wait for labels."""
    url = reverse("queue", args=[queue.pk])
    count = parse_whole_number(request.POST.get("count", "").strip(), MOST_GOLD)
    source = request.POST.get("source", "")
    if not count:
        messages.error(request, f"Gold asked again: enter a whole number from 1 to {MOST_GOLD:,}.")
        return url
    if source and not Queue.objects.of(request.team).filter(pk=parse_whole_number(source) or 0, kind=queue.kind).exists():
        messages.error(request, "Gold asked again: this queue is gone or asks another kind of question. Choose one from the list.")
        return url

    def repeat() -> str:
        added = repeat_gold(queue, count, parse_whole_number(source), timezone.now())
        if added:
            messages.success(request, f"{added:,} gold item{'' if added == 1 else 's'} will be asked again, first of the people who answered before.")
        else:
            messages.warning(request, "Nothing to ask again: no gold item there has an answer, or all of them wait here already.")
        return url

    return act_once_per_token(request, f"queue-gold/{queue.pk}/{request.POST.get('token', '')[:64]}", repeat)


def nothing_left(plan: queue_items.QueuePlan) -> str:
    return "; ".join(f"{group.count:,} {group.what}: {group.why}" for group in plan.left_out[-3:]) or "it has no rollouts"


def reorder_queue_items(request: LabRequest, queue: Queue) -> str:
    url = reverse("queue", args=[queue.pk])
    if queue.strategy != Strategy.DISAGREEMENT:
        messages.error(request, "Only queues with the item order “disagreement first” can be re-ordered.")
        return url
    done = item_order.reorder_unseen_items(queue)
    rest = f"a model fitted on {done.votes:,} votes" if done.votes else "reward gap, spread and entropy (not enough votes for a model)"
    messages.success(request, f"{done.moved:,} unseen items re-ordered by {rest}.")
    return url


VERBS: dict[str, Callable[[LabRequest, Queue], str]] = {
    "pause": set_status(QueueStatus.PAUSED, "The queue is paused. Drafts are kept; no new items are assigned."),
    "close": set_status(QueueStatus.CLOSED, "The queue is closed. Its labels are kept."),
    "open": set_status(QueueStatus.OPEN, "The queue is open."),
    "delete": delete_queue,
    "more": add_items,
    "gold": ask_gold_again,
    "reorder": reorder_queue_items,
}


@require_POST
def change_people(request: LabRequest, queue_id: int) -> HttpResponse:
    """``act`` add, remove, resume, pause, reviewer, no-reviewer for the person ``user``."""
    queue = find_visible_queue(request, queue_id)
    key = parse_whole_number(request.POST.get("user", ""))
    if not key:
        messages.error(request, "Choose a person. Nothing was changed.")
        return redirect(reverse("queue", args=[queue.pk]) + "#people")
    user = get_object_or_404(User.objects.filter(memberships__team=queue.team), pk=key)
    messages.success(request, queue_acts.change_person(queue, user, request.POST.get("act", "")))
    return redirect(reverse("queue", args=[queue.pk]) + "#people")
