"""Many labels sent back at once, with one comment: those ticked in the review list, or all that its filter shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from lab.labelling.labels.answers import AnswerError
from lab.labelling.labels.labeller_standing import may_review
from lab.labelling.labels.models import Judgement
from lab.labelling.quality.access import find_quality_queue
from lab.labelling.quality.posted_forms import body_of, comment_of
from lab.labelling.quality.review import SENDABLE, ReviewQuery, judgements_of, record_review, render_review_page
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Problem, Refusal
from lab.teams.accounts.models import User
from lab.teams.accounts.requests import LabRequest
from lab.teams.audit.recording import record_audit_entry

AT_ONCE = 200  # labels by one press: each is changed under its item's lock


@require_POST
def send_back_many(request: LabRequest, queue_id: int) -> HttpResponse:
    """The labels ``judgement``, or with ``all`` those of the filter up to ``newest``, the last one the person could know of."""
    queue = find_quality_queue(request, queue_id)
    may_review(queue, request.user)
    query = ReviewQuery(request.GET)
    ticked = {key for text in request.POST.getlist("judgement")[:AT_ONCE] if (key := parse_whole_number(text))}
    rows = judgements_of(request, queue, query) if query.state in SENDABLE else Judgement.objects.none()
    if request.POST.get("all"):
        rows = rows.filter(pk__lte=parse_whole_number(request.POST.get("newest", "")) or 0)
    else:
        rows = rows.filter(pk__in=ticked)
    chosen, listed = list(rows[:AT_ONCE]), rows.count()
    try:
        comment = read_comment(request, bool(listed or ticked))
    except AnswerError as error:
        typed = request.POST.get("comment", "")
        return render_review_page(request, queue, query, error.problems, status=422, ticked=ticked, many_comment=typed)
    sent, refused = send_back_each(chosen, request.user, comment)
    if not request.POST.get("all") and len(ticked) > listed:
        refused["no longer in this list"] = len(ticked) - listed
    if sent:
        record_audit_entry("queue.change", queue, labels_sent_back=sent)
    tell_outcome(request, sent, refused, listed - len(chosen))
    return redirect(reverse("queue-review", args=[queue.pk]) + query.query())


def read_comment(request: LabRequest, any_chosen: bool) -> str:
    """Raises AnswerError."""
    comment = comment_of(body_of(request))
    problems = []
    if not any_chosen:
        problems.append(Problem("judgement", "No label is ticked.", "Tick labels in the list, or choose all of the filter."))
    if not comment:
        problems.append(Problem("comment", "A reason is required to send back labels.", "Write what their authors should check."))
    if problems:
        raise AnswerError(problems)
    return comment


def send_back_each(chosen: Iterable[Judgement], user: User, comment: str) -> tuple[int, Counter[str]]:
    """How many were sent back, and how many were not for which reason. Each is its own transaction: nobody waits for all of them."""
    sent, refused = 0, Counter[str]()
    for judgement in chosen:
        try:
            record_review(judgement, user, {"act": "return", "comment": comment})
        except Refusal as why:
            refused[why.message.rstrip(".")] += 1
        else:
            sent += 1
    return sent, refused


def tell_outcome(request: LabRequest, sent: int, refused: Counter[str], left: int) -> None:
    words = [f"{sent} label{'s' * (sent != 1)} sent back to {'their authors' if sent != 1 else 'its author'}."]
    if refused:
        words.append(f"Not changed: {'; '.join(f'{count} ({why})' for why, count in refused.most_common())}.")
    if left:
        words.append(f"{left} are left: press again.")
    (messages.success if sent and not refused else messages.warning)(request, " ".join(words))
