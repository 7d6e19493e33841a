"""What a row of the table shows, cell by cell. Texts of models go through ``format_html``, which escapes; nothing here marks them safe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from lab.annotations.summary import Summary
from lab.lib import numbers
from lab.trajectories.pieces import named, visible

LINE_END = "\u21b5 "  # what a line end looks like in a cell, which has one paragraph
FINISH = {"stop": "stopped", "length": "cut off", "turns": "out of turns"}
NOTHING = SafeString('<span class="muted">–</span>')


@dataclass(frozen=True)
class Row:
    """A rollout of the page, with ``head``, the start of its completion and of its prompt, as the database cut them."""

    rollout: Any  # Rollout, annotated with ``head``
    url: str
    summary: Summary = field(default_factory=Summary)


def text(value: str) -> SafeString:
    """A model's or a person's text with what cannot be seen written out."""
    shown = [
        conditional_escape(piece.text.replace("\n", LINE_END))
        if piece.kind == "plain"
        else format_html('<span class="invisible">⟨{}⟩</span>', piece.label)
        for piece in visible(value)
    ]
    return mark_safe("".join(shown))  # each part is escaped above


def number(value: float | None) -> SafeString:
    return NOTHING if value is None else conditional_escape(numbers.number(value).replace("-", "−"))


def signed(value: float | None) -> SafeString:
    """A number that is good above zero and bad below it: by its sign and by colour."""
    if value is None:
        return NOTHING
    tone = "above" if value > 0 else "below" if value < 0 else "level"
    sign = "+" if value > 0 else ""
    return format_html('<span class="{}">{}{}</span>', tone, sign, numbers.number(value).replace("-", "−"))


def badge(label: str, tone: str = "") -> SafeString:
    return format_html('<span class="badge {}">{}</span>', tone, label)


def run(row: Row) -> SafeString:
    return format_html('<span class="muted">#{}</span> <bdi>{}</bdi>', row.rollout.run.number, named(row.rollout.run.name))


def step(row: Row) -> SafeString:
    phase = "" if row.rollout.phase == "train" else row.rollout.phase.replace("heldout", "held-out")
    return format_html("{}{}", row.rollout.step, format_html(' <small class="muted">{}</small>', phase) if phase else "")


def group(row: Row) -> SafeString:
    return format_html(
        '<a href="/runs/{}/groups/{}/{}/{}/">{}</a>', row.rollout.run.pk, row.rollout.phase, row.rollout.step, row.rollout.group, row.rollout.group
    )


def completion(row: Row) -> SafeString:
    head = row.rollout.head
    words = text(head) if head else format_html('<span class="muted">{}</span>', "empty")
    return format_html('<a class="words" href="{}" data-open>{}</a>', row.url, words)


def prompt(row: Row) -> SafeString:
    return format_html('<a class="words muted" href="/prompts/{}/">{}</a>', row.rollout.prompt_id, text(row.rollout.prompt.head) or "empty")


def finish(row: Row) -> SafeString:
    reason = row.rollout.finish_reason
    words = badge(FINISH.get(reason, named(reason)), "warn" if reason == "length" else "")
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
