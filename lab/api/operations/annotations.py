"""What people say about rollouts: tags, ratings, marks on steps, comments. A service token can read it; saying something takes a person."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.accounts.models import User
from lab.annotations import verbs
from lab.annotations.models import Comment, Rating, RolloutTag, StepMark
from lab.api.base import Caller, Given, Query, api, caller_of, needs, noun, one_of
from lab.api.idempotency import Key
from lab.api.operations.account import Person, person
from lab.api.operations.rollouts import rollout_of
from lab.api.paging import After, Limit, Page, page, whole
from lab.api.problems import ApiProblem, as_problem, invalid
from lab.trajectories.models import Rollout

router = noun("Annotations")
WHY = "what is said about a rollout is said by somebody"
KINDS = {403: "permission", 404: "missing", 409: "conflict"}


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
    rollout: int | None = Field(description="null when the rollout is gone.")
    parent: int | None = Field(description="The thread it answers.")
    by: Person | None
    text: str
    start: int | None = Field(description="First token of the stretch it is about; null for the whole rollout.")
    end: int | None
    snapshot: str = Field(description="The text of the stretch.")
    place: str = Field(examples=["run 2 · step 10 · group 0 · sample 3"])
    created_at: datetime
    edited_at: datetime | None
    resolved_at: datetime | None


class Annotations(Schema):
    tags: list[TagOut]
    ratings: list[RatingOut]
    marks: list[MarkOut]
    comments: list[CommentOut]


class TagIn(Given):
    name: str = Field(max_length=1000, examples=["loops"])


class RatingIn(Given):
    value: int = Field(ge=1, le=5, examples=[4])


class MarkIn(Given):
    mark: Literal["good", "bad", "neutral"]


class CommentIn(Given):
    text: str = Field(max_length=20_000, examples=["The second step does not follow."])
    start: int | None = Field(None, ge=0, le=2**31 - 1, description="With end: the tokens it is about.", examples=[12])
    end: int | None = Field(None, ge=0, le=2**31 - 1, examples=[20])


class AnswerIn(Given):
    text: str = Field(max_length=20_000, examples=["Agreed."])


def refusal(error: verbs.Refused) -> ApiProblem:
    if error.status in KINDS:
        return ApiProblem(KINDS[error.status], error.message)
    return invalid(error.field, error.message)


as_problem(api, verbs.Refused, refusal)


def by(user: User | None) -> dict[str, Any] | None:
    return person(user) if user else None


def said(rollout: Rollout) -> dict[str, Any]:
    tags = RolloutTag.objects.filter(rollout=rollout).select_related("tag", "user").order_by("tag__name")
    ratings = Rating.objects.filter(rollout=rollout).select_related("user").order_by("pk")
    marks = StepMark.objects.filter(rollout=rollout).select_related("user")
    comments = Comment.objects.filter(rollout=rollout, deleted_at=None).select_related("user")
    return {
        "tags": [{"id": one.tag_id, "name": one.tag.name, "by": by(one.user)} for one in tags],
        "ratings": [{"by": by(one.user), "value": one.value} for one in ratings],
        "marks": [{"by": by(one.user), "start": one.start, "end": one.end, "mark": one.mark} for one in marks],
        "comments": [shown(one) for one in comments],
    }


def shown(one: Comment) -> dict[str, Any]:
    fields = ("text", "start", "end", "snapshot", "place", "created_at", "edited_at", "resolved_at")
    return {"id": one.pk, "rollout": one.rollout_id, "parent": one.parent_id, "by": by(one.user), **{name: getattr(one, name) for name in fields}}


def who(request: HttpRequest) -> tuple[Caller, User]:
    caller = caller_of(request)
    return caller, caller.person(WHY)


@router.get("/rollouts/{int:rollout_id}/annotations", auth=needs("runs.read"), response=Annotations, summary="What was said about a rollout")
def get_annotations(request: HttpRequest, rollout_id: int) -> object:
    """By everybody of the team."""
    return said(rollout_of(request, rollout_id))


@router.post("/rollouts/{int:rollout_id}/tags", auth=needs("rollouts.annotate"), response=Annotations, summary="Tag a rollout")
def add_tag(request: HttpRequest, rollout_id: int, given: TagIn) -> object:
    """Twice the same tag is one. A tag that the team has not used yet is made."""
    caller, user = who(request)
    rollout = rollout_of(request, rollout_id)
    verbs.tag(caller.team, user, rollout, given.name)
    return said(rollout)


@router.delete(
    "/rollouts/{int:rollout_id}/tags/{int:tag_id}", auth=needs("rollouts.annotate"), response=Annotations, summary="Take a tag off a rollout"
)
def remove_tag(request: HttpRequest, rollout_id: int, tag_id: int) -> object:
    """Nothing happens when it is not there."""
    who(request)
    rollout = rollout_of(request, rollout_id)
    verbs.untag(rollout, min(tag_id, 2**63 - 1))
    return said(rollout)


@router.put("/rollouts/{int:rollout_id}/rating", auth=needs("rollouts.annotate"), response=Annotations, summary="Rate a rollout")
def rate(request: HttpRequest, rollout_id: int, given: RatingIn) -> object:
    """From 1 to 5; a second rating replaces your first."""
    _, user = who(request)
    rollout = rollout_of(request, rollout_id)
    verbs.rate(user, rollout, str(given.value))
    return said(rollout)


@router.delete("/rollouts/{int:rollout_id}/rating", auth=needs("rollouts.annotate"), response=Annotations, summary="Take your rating back")
def unrate(request: HttpRequest, rollout_id: int) -> object:
    """Nothing happens when there is none."""
    _, user = who(request)
    rollout = rollout_of(request, rollout_id)
    verbs.rate(user, rollout, "")
    return said(rollout)


@router.put("/rollouts/{int:rollout_id}/marks/{int:start}", auth=needs("rollouts.annotate"), response=Annotations, summary="Mark a reasoning step")
def set_mark(request: HttpRequest, rollout_id: int, start: int, given: MarkIn) -> object:
    """`start` is the first token of the step."""
    _, user = who(request)
    rollout = rollout_of(request, rollout_id)
    verbs.mark(user, rollout, str(start)[:20], given.mark)
    return said(rollout)


@router.delete("/rollouts/{int:rollout_id}/marks/{int:start}", auth=needs("rollouts.annotate"), response=Annotations, summary="Take a mark back")
def remove_mark(request: HttpRequest, rollout_id: int, start: int) -> object:
    """Nothing happens when there is none."""
    _, user = who(request)
    rollout = rollout_of(request, rollout_id)
    verbs.mark(user, rollout, str(start)[:20], "")
    return said(rollout)


@router.get("/comments", auth=needs("runs.read"), response=Page[CommentOut], summary="List comments")
def list_comments(
    request: HttpRequest,
    after: After,
    limit: Limit,
    show: Literal["", "open", "resolved"] = Query("", description="Only threads that are open, or resolved."),
) -> object:
    """Of the team, newest first."""
    rows = Comment.objects.of(caller_of(request).team).filter(deleted_at=None, pk__lt=whole(after)).select_related("user").order_by("-pk")
    if show:
        rows = rows.filter(parent=None, resolved_at__isnull=show == "open")
    return page(list(rows[: limit + 1]), limit, lambda row: row.pk, shown)


@router.post("/rollouts/{int:rollout_id}/comments", auth=needs("rollouts.annotate"), response=CommentOut, summary="Comment on a rollout")
def add_comment(request: HttpRequest, rollout_id: int, given: CommentIn, key: Key) -> object:
    """On all of it, or on tokens from start up to before end."""
    caller, user = who(request)
    rollout = rollout_of(request, rollout_id)
    if (given.start is None) != (given.end is None):
        raise invalid("end" if given.end is None else "start", "goes with the other end of the stretch", "give both, or none")
    start, end = ("" if given.start is None else str(given.start)), ("" if given.end is None else str(given.end))
    return made(caller, verbs.comment(caller.team, user, rollout, given.text, start, end, own_key(rollout_id, key)).made)


@router.post("/comments/{int:comment_id}/answers", auth=needs("rollouts.annotate"), response=CommentOut, summary="Answer a comment")
def answer_comment(request: HttpRequest, comment_id: int, given: AnswerIn, key: Key) -> object:
    """An answer to an answer goes to its thread."""
    caller, user = who(request)
    return made(caller, verbs.answer(caller.team, user, comment_of(request, comment_id), given.text, own_key(comment_id, key)).made)


@router.post("/comments/{int:comment_id}/resolve", auth=needs("rollouts.annotate"), response=CommentOut, summary="Resolve a thread")
def resolve_comment(request: HttpRequest, comment_id: int) -> object:
    """Nothing happens when it is resolved already."""
    caller, user = who(request)
    return made(caller, verbs.resolve(user, comment_of(request, comment_id)).made)


@router.post("/comments/{int:comment_id}/reopen", auth=needs("rollouts.annotate"), response=CommentOut, summary="Reopen a thread")
def reopen_comment(request: HttpRequest, comment_id: int) -> object:
    """Nothing happens when it is open already."""
    caller, user = who(request)
    return made(caller, verbs.reopen(user, comment_of(request, comment_id)).made)


@router.delete("/comments/{int:comment_id}", auth=needs("rollouts.annotate"), response={204: None}, summary="Delete your comment")
def delete_comment(request: HttpRequest, comment_id: int) -> object:
    """Only whoever wrote it can."""
    _, user = who(request)
    verbs.delete(user, comment_of(request, comment_id))
    return Status(204, None)


def comment_of(request: HttpRequest, comment_id: int) -> Comment:
    mine = Comment.objects.of(caller_of(request).team).select_related("rollout__run", "parent")
    found: Comment = one_of(mine.filter(deleted_at=None), comment_id)
    return found


def made(caller: Caller, pk: Any) -> dict[str, Any]:
    return shown(Comment.objects.of(caller.team).select_related("user").get(pk=pk))


def own_key(about: int, key: str) -> str:
    """A comment's key is a UUID of one person; the same Idempotency-Key for another rollout is another comment."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{about}/{key}")) if key else ""
