"""What people do to a rollout while they read. Every verb may be sent twice and counts once; each raises Refusal with words for the person."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Value
from django.db.models.functions import Lower
from django.db.utils import IntegrityError
from django.utils import timezone

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.lib.refusals import Refusal
from lab.rollouts.annotations.annotation_panel import load_rollout_steps, units_of
from lab.rollouts.annotations.models import Comment, Rating, RolloutTag, StepMark, StepVerdict, Tag
from lab.rollouts.annotations.token_stretches import TokenStretch, find_stretch
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User

TAG_LENGTH = 50
COMMENT_LENGTH = 10_000
MOST_TAGS = 30  # on one rollout


@dataclass(frozen=True)
class AnnotationChange:
    """``made`` is the row that was added or changed; ``fresh`` False when it was there already."""

    made: int | None = None
    fresh: bool = True


def normalize_typed_text(text: str) -> str:
    """As PostgreSQL can hold it, with one kind of line end."""
    return text.replace("\x00", "\u2400").replace("\r\n", "\n").replace("\r", "\n").strip()


def tag_rollout(team: Team, user: User, rollout: Rollout, name: str) -> AnnotationChange:
    """Puts a tag of the team on the rollout; makes it on first use. "Loop" and "loop" are one tag, written as it was first."""
    name = " ".join(normalize_typed_text(name).split())
    if not name:
        raise Refusal("Type a tag first.", field="name", status=400)
    if len(name) > TAG_LENGTH:
        raise Refusal(
            f"A tag has at most {TAG_LENGTH} characters; this one has {len(name):,}. Shorten it, or write a comment.", field="name", status=400
        )
    with transaction.atomic():
        chosen = tag_named(team, name) or new_tag(team, user, name)
        if RolloutTag.objects.filter(rollout=rollout).exclude(tag=chosen).count() >= MOST_TAGS:
            raise Refusal(f"This rollout already has {MOST_TAGS} tags. Remove one first.", field="name", status=400)
        _, fresh = RolloutTag.objects.get_or_create(rollout=rollout, tag=chosen, defaults={"user": user})
    return AnnotationChange(chosen.pk, fresh)


def tag_named(team: Team, name: str) -> Tag | None:
    """Compared as the database's unique index compares."""
    return Tag.objects.filter(team=team).alias(lower=Lower("name")).filter(lower=Lower(Value(name))).first()


def new_tag(team: Team, user: User, name: str) -> Tag:
    try:
        with transaction.atomic():
            return Tag.objects.create(team=team, name=name, created_by=user)
    except IntegrityError:  # somebody made it in the meantime
        tag = tag_named(team, name)
        if tag is None:
            raise
        return tag


def untag_rollout(rollout: Rollout, tag_id: int) -> AnnotationChange:
    count, _ = RolloutTag.objects.filter(rollout=rollout, tag=tag_id).delete()
    return AnnotationChange(tag_id, bool(count))


def rate_rollout(user: User, rollout: Rollout, value: str) -> AnnotationChange:
    """One to five; empty or 0 takes the rating back."""
    if value in ("", "0"):
        count, _ = Rating.objects.filter(rollout=rollout, user=user).delete()
        return AnnotationChange(None, bool(count))
    if value not in ("1", "2", "3", "4", "5"):
        raise Refusal("A rating is a whole number from 1 to 5.", field="value", status=400)
    rating, fresh = Rating.objects.update_or_create(rollout=rollout, user=user, defaults={"value": int(value)})
    return AnnotationChange(rating.pk, fresh)


def mark_step(user: User, rollout: Rollout, start: str, verdict: str) -> AnnotationChange:
    """The person's verdict on the step that starts at a token; empty takes it back."""
    if verdict and verdict not in StepVerdict.values:
        raise Refusal("A step is marked good, bad or neutral.", field="mark", status=400)
    position = parse_token_position(start)
    if not verdict:
        count, _ = StepMark.objects.filter(rollout=rollout, user=user, start=position).delete()
        return AnnotationChange(None, bool(count))
    step = next((step for step in load_rollout_steps(rollout.pk, rollout.run_id) if step.start == position), None)
    if step is None:
        raise Refusal(f"No step of this rollout starts at token {position}. Reload the page.", field="start", status=400)
    values = {"end": step.end, "mark": verdict, "snapshot": step.text[:COMMENT_LENGTH]}
    mark, fresh = StepMark.objects.update_or_create(rollout=rollout, user=user, start=position, defaults=values)
    return AnnotationChange(mark.pk, fresh)


def parse_token_position(text: str) -> int:
    position = parse_whole_number(text, MAX_INTEGER)
    if position is None:
        raise Refusal("A position is a whole number of tokens.", field="start", status=400)
    return position


def validate_comment_text(text: str) -> str:
    text = normalize_typed_text(text)
    if not text:
        raise Refusal("Enter a comment first.", field="text", status=400)
    if len(text) > COMMENT_LENGTH:
        raise Refusal(
            f"A comment has at most {COMMENT_LENGTH:,} characters; this one has {len(text):,}. Shorten it or split it in two.",
            field="text",
            status=400,
        )
    return text


def start_comment_thread(team: Team, user: User, rollout: Rollout, text: str, start: str = "", end: str = "", key: str = "") -> AnnotationChange:
    """Begins a thread on the rollout, or on tokens [start, end) with the text that stands there."""
    text, where = validate_comment_text(text), stretch_of(rollout, start, end) if start or end else None
    values = {"team": team, "rollout": rollout, "text": text, "place": format_rollout_place(rollout)}
    if where:
        values |= {"start": where.start, "end": where.end, "snapshot": where.text}
    return create_comment_once(user, key, values)


def stretch_of(rollout: Rollout, start: str, end: str) -> TokenStretch:
    return find_stretch(units_of(rollout), parse_token_position(start), parse_token_position(end))


def format_rollout_place(rollout: Rollout) -> str:
    phase = "" if rollout.phase == "train" else f"{rollout.phase}, "
    return f"run {rollout.run.number} · {phase}step {rollout.step} · group {rollout.group} · sample {rollout.sample}"


def answer_thread(team: Team, user: User, parent: Comment, text: str, key: str = "") -> AnnotationChange:
    """Answers a thread. An answer to an answer goes to its thread."""
    thread = parent.parent or parent
    if thread.deleted_at and not thread.answers.filter(deleted_at=None).exists():
        raise Refusal("This thread has been deleted. Post your text as a new comment.", field="text", status=409)
    return create_comment_once(
        user, key, {"team": team, "rollout": thread.rollout, "parent": thread, "text": validate_comment_text(text), "place": thread.place}
    )


def create_comment_once(user: User, key: str, values: dict[str, object]) -> AnnotationChange:
    """A comment under the key its page made, so that a second click or a repeated request adds nothing."""
    try:
        unique = uuid.UUID(key) if key else uuid.uuid4()
    except ValueError:
        raise Refusal("The page sent an invalid key. Reload it; your draft is kept.", field="key", status=400) from None
    comment, fresh = Comment.across_teams.get_or_create(user=user, key=unique, defaults=values)
    return AnnotationChange(comment.pk, fresh)


def edit_comment(user: User, comment: Comment, text: str, seen: str) -> AnnotationChange:
    """Changes a comment of one's own, unless it was changed since the page saw it (``seen``: when it was last edited, or empty)."""
    require_comment_author(user, comment)
    text = validate_comment_text(text)
    if comment.text == text:
        return AnnotationChange(comment.pk, False)
    if seen != format_comment_version(comment):
        raise Refusal("You changed this comment in another window. Copy your text, reload, and edit it again.", field="text", status=409)
    unchanged = Comment.objects.same_row(comment).filter(edited_at=comment.edited_at, deleted_at=None)
    if not unchanged.update(text=text, edited_at=timezone.now()):
        raise Refusal("This comment has been changed or deleted. Copy your text and reload.", field="text", status=409)
    return AnnotationChange(comment.pk)


def format_comment_version(comment: Comment) -> str:
    return comment.edited_at.isoformat() if comment.edited_at else ""


def delete_comment(user: User, comment: Comment) -> AnnotationChange:
    require_comment_author(user, comment)
    return AnnotationChange(comment.pk, bool(Comment.objects.same_row(comment).filter(deleted_at=None).update(deleted_at=timezone.now())))


def restore_comment(user: User, comment: Comment) -> AnnotationChange:
    require_comment_author(user, comment)
    return AnnotationChange(comment.pk, bool(Comment.objects.same_row(comment).exclude(deleted_at=None).update(deleted_at=None)))


def require_comment_author(user: User, comment: Comment) -> None:
    if comment.user_id != user.pk:
        raise Refusal("Only the author of a comment can change or delete it. Reply to it instead.", field="text", status=403)


def resolve_thread(user: User, comment: Comment) -> AnnotationChange:
    thread = comment.parent or comment
    return AnnotationChange(
        thread.pk, bool(Comment.objects.same_row(thread).filter(resolved_at=None).update(resolved_at=timezone.now(), resolved_by=user))
    )


def reopen_thread(user: User, comment: Comment) -> AnnotationChange:
    thread = comment.parent or comment
    changed = Comment.objects.same_row(thread).exclude(resolved_at=None).update(resolved_at=None, resolved_by=None)
    return AnnotationChange(thread.pk, bool(changed))
