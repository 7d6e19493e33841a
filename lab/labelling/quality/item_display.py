"""An item and what people said about it, as a page shows them: answers in one order, and verdicts in words that name them by that order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from lab.labelling.labels.answers import as_shown
from lab.labelling.labels.claim_view import item_views
from lab.labelling.labels.models import Item, Judgement, Kind, Verdict
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces

Texts = list[tuple[str, list[Piece]]]  # (role, text in pieces)
STRENGTHS = {1: "slightly", 2: "clearly", 3: "much"}


@dataclass(frozen=True)
class AnswerView:
    """``label`` is what verdicts call it. ``about`` is where it comes from, None where that is hidden or not stored."""

    label: str
    turns: Texts
    tokens: int | None
    about: Rollout | None


@dataclass(frozen=True)
class ItemView:
    prompt: Texts
    reference: list[Piece]
    answers: list[AnswerView]
    order: list[int]


@dataclass(frozen=True)
class MarkView:
    what: str  # step or span
    mark: str
    text: list[Piece]


@dataclass(frozen=True)
class VerdictView:
    """A verdict in words. ``choice`` and ``tiers`` are what a page would send for it, in the order shown."""

    words: str
    choice: str
    tiers: list[list[int]]
    strength: int | None
    rubric: list[tuple[str, str]]
    rationale: list[Piece]
    correction: list[Piece]
    marks: list[MarkView] = field(default_factory=list)


def build_shown_item(item: Item, order: Sequence[int], origins: bool) -> ItemView | None:
    """None where the prompt or an answer was deleted. ``origins``: with run, step, reward and reference."""
    order = list(order)
    view = item_views(item.queue, [(item, order)]).get(item.pk)
    if view is None:
        return None
    rows = Rollout.objects.filter(run__team=item.queue.team, pk__in=item.rollouts).select_related("run").defer("completion") if origins else ()
    about = {row.pk: row for row in rows}
    names = list_answer_labels(item.queue.kind, len(order))
    answers = [
        AnswerView(
            name, format_turn_texts(answer_view["turns"]), answer_view["tokens"], about.get(item.rollouts[index]) if item.texts is None else None
        )
        for name, index, answer_view in zip(names, order, view["answers"], strict=True)
    ]
    return ItemView(
        format_turn_texts(view["prompt"]), list(iterate_text_pieces(item.prompt.reference if origins else view["reference"])), answers, order
    )


def format_turn_texts(turns: Iterable[Sequence[str]]) -> Texts:
    return [(escape_invisible_text(str(role)), list(iterate_text_pieces(str(text)))) for role, text in turns]


def list_answer_labels(kind: str, count: int) -> list[str]:
    """What answers are called, in the order shown."""
    if kind == Kind.CLEARER:
        return ["pair 1, first", "pair 1, second", "pair 2, first", "pair 2, second"]
    if kind == Kind.RANKING:
        return [chr(ord("A") + index) for index in range(count)]
    return [str(index + 1) for index in range(count)] if count > 1 else ["the answer"]


def order_for(item: Item, user: int) -> list[int]:
    """The order in which somebody who decides sees the answers: theirs for this item, the same every time, and none of the labellers'."""
    drawn = random.Random(f"{item.pk} {user}")
    places = list(range(len(item.rollouts if item.texts is None else item.texts)))
    if item.queue.kind != Kind.CLEARER:
        drawn.shuffle(places)
        return places
    pairs = [places[:2], places[2:]]
    for pair in pairs:
        drawn.shuffle(pair)
    drawn.shuffle(pairs)
    return [index for pair in pairs for index in pair]


def describe_judgement(item: Item, judgement: Judgement, order: Sequence[int]) -> VerdictView:
    kind, count = item.queue.kind, len(order)
    sent = as_shown(judgement, list(order))
    choice, tiers, strength = str(sent["choice"]), sent.get("tiers") or [], judgement.strength
    questions = {str(question.get("name")): str(question.get("label") or question.get("name")) for question in item.queue.rubric}
    rubric = [
        (escape_invisible_text(questions.get(name, name)), escape_invisible_text(str(value))) for name, value in (judgement.rubric or {}).items()
    ]
    marks = [MarkView("step", mark["mark"], list(iterate_text_pieces(str(mark.get("text", ""))))) for mark in judgement.steps or []]
    marks += [MarkView("span", mark["mark"], list(iterate_text_pieces(str(mark.get("text", ""))))) for mark in judgement.spans or []]
    words = in_words(kind, choice, tiers, strength, count)
    return VerdictView(
        words, choice, tiers, strength, rubric, list(iterate_text_pieces(judgement.rationale)), list(iterate_text_pieces(judgement.correction)), marks
    )


def describe_stored_answer(item: Item, values: dict[str, Any] | None, order: Sequence[int]) -> VerdictView | None:
    """Of a decision, a known answer or a row of history; None where it holds no verdict."""
    if not values or "verdict" not in values:
        return None
    empty: dict[str, Any] = {"strength": None, "tiers": None, "rubric": {}, "rationale": "", "correction": "", "steps": [], "spans": []}
    return describe_judgement(item, SimpleNamespace(**{**empty, **values}), order)  # type: ignore[arg-type]


def in_words(kind: str, choice: str, tiers: Sequence[Sequence[int]], strength: int | None, count: int) -> str:
    names = list_answer_labels(kind, count)
    if choice == "ranked" or (kind == Kind.RANKING and tiers):
        return " > ".join(" = ".join(names[index] for index in tier) for tier in tiers)
    if choice in ("1", "2") and kind == Kind.CLEARER:
        return f"pair {choice} is {STRENGTHS.get(strength or 0, '')} clearer".replace("  ", " ")
    if choice in ("1", "2"):
        return f"{choice} is {STRENGTHS.get(strength or 0, '')} better".replace("  ", " ")
    if choice == Verdict.TIE:
        return "a tie"
    if choice == Verdict.BAD and count > 1:
        return "both bad"
    return {"skip": "skipped"}.get(choice, choice)
