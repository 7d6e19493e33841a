"""Review: one label after another is accepted or sent back with a comment; whole sets of uncontradicted ones are accepted at once."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.labelling.labels.answers import AnswerError
from lab.labelling.labels.labeller_standing import may_review
from lab.labelling.labels.models import ItemState, Judgement, JudgementState, Queue, Verdict
from lab.labelling.labels.outcome import is_gold_match
from lab.labelling.labels.settlement import accept_judgement, send_back
from lab.labelling.quality.access import find_quality_queue, judgement_of, queue_context, still_asked
from lab.labelling.quality.item_display import build_shown_item, describe_judgement
from lab.labelling.quality.models import Review
from lab.labelling.quality.posted_forms import body_of, comment_of
from lab.lib.numbers import parse_whole_number
from lab.lib.refusal_answers import wants_json
from lab.lib.refusals import Problem, Refusal
from lab.teams.accounts.models import User
from lab.teams.accounts.requests import LabRequest

LISTED = 50
AT_ONCE = 500  # labels accepted by one press
STATES = {"submitted": "To review", "accepted": "Accepted", "returned": "Sent back", "skipped": "Skips"}
SENDABLE = ("submitted", "accepted")  # states whose labels can be sent back many at once


class ReviewQuery:
    """What the address says: ``?state=`` ``&by=`` (a labeller) ``&judgement=`` ``&page=``."""

    def __init__(self, query: Any) -> None:
        state = str(query.get("state", ""))
        self.state = state if state in STATES else "submitted"
        self.by = parse_whole_number(str(query.get("by", ""))) or 0
        self.judgement = parse_whole_number(str(query.get("judgement", ""))) or 0
        self.page = query.get("page", "")

    def query(self, **changes: Any) -> str:
        now = {"state": self.state, "by": self.by or "", "judgement": "", **changes}
        return "?" + urlencode({name: value for name, value in now.items() if value and (name, value) != ("state", "submitted")})


def judgements_of(request: LabRequest, queue: Queue, query: ReviewQuery) -> QuerySet[Judgement]:
    """Of others, in the order they came; without items that the reviewer could still be asked to label."""
    rows = Judgement.objects.filter(queue=queue).exclude(user=request.user).exclude(item__in=still_asked(request, queue)).order_by("pk")
    if query.state == "skipped":
        rows = rows.filter(verdict=Verdict.SKIP).exclude(state=JudgementState.WITHDRAWN)
    else:
        rows = rows.filter(state=query.state).exclude(verdict=Verdict.SKIP)
    return rows.filter(user=query.by) if query.by else rows


def list_uncontradicted_labels(queue: Queue, by: int, user: int) -> QuerySet[Judgement]:
    """One labeller's unreviewed labels of complete items on which nobody disagrees."""
    rows = Judgement.objects.filter(queue=queue, user=by, state=JudgementState.SUBMITTED, item__state=ItemState.DONE)
    return rows.exclude(verdict=Verdict.SKIP).exclude(user=user).order_by("item")


@require_safe
def show_review_page(request: LabRequest, queue_id: int) -> HttpResponse:
    queue = find_quality_queue(request, queue_id)
    may_review(queue, request.user)
    return render_review_page(request, queue, ReviewQuery(request.GET))


def render_review_page(
    request: LabRequest, queue: Queue, query: ReviewQuery, problems: list[Problem] | None = None, comment: str = "", status: int = 200, **more: Any
) -> HttpResponse:
    """``more``: what the form for many labels had."""
    user = request.user.pk or 0
    rows = judgements_of(request, queue, query)
    named = Judgement.objects.filter(queue=queue, pk=query.judgement).exclude(item__in=still_asked(request, queue))
    judgement = named.first() if query.judgement else None
    judgement = judgement or rows.first()
    authors = rows_by_author(queue, user)
    context = {
        **queue_context(request, queue, "review"),
        "filters": query,
        "states": [(words, query.query(state=state), state == query.state) for state, words in STATES.items()],
        "authors": [(author, count, query.query(by=author.pk), author.pk == query.by) for author, count in authors],
        "everybody": query.query(by=""),
        "page": Paginator(rows.select_related("user", "item"), LISTED).get_page(query.page),
        "judgement": judgement,
        "bulk": list_uncontradicted_labels(queue, query.by, user).count() if query.by else 0,
        "bulk_user": next((author for author, _ in authors if author.pk == query.by), None),
        "last": newest_review(queue, user, query),
        "own": Judgement.objects.filter(queue=queue, user=user, state=JudgementState.SUBMITTED).exclude(verdict=Verdict.SKIP).count(),
        "newest": (rows.values_list("pk", flat=True).last() or 0) if query.state in SENDABLE else 0,
        "problems": problems or [],
        "comment": comment,
        "query": query.query(),
        "page_query": query.query(),
        **(looked_at(queue, judgement, rows, query, user) if judgement else {}),
        **more,
    }
    return render(request, "quality/review.html", context, status=status)


def newest_review(queue: Queue, user: int, query: ReviewQuery) -> str:
    """Where the person's last word can be changed; empty before the first."""
    last = Review.objects.filter(judgement__queue=queue, reviewer=user).order_by("-pk").first()
    return query.query(state="accepted" if last.accepted else "returned", judgement=last.judgement_id) if last else ""


def looked_at(queue: Queue, judgement: Judgement, rows: QuerySet[Judgement], query: ReviewQuery, user: int) -> dict[str, Any]:
    """The label, in the order its author saw the answers."""
    item = queue.items.select_related("queue__team", "prompt").get(pk=judgement.item_id)
    before, after = rows.filter(pk__lt=judgement.pk).last(), rows.filter(pk__gt=judgement.pk).first()
    return {
        "item": item,
        "item_view": build_shown_item(item, judgement.order, origins=not queue.blind),
        "verdict": describe_judgement(item, judgement, judgement.order),
        "gold_right": is_gold_match(item.gold, judgement),
        "mine": judgement.user_id == user,
        "earlier": Review.objects.filter(judgement=judgement).select_related("reviewer"),
        "before": query.query(judgement=before.pk) if before else "",
        "after": query.query(judgement=after.pk) if after else "",
        "after_id": after.pk if after else "",
    }


def rows_by_author(queue: Queue, user: int) -> list[tuple[User, int]]:
    """Everybody else who labelled, with how many of their labels wait for review."""
    waiting = Count("pk", filter=Q(state=JudgementState.SUBMITTED))
    rows = Judgement.objects.filter(queue=queue).exclude(verdict=Verdict.SKIP).exclude(user=user).order_by().values("user").annotate(waiting=waiting)
    users = User.objects.in_bulk([row["user"] for row in rows])
    return sorted(((users[row["user"]], row["waiting"]) for row in rows), key=lambda entry: (-entry[1], str(entry[0])))


@require_POST
def judge_judgement(request: LabRequest, judgement_id: int) -> HttpResponse:
    """``act`` accept or return, with a comment. A form is answered with the next label, JSON with the label's state."""
    judgement = judgement_of(request, judgement_id)
    data = body_of(request)
    query = ReviewQuery(request.GET)
    may_review(judgement.queue, request.user)
    try:
        judgement = record_review(judgement, request.user, data)
    except AnswerError as error:
        if wants_json(request):
            raise
        query.judgement = judgement.pk
        return render_review_page(request, judgement.queue, query, error.problems, str(data.get("comment", "")), 422)
    except Refusal as refused:
        if wants_json(request):
            raise
        query.judgement = judgement.pk
        return render_review_page(
            request, judgement.queue, query, [Problem("review", refused.message, refused.fix)], str(data.get("comment", "")), 403
        )
    if wants_json(request):
        return JsonResponse({"state": judgement.state})
    messages.success(request, "Accepted." if judgement.state == JudgementState.ACCEPTED else "Sent back to its author.")
    following = judgements_of(request, judgement.queue, query).filter(pk__gt=judgement.pk).first()
    return redirect(reverse("queue-review", args=[judgement.queue_id]) + query.query(judgement=following.pk if following else ""))


def record_review(judgement: Judgement, user: User, data: dict[str, Any]) -> Judgement:
    """Raises AnswerError, Refusal."""
    act, comment = data.get("act"), comment_of(data)
    if act not in ("accept", "return"):
        raise AnswerError([Problem("act", "Accept the label or send it back.", "Choose one of the two buttons.")])
    with transaction.atomic():
        reviewed = accept_judgement(judgement, user, comment) if act == "accept" else send_back(judgement, user, comment)
        Review.objects.create(judgement=reviewed, reviewer=user, accepted=act == "accept", comment=comment)
    return reviewed


def accept_uncontradicted(queue: Queue, by: int, user: User) -> tuple[int, int]:
    """Accepts what nobody contradicts of one labeller's labels, AT_ONCE at most: how many, and how many are left."""
    accepted = 0
    for judgement in list_uncontradicted_labels(queue, by, user.pk)[:AT_ONCE]:
        try:
            record_review(judgement, user, {"act": "accept"})
        except Refusal:
            continue  # taken back this moment
        accepted += 1
    return accepted, list_uncontradicted_labels(queue, by, user.pk).count()


@require_POST
def accept_all(request: LabRequest, queue_id: int) -> HttpResponse:
    """Accepts one labeller's (``by``) labels that nobody contradicts."""
    queue = find_quality_queue(request, queue_id)
    may_review(queue, request.user)
    query = ReviewQuery(request.POST)
    accepted, left = accept_uncontradicted(queue, query.by, request.user) if query.by else (0, 0)
    messages.success(request, f"{accepted} label{'s' * (accepted != 1)} accepted." + (f" {left} are left: press again." if left else ""))
    return redirect(reverse("queue-review", args=[queue.pk]) + query.query())
