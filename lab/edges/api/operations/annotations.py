"""What people say about rollouts: tags, ratings, marks on steps, comments. A service token can read it; saying something takes a person."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import Caller, Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.rollouts import find_team_rollout
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import make_invalid_problem
from lab.lib.numbers import MAX_INTEGER
from lab.rollouts.annotations import verbs
from lab.rollouts.annotations.models import Comment, Rating, RolloutTag, StepMark
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import User

router = make_router("Annotations")
WHY = "an annotation needs an author"


class TagOut(Schema):
    id: int
    name: str
    by: Person | None


class RatingOut(Schema):
    by: Person
    value: int = Field(ge=1, le=5)


class MarkOut(Schema):
    by: Person
    start: int = Field(description="First token of the step.")
    end: int
    mark: str


class CommentOut(Schema):
    id: int
    rollout: int | None = Field(description="null if the rollout was deleted.")
    parent: int | None = Field(description="The thread it replies to.")
    by: Person | None
    text: str
    start: int | None = Field(description="First token of the commented span; null for the whole rollout.")
    end: int | None
    snapshot: str = Field(description="Text of the span.")
    place: str = Field(examples=["run 2 · step 10 · group 0 · sample 3"])
    created_at: datetime
    edited_at: datetime | None
    resolved_at: datetime | None


class Annotations(Schema):
    tags: list[TagOut]
    ratings: list[RatingOut]
    marks: list[MarkOut]
    comments: list[CommentOut]


class TagIn(RequestBody):
    name: str = Field(max_length=1000, examples=["loops"])


class RatingIn(RequestBody):
    value: int = Field(ge=1, le=5, examples=[4])


class MarkIn(RequestBody):
    mark: Literal["good", "bad", "neutral"]


class CommentIn(RequestBody):
    text: str = Field(max_length=20_000, examples=["The second step does not follow."])
    start: int | None = Field(None, ge=0, le=MAX_INTEGER, description="With `end`: the tokens to comment on.", examples=[12])
    end: int | None = Field(None, ge=0, le=MAX_INTEGER, examples=[20])


class AnswerIn(RequestBody):
    text: str = Field(max_length=20_000, examples=["Agreed."])


def serialize_optional_person(user: User | None) -> dict[str, Any] | None:
    return serialize_person(user) if user else None


def serialize_annotations(rollout: Rollout) -> dict[str, Any]:
    tags = RolloutTag.objects.filter(rollout=rollout).select_related("tag", "user").order_by("tag__name")
    ratings = Rating.objects.filter(rollout=rollout).select_related("user").order_by("pk")
    marks = StepMark.objects.filter(rollout=rollout).select_related("user")
    comments = Comment.objects.filter(rollout=rollout, deleted_at=None).select_related("user")
    return {
        "tags": [{"id": tag.tag_id, "name": tag.tag.name, "by": serialize_optional_person(tag.user)} for tag in tags],
        "ratings": [{"by": serialize_optional_person(rating.user), "value": rating.value} for rating in ratings],
        "marks": [{"by": serialize_optional_person(mark.user), "start": mark.start, "end": mark.end, "mark": mark.mark} for mark in marks],
        "comments": [serialize_comment(comment) for comment in comments],
    }


def serialize_comment(comment: Comment) -> dict[str, Any]:
    fields = ("text", "start", "end", "snapshot", "place", "created_at", "edited_at", "resolved_at")
    return {
        "id": comment.pk,
        "rollout": comment.rollout_id,
        "parent": comment.parent_id,
        "by": serialize_optional_person(comment.user),
        **{name: getattr(comment, name) for name in fields},
    }


def require_annotator(request: HttpRequest) -> tuple[Caller, User]:
    caller = caller_of(request)
    return caller, caller.person(WHY)


@router.get("/rollouts/{int:rollout_id}/annotations", auth=require_permission("runs.read"), response=Annotations, summary="Annotations of a rollout")
def get_annotations(request: HttpRequest, rollout_id: int) -> object:
    """From all members of the team."""
    return serialize_annotations(find_team_rollout(request, rollout_id))


@router.post("/rollouts/{int:rollout_id}/tags", auth=require_permission("rollouts.annotate"), response=Annotations, summary="Tag a rollout")
def add_tag(request: HttpRequest, rollout_id: int, given: TagIn) -> object:
    """Adding a tag twice has no effect. A tag that is new to the team is created."""
    caller, user = require_annotator(request)
    rollout = find_team_rollout(request, rollout_id)
    verbs.tag_rollout(caller.team, user, rollout, given.name)
    return serialize_annotations(rollout)


@router.delete(
    "/rollouts/{int:rollout_id}/tags/{int:tag_id}",
    auth=require_permission("rollouts.annotate"),
    response=Annotations,
    summary="Remove a tag from a rollout",
)
def remove_tag(request: HttpRequest, rollout_id: int, tag_id: int) -> object:
    """Does nothing if the rollout does not have it."""
    require_annotator(request)
    rollout = find_team_rollout(request, rollout_id)
    verbs.untag_rollout(rollout, tag_id)
    return serialize_annotations(rollout)


@router.put("/rollouts/{int:rollout_id}/rating", auth=require_permission("rollouts.annotate"), response=Annotations, summary="Rate a rollout")
def rate(request: HttpRequest, rollout_id: int, given: RatingIn) -> object:
    """From 1 to 5; a new rating replaces your previous one."""
    _, user = require_annotator(request)
    rollout = find_team_rollout(request, rollout_id)
    verbs.rate_rollout(user, rollout, str(given.value))
    return serialize_annotations(rollout)


@router.delete("/rollouts/{int:rollout_id}/rating", auth=require_permission("rollouts.annotate"), response=Annotations, summary="Remove your rating")
def unrate(request: HttpRequest, rollout_id: int) -> object:
    """Does nothing if there is none."""
    _, user = require_annotator(request)
    rollout = find_team_rollout(request, rollout_id)
    verbs.rate_rollout(user, rollout, "")
    return serialize_annotations(rollout)


@router.put(
    "/rollouts/{int:rollout_id}/marks/{int:start}",
    auth=require_permission("rollouts.annotate"),
    response=Annotations,
    summary="Mark a reasoning step",
)
def set_mark(request: HttpRequest, rollout_id: int, start: int, given: MarkIn) -> object:
    """`start` is the first token of the step."""
    _, user = require_annotator(request)
    rollout = find_team_rollout(request, rollout_id)
    verbs.mark_step(user, rollout, str(start)[:20], given.mark)
    return serialize_annotations(rollout)


@router.delete(
    "/rollouts/{int:rollout_id}/marks/{int:start}", auth=require_permission("rollouts.annotate"), response=Annotations, summary="Remove a mark"
)
def remove_mark(request: HttpRequest, rollout_id: int, start: int) -> object:
    """Does nothing if there is none."""
    _, user = require_annotator(request)
    rollout = find_team_rollout(request, rollout_id)
    verbs.mark_step(user, rollout, str(start)[:20], "")
    return serialize_annotations(rollout)


@router.get("/comments", auth=require_permission("runs.read"), response=Page[CommentOut], summary="List comments")
def list_comments(
    request: HttpRequest,
    after: After,
    limit: Limit,
    show: Literal["", "open", "resolved"] = Query("", description="Only open or only resolved threads."),
) -> object:
    """All comments of the team, newest first."""
    rows = (
        Comment.objects.of(caller_of(request).team)
        .filter(deleted_at=None, rollout__run__binned_at=None, pk__lt=parse_after_id(after))
        .select_related("user")
        .order_by("-pk")
    )
    if show:
        rows = rows.filter(parent=None, resolved_at__isnull=show == "open")
    return paginate_rows(list(rows[: limit + 1]), limit, lambda row: row.pk, serialize_comment)


@router.post("/rollouts/{int:rollout_id}/comments", auth=require_permission("rollouts.annotate"), response=CommentOut, summary="Comment on a rollout")
def add_comment(request: HttpRequest, rollout_id: int, given: CommentIn, key: Key) -> object:
    """On the whole rollout, or on the tokens from `start` to `end` (exclusive)."""
    caller, user = require_annotator(request)
    rollout = find_team_rollout(request, rollout_id)
    if (given.start is None) != (given.end is None):
        raise make_invalid_problem("end" if given.end is None else "start", "is missing: a span needs start and end", "give both or neither")
    start, end = ("" if given.start is None else str(given.start)), ("" if given.end is None else str(given.end))
    return serialize_saved_comment(
        caller, verbs.start_comment_thread(caller.team, user, rollout, given.text, start, end, own_key(rollout_id, key)).made
    )


@router.post("/comments/{int:comment_id}/answers", auth=require_permission("rollouts.annotate"), response=CommentOut, summary="Reply to a comment")
def answer_comment(request: HttpRequest, comment_id: int, given: AnswerIn, key: Key) -> object:
    """A reply to a reply is added to its thread."""
    caller, user = require_annotator(request)
    return serialize_saved_comment(
        caller, verbs.answer_thread(caller.team, user, comment_of(request, comment_id), given.text, own_key(comment_id, key)).made
    )


@router.post("/comments/{int:comment_id}/resolve", auth=require_permission("rollouts.annotate"), response=CommentOut, summary="Resolve a thread")
def resolve_comment(request: HttpRequest, comment_id: int) -> object:
    """Does nothing if it is already resolved."""
    caller, user = require_annotator(request)
    return serialize_saved_comment(caller, verbs.resolve_thread(user, comment_of(request, comment_id)).made)


@router.post("/comments/{int:comment_id}/reopen", auth=require_permission("rollouts.annotate"), response=CommentOut, summary="Reopen a thread")
def reopen_comment(request: HttpRequest, comment_id: int) -> object:
    """Does nothing if it is already open."""
    caller, user = require_annotator(request)
    return serialize_saved_comment(caller, verbs.reopen_thread(user, comment_of(request, comment_id)).made)


@router.delete("/comments/{int:comment_id}", auth=require_permission("rollouts.annotate"), response={204: None}, summary="Delete your comment")
def delete_comment(request: HttpRequest, comment_id: int) -> object:
    """Only its author can delete it."""
    _, user = require_annotator(request)
    verbs.delete_comment(user, comment_of(request, comment_id))
    return Status(204, None)


def comment_of(request: HttpRequest, comment_id: int) -> Comment:
    mine = Comment.objects.of(caller_of(request).team).select_related("rollout__run", "parent")
    comment: Comment = one_of(mine.filter(deleted_at=None), comment_id)
    return comment


def serialize_saved_comment(caller: Caller, pk: Any) -> dict[str, Any]:
    return serialize_comment(Comment.objects.of(caller.team).select_related("user").get(pk=pk))


def own_key(about: int, key: str) -> str:
    """A comment's key is a UUID of one person; the same Idempotency-Key for another rollout is another comment."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{about}/{key}")) if key else ""
