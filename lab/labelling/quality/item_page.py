"""One item of a queue: its answers, what everybody said, what was decided, and every change, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from lab.labelling.labels.models import Change, Item, ItemState, Judgement, JudgementState
from lab.labelling.quality.access import item_of, others_visible, queue_context
from lab.labelling.quality.item_display import VerdictView, build_shown_item, describe_judgement, describe_stored_answer
from lab.labelling.quality.models import Review
from lab.rollouts.trajectories.text_pieces import Piece, iterate_text_pieces
from lab.teams.accounts.models import Role
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import role_of


@dataclass(frozen=True)
class JudgementRow:
    judgement: Judgement
    who: str  # empty where the name is not shown
    verdict: VerdictView
    reviews: list[Review]


@dataclass(frozen=True)
class ChangeEvent:
    change: Change
    who: str
    words: str  # what the label or decision said after it
    was: str  # and before it, where that differs
    comment: list[Piece]


@require_safe
def show_label_item(request: LabRequest, item_id: int) -> HttpResponse:
    item = item_of(request, item_id)
    context = queue_context(request, item.queue, "item")
    everything = others_visible(request, item)
    names = context["reviews"] or role_of(request) == Role.VIEWER
    blind = not names and item.queue.blind and item.state == ItemState.OPEN
    user, order = request.user.pk or 0, list(range(len(item.rollouts if item.texts is None else item.texts)))
    rows = [row for row in item.judgements.select_related("user").order_by("pk") if everything or row.user_id == user]
    changes = [row for row in item.changes.select_related("user", "judgement").order_by("pk") if everything or is_own_change(row, user)]
    reviews = list(Review.objects.filter(judgement__item=item).select_related("reviewer"))

    def who(person: Any) -> str:
        return "you" if person and person.pk == user else str(person) if person and names else ""

    context |= {
        "item": item,
        "item_view": build_shown_item(item, order, origins=not blind),
        "blind": blind,
        "everything": everything,
        "votes": [
            JudgementRow(row, who(row.user), describe_judgement(item, row, order), [review for review in reviews if review.judgement_id == row.pk])
            for row in rows
        ],
        "final": describe_stored_answer(item, item.final, order) if everything else None,
        "final_comment": list(iterate_text_pieces(item.final_comment)),
        "final_by": who(item.final_by),
        "gold": describe_answer_values(item, item.gold, order) if may_see_gold(item, rows, user, names and everything) else "",
        "events": [build_change_event(item, row, who(row.user), order) for row in changes],
    }
    return render(request, "quality/item.html", context)


def is_own_change(change: Change, user: int) -> bool:
    return change.user_id == user or (change.judgement is not None and change.judgement.user_id == user)


def may_see_gold(item: Item, rows: list[Judgement], user: int, reviews: bool) -> bool:
    """Reviewers of what they are not asked themselves, and who has answered."""
    return bool(item.gold) and (reviews or any(row.user_id == user and row.state != JudgementState.WITHDRAWN for row in rows))


def build_change_event(item: Item, change: Change, who: str, order: list[int]) -> ChangeEvent:
    was, now = (describe_answer_values(item, values, order) for values in (change.before, change.after))
    return ChangeEvent(change, who, now, was if was != now else "", list(iterate_text_pieces(change.comment)))


def describe_answer_values(item: Item, values: dict[str, Any] | None, order: list[int]) -> str:
    answer = describe_stored_answer(item, values, order)
    return answer.words if answer else ""
