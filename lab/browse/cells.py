"""What a row of the table shows, cell by cell. Texts of models go through ``format_html``, which escapes; nothing here marks them safe."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.urls import reverse
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from lab.annotations.summary import Summary
from lab.lib import numbers
from lab.trajectories.pieces import INVISIBLE, named, visible

LINE_END = "\u21b5 "  # what a line end looks like in a cell, which has one paragraph
FINISH = {"stop": "stopped", "length": "cut off", "turns": "out of turns"}
KEPT = 2048  # cells of a table repeat: a page has far fewer different rewards than rows
STOPPED = SafeString('<span class="muted">stopped</span>')
NOTHING = SafeString('<span class="muted">–</span>')


@dataclass(frozen=True)
class Row:
    """A rollout of the page, with ``head``, the start of its completion and of its prompt, as the database cut them. ``loaded`` is what
    columns of other rooms asked for, by the column's name.
    """

    rollout: Any  # Rollout, annotated with ``head``
    url: str
    summary: Summary = field(default_factory=Summary)
    loaded: dict[str, Any] = field(default_factory=dict)


def text(value: str) -> SafeString:
    """A model's or a person's text with what cannot be seen written out."""
    if not INVISIBLE.search(value):
        return conditional_escape(value.replace("\n", LINE_END))
    shown = [
        conditional_escape(piece.text.replace("\n", LINE_END))
        if piece.kind == "plain"
        else format_html('<span class="invisible">⟨{}⟩</span>', piece.label)
        for piece in visible(value)
    ]
    return mark_safe("".join(shown))  # each part is escaped above


@lru_cache(KEPT)
def number(value: float | None) -> SafeString:
    return NOTHING if value is None else conditional_escape(numbers.number(value).replace("-", "−"))


@lru_cache(KEPT)
def whole(value: int) -> SafeString:
    """To the last digit: people look for step 1204, not for 1.2k."""
    return conditional_escape(str(value))


@lru_cache(KEPT)
def signed(value: float | None) -> SafeString:
    """A number that is good above zero and bad below it: by its sign and by colour."""
    if value is None:
        return NOTHING
    tone = "above" if value > 0 else "below" if value < 0 else "level"
    sign = "+" if value > 0 else ""
    return format_html('<span class="{}">{}{}</span>', tone, sign, numbers.number(value).replace("-", "−"))


@lru_cache(KEPT)
def badge(label: str, tone: str = "") -> SafeString:
    return format_html('<span class="badge {}">{}</span>', tone, label)


def run(row: Row) -> SafeString:
    return format_html('<span class="muted">#{}</span> <bdi>{}</bdi>', row.rollout.run.number, named(row.rollout.run.name))


def step(row: Row) -> SafeString:
    if row.rollout.phase == "train":
        return whole(row.rollout.step)
    return format_html('{} <small class="muted">{}</small>', row.rollout.step, row.rollout.phase.replace("heldout", "held-out"))


@lru_cache(KEPT)
def path(page: str, *where: Any) -> str:
    return reverse(page, args=where)


def group(row: Row) -> SafeString:
    rollout = row.rollout
    return format_html('<a href="{}">{}</a>', path("group", rollout.run.pk, rollout.phase, rollout.step, rollout.group), rollout.group)


def completion(row: Row) -> SafeString:
    head = row.rollout.head
    words = text(head) if head else format_html('<span class="muted">{}</span>', "empty")
    return format_html('<a class="words" href="{}" data-open>{}</a>', row.url, words)


def prompt(row: Row) -> SafeString:
    address = path("prompt", row.rollout.prompt_id)
    return format_html('<a class="words muted" href="{}">{}</a>', address, text(row.rollout.prompt.head) or "empty")


def finish(row: Row) -> SafeString:
    reason = row.rollout.finish_reason
    words = STOPPED if reason == "stop" else badge(FINISH.get(reason, named(reason)), "warn")
    return format_html("{} {}", words, badge(f"attempt {row.rollout.attempt}, replayed")) if row.rollout.superseded else words


def filtered(row: Row) -> SafeString:
    return badge(named(row.rollout.filtered[:60]), "warn") if row.rollout.filtered else NOTHING


def tags(row: Row) -> SafeString:
    return format_html_join(" ", '<span class="tag-chip"><bdi>{}</bdi></span>', ((named(tag),) for tag in row.summary.tags)) or NOTHING


def rating(row: Row) -> SafeString:
    if row.summary.rating is None:
        return NOTHING
    people = f"mean of {row.summary.ratings} {'person' if row.summary.ratings == 1 else 'people'}"
    return format_html('<span title="{}"><span aria-hidden="true">★</span> {}</span>', people, numbers.number(row.summary.rating))


def comments(row: Row) -> SafeString:
    return format_html("{}", row.summary.comments) if row.summary.comments else NOTHING


def component(row: Row, name: str) -> SafeString:
    value = row.rollout.rewards.get(name)
    return signed(value) if isinstance(value, int | float) and not isinstance(value, bool) else NOTHING
