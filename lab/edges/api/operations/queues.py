"""Labelling queues: what is asked, and the work itself as the labelling page does it."""

from __future__ import annotations

import uuid
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import Caller, Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.rollouts import MessageOut
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import ApiProblem
from lab.edges.api.queue_bodies import QueueIn, queue_made
from lab.labelling.labels import item_claims, judgements
from lab.labelling.labels.claim_view import claim_views
from lab.labelling.labels.models import Judgement, Queue
from lab.labelling.labels.pages import verbs
from lab.labelling.labels.people import open_to
from lab.labelling.labels.progress import count_queue_progress
from lab.lib.costly import under_way
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.teams.accounts.models import User
from lab.teams.accounts.permissions import is_role_allowed

router = make_router("Labelling")
WHY = "a label needs an author"


class QueueOut(Schema):
    id: int
    name: str
    url: str
    kind: str = Field(examples=["pair"], description="pair, ranking, single or clearer.")
    status: str = Field(examples=["open"], description="open, paused or closed.")
    purpose: str
    project: int | None
    overlap: int = Field(description="Labels per item.")
    blind: bool
    reviewed: bool
    assigned_only: bool
    due: datetime | None
    created_at: datetime


class ProgressOut(Schema):
    done: int = Field(description="Items that have all their labels or a decision.")
    total: int
    conflicts: int
    mine: int = Field(description="Your labels and skips.")


class QueueDetail(QueueOut):
    guidelines: str = Field(description="Markdown.")
    rubric: list[dict[str, Any]]
    selection: str = Field(
        description="The selection it was created from, as in the browser's URL; only for people who lead queues, otherwise empty."
    )
    progress: ProgressOut


class ClaimOut(Schema):
    token: uuid.UUID = Field(description="Identifies your claim on the item; send it with the answer.")
    item: int
    seconds_left: int
    prompt: list[MessageOut]
    reference: str = Field(description="Empty in a blind queue.")
    answers: list[dict[str, Any]] = Field(description="In the order in which you see them; choices 1 and 2 refer to this order.")
    draft: dict[str, Any]


class Work(Schema):
    claims: list[ClaimOut]
    progress: ProgressOut
    reason: str = Field(description="Why there is nothing to label; otherwise empty.")
    fix: str


class NextIn(RequestBody):
    hold: int = Field(1, ge=1, le=item_claims.MOST_HELD, description="Items to hold at once.")


class SubmitIn(RequestBody):
    token: uuid.UUID
    answer: dict[str, Any] = Field(
        description="`choice` is 1, 2, tie, bad or skip for pairs; good, bad, neutral or skip for single answers; ranked with `tiers` for rankings. "
        "Also, if the queue asks for them: strength, rubric, rationale, correction, steps, spans, reason.",
        examples=[{"choice": "1", "strength": 2, "rationale": "Its sum is right."}],
    )
    seconds: float = Field(0, ge=0, le=1e6, description="Seconds between showing the item and the answer.")


class Submitted(Schema):
    judgement: int
    progress: ProgressOut
    gold: dict[str, Any] | None = Field(description="For gold items: whether you were right.")


class TokensIn(RequestBody):
    tokens: list[uuid.UUID] = Field(max_length=20)


class Released(Schema):
    released: int


class Undone(Schema):
    claim: ClaimOut


class LabelOut(Schema):
    """Positions are those of the item, whatever order the labeller saw."""

    id: int
    item: int
    rollouts: list[int]
    by: Person
    verdict: str
    strength: int | None
    tiers: list[list[int]] | None
    rubric: dict[str, Any]
    rationale: str
    correction: str
    steps: list[dict[str, Any]]
    spans: list[dict[str, Any]]
    seconds: float
    state: str = Field(description="submitted, accepted, returned or withdrawn.")
    preferences: list[list[int]] = Field(description="[chosen, rejected] pairs of rollouts that it implies.")
    created_at: datetime


def seen_by(caller: Caller) -> Any:
    """The queues that the caller sees, as on the page."""
    if is_role_allowed(caller.role, "label.lead"):
        return Queue.objects.of(caller.team)
    return open_to(caller.team, caller.person("which queues are open depends on the person"), False)


def find_visible_queue(request: HttpRequest, queue_id: int) -> Queue:
    queue: Queue = one_of(seen_by(caller_of(request)).select_related("team"), queue_id)
    return queue


def load_labeller_context(request: HttpRequest, queue_id: int) -> tuple[Queue, User, Any]:
    """The queue, who labels, and both as the labelling page's verbs ask for them."""
    caller = caller_of(request)
    user = caller.person(WHY)
    return one_of(Queue.objects.of(caller.team).select_related("team"), queue_id), user, SimpleNamespace(user=user, team=caller.team)


def serialize_queue(queue: Queue) -> dict[str, Any]:
    fields = ("name", "kind", "status", "purpose", "overlap", "blind", "reviewed", "assigned_only", "due", "created_at", "guidelines", "rubric")
    settings = {name: getattr(queue, name) for name in (*fields, "selection")}
    return {**settings, "id": queue.pk, "project": queue.project_id, "url": build_absolute_url(team_path(queue.team, "queue", queue.pk))}


def serialize_claim(view: dict[str, Any]) -> dict[str, Any]:
    return {**view, "prompt": [{"role": role, "content": content} for role, content in view["prompt"]]}


@router.get("/queues", auth=require_permission("label.see"), response=Page[QueueOut], summary="List queues")
def list_queues(
    request: HttpRequest,
    after: After,
    limit: Limit,
    status: Literal["", "open", "paused", "closed"] = Query("", description="Filter by status."),
    kind: Literal["", "pair", "ranking", "single", "clearer"] = Query("", description="Filter by kind."),
    q: str = Query("", max_length=100, description="Text in the name."),
) -> object:
    """Newest first; annotators see only queues that are open to them."""
    chosen = {"status": status, "kind": kind, "name__icontains": q}
    rows = seen_by(caller_of(request)).filter(pk__lt=parse_after_id(after), **{name: value for name, value in chosen.items() if value})
    return paginate_rows(list(rows.select_related("team").order_by("-pk")[: limit + 1]), limit, lambda row: row.pk, serialize_queue)


@router.get("/queues/{int:queue_id}", auth=require_permission("label.see"), response=QueueDetail, summary="One queue")
def get_queue(request: HttpRequest, queue_id: int) -> object:
    """Includes its guidelines and progress."""
    caller, queue = caller_of(request), find_visible_queue(request, queue_id)
    selection = queue.selection if is_role_allowed(caller.role, "label.lead") else ""  # it tells runs and gold, which a blind queue hides
    return {**serialize_queue(queue), "selection": selection, "progress": count_queue_progress(queue, caller.user)}


@router.post("/queues", auth=require_permission("label.lead"), response={201: QueueOut, 200: QueueOut}, summary="Create a queue")
def make_queue(request: HttpRequest, given: QueueIn, key: Key) -> object:
    """From a selection of rollouts, with the same rules as the form in the browser. A selection without items is refused."""
    caller = caller_of(request)
    user = caller.person("a queue needs a responsible person")
    with under_way(request):
        [pk], fresh = run_idempotent_action(request, caller, key, lambda: [queue_made(caller.team, user, given).pk])
    return Status(201 if fresh else 200, serialize_queue(Queue.objects.of(caller.team).select_related("team").get(pk=pk)))


@router.post("/queues/{int:queue_id}/next", auth=require_permission("label.work"), response=Work, summary="Items to label")
def next_items(request: HttpRequest, queue_id: int, given: NextIn) -> object:
    """The items you hold, topped up to `hold`. Nobody else gets them until you answer or release them, or your claim expires."""
    queue, user, asker = load_labeller_context(request, queue_id)
    views = verbs.claim_visible_items(queue, asker, given.hold)
    why = None if views else item_claims.why_nothing(queue, user)
    reasons = {"reason": why.reason if why else "", "fix": why.fix if why else ""}
    return {"claims": [serialize_claim(view) for view in views], "progress": verbs.build_progress_counts(queue, asker), **reasons}


@router.post("/queues/{int:queue_id}/submit", auth=require_permission("label.work"), response=Submitted, summary="Answer an item")
def submit_answer(request: HttpRequest, queue_id: int, given: SubmitIn, key: Key) -> object:
    """To skip an item, send the choice `skip`. An answer that is sent again is recorded once."""
    queue, user, asker = load_labeller_context(request, queue_id)
    own = uuid.uuid5(given.token, f"{user.pk}/{key}")
    judgement = judgements.submit_judgement(queue, user, given.token, own, given.answer, given.seconds)
    return {"judgement": judgement.pk, "progress": verbs.build_progress_counts(queue, asker), "gold": verbs.compare_with_gold(judgement)}


@router.post("/queues/{int:queue_id}/release", auth=require_permission("label.work"), response=Released, summary="Release items")
def release_items(request: HttpRequest, queue_id: int, given: TokensIn) -> object:
    """Others can then label them."""
    queue, user, _ = load_labeller_context(request, queue_id)
    return {"released": item_claims.release_claims(queue, user, given.tokens)}


@router.post("/queues/{int:queue_id}/undo", auth=require_permission("label.work"), response=Undone, summary="Undo your last answer")
def undo_answer(request: HttpRequest, queue_id: int) -> object:
    """You hold its item again."""
    queue, user, _ = load_labeller_context(request, queue_id)
    views = claim_views(queue, [judgements.undo_last_judgement(queue, user)])
    if not views:
        raise ApiProblem("conflict", "An answer of your last item was deleted.")
    return {"claim": serialize_claim(views[0])}


@router.get("/queues/{int:queue_id}/labels", auth=require_permission("label.lead"), response=Page[LabelOut], summary="Labels of a queue")
def list_labels(request: HttpRequest, queue_id: int, after: After, limit: Limit) -> object:
    """Newest first, including withdrawn labels; `state` shows which count."""
    queue = find_visible_queue(request, queue_id)
    rows = Judgement.objects.filter(queue=queue, pk__lt=parse_after_id(after)).select_related("user", "item").prefetch_related("preferences")
    return paginate_rows(list(rows.order_by("-pk")[: limit + 1]), limit, lambda row: row.pk, serialize_label)


def serialize_label(judgement: Judgement) -> dict[str, Any]:
    fields = ("verdict", "strength", "tiers", "rubric", "rationale", "correction", "steps", "spans", "seconds", "state", "created_at")
    pairs = [[pair.chosen, pair.rejected] for pair in judgement.preferences.all()]
    about = {
        "id": judgement.pk,
        "item": judgement.item_id,
        "rollouts": judgement.item.rollouts,
        "by": serialize_person(judgement.user),
        "preferences": pairs,
    }
    return {**{name: getattr(judgement, name) for name in fields}, **about}
