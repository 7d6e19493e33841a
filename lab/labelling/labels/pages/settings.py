"""What can still be changed about a queue. What would make earlier labels mean something else cannot, and the page says why."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.db.models import F
from django.http import HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from lab.labelling.labels import people, rubric
from lab.labelling.labels.forms import QueueForm, initial_of
from lab.labelling.labels.guidelines import render_guidelines
from lab.labelling.labels.models import ItemState, Queue
from lab.labelling.labels.pages.access import find_visible_queue
from lab.teams.accounts.requests import LabRequest
from lab.teams.audit.recording import record_audit_entry

FIXED = ("blind", "reviewed")  # once there are labels: they would be of two sorts
WHY = {
    "blind": "Blind and non-blind labels could not be told apart afterwards.",
    "reviewed": "Labels that already count would stop counting, or vice versa.",
    "overlap": "It can only increase: finished items would have too many labels.",
    "rubric": "Answered questions cannot be changed; new ones can be added.",
}


@require_http_methods(["GET", "HEAD", "POST"])
def edit_queue_settings(request: LabRequest, queue_id: int) -> HttpResponse:
    queue = find_visible_queue(request, queue_id)
    labelled = queue.judgements.exists()
    choices = people.list_labeller_choices(request.team)
    if request.method != "POST":
        return render_queue_settings(
            request, queue, QueueForm(None, request.team, choices, queue, initial_of(queue)), rubric.questions_of(queue.rubric), labelled
        )
    data = request.POST.copy()
    if labelled:
        for name in FIXED:  # an unticked box and a fixed one send the same
            data[name] = "on" if getattr(queue, name) else ""
    form = QueueForm(data, request.team, choices, queue)
    questions = rubric.read_questions(data)
    if labelled:
        check_answered(queue, form, questions)
    if not form.is_valid() or any(question.problems for question in questions):
        return render_queue_settings(request, queue, form, questions, labelled, status=422)
    save_queue_settings(queue, form, questions)
    messages.success(request, "Saved. Labellers get the changes with their next item.")
    return redirect("queue", queue_id=queue.pk)


def check_answered(queue: Queue, form: QueueForm, questions: list[rubric.RubricQuestion]) -> None:
    """What labels rest on: not fewer labels an item, and no question that people answered changed."""
    form.is_valid()
    overlap = form.cleaned_data.get("overlap")
    if overlap is not None and overlap < queue.overlap:
        form.add_error("overlap", f"{WHY['overlap']} Enter {queue.overlap} or more.")
    sent = {question["name"]: question for question in rubric.to_stored_questions(questions)}
    for old in queue.rubric:
        new = sent.get(old["name"])
        if new is None:
            questions.append(next(question for question in rubric.questions_of([old])))
            questions[-1].problems["label"] = "This question may have answers, so it cannot be removed. Make it optional instead."
        elif (new["kind"], new["choices"]) != (old["kind"], old.get("choices", [])):
            changed = next(question for question in questions if question.label == new["label"])
            changed.problems["kind"] = "This question may have answers, so its type and choices cannot change. Add another question instead."


def save_queue_settings(queue: Queue, form: QueueForm, questions: list[rubric.RubricQuestion]) -> None:
    fields = {**form.fields_of_queue(), "rubric": rubric.to_stored_questions(questions)}
    with transaction.atomic():
        locked = Queue.objects.select_for_update(no_key=True).same_row(queue).get()
        more = fields["overlap"] - locked.overlap
        was_assigned = locked.assigned_only
        record_audit_entry("queue.change", locked, **diff_queue_settings(locked, fields))
        for name, value in fields.items():
            setattr(locked, name, value)
        locked.save(update_fields=list(fields))
        if more:
            add_item_seats(locked, more)
        if locked.assigned_only:
            people.assign_labellers(locked, form.cleaned_data["people"])
        elif was_assigned:
            locked.members.filter(labels=False).update(labels=True)


LONG = ("guidelines", "rubric")  # named in the audit log, not repeated there


def diff_queue_settings(queue: Queue, fields: dict[str, Any]) -> dict[str, Any]:
    """Each setting that changes, with what it was and what it becomes."""
    changed = {name: (getattr(queue, name), value) for name, value in fields.items() if getattr(queue, name) != value}
    return {name: "changed" if name in LONG else [str(old), str(new)] for name, (old, new) in changed.items()}


def add_item_seats(queue: Queue, more: int) -> None:
    """``more`` further seats on every item that nobody has decided (fewer only while there are no labels)."""
    queue.items.filter(state__in=(ItemState.OPEN, ItemState.DONE, ItemState.CONFLICT)).update(room=F("room") + more)
    if more > 0:
        queue.items.filter(state__in=(ItemState.DONE, ItemState.CONFLICT)).update(state=ItemState.OPEN)


def render_queue_settings(
    request: LabRequest, queue: Queue, form: QueueForm, questions: list[rubric.RubricQuestion], labelled: bool, status: int = 200
) -> HttpResponse:
    context: dict[str, Any] = {
        "room": "label",
        "queue": queue,
        "form": form,
        "questions": questions,
        "question_kinds": rubric.KINDS,
        "empty_question": rubric.RubricQuestion(),
        "labelled": labelled,
        "fixed": FIXED if labelled else (),
        "why": WHY,
        "guidelines": render_guidelines(queue.guidelines),
        "failed": status != 200,
    }
    return TemplateResponse(request, "labels/settings.html", context, status=status)
