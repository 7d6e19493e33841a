"""What a row of the table shows, cell by cell. Texts of models go through ``format_html``, which escapes; nothing here marks them safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from lab.lib import numbers
from lab.lib.addresses import build_numbered_address
from lab.rollouts.annotations.summary import Summary
from lab.rollouts.browse.pages import CUT_AT
from lab.rollouts.trajectories.excerpts import make_excerpt, render_line
from lab.rollouts.trajectories.text_pieces import BLANK, EMPTY, escape_invisible_text

FINISH = {"stop": "stopped", "length": "cut off", "turns": "out of turns"}
KEPT = 2048  # cells of a table repeat: a page has far fewer different rewards than rows
STOPPED = SafeString('<span class="muted">stopped</span>')
WHOLE_IN_CELL = 56  # characters that two lines of a narrow cell hold, wherever they break
NOTHING = SafeString('<span class="muted">–</span>')


@dataclass(slots=True)
class TableRow:
    """A rollout of the page, with ``head`` and ``prompt_head``, the start of its completion and of its prompt, as the database cut them.
    ``url``: where its page is, escaped. ``loaded``: what columns of other rooms asked for, by the column's name. ``repeats``: what is said of
    the rows of equal text that are folded under this one.
    """

    rollout: Any  # Rollout, annotated with ``head`` and ``prompt_head``
    url: SafeString
    summary: Summary = field(default_factory=Summary)
    loaded: dict[str, Any] = field(default_factory=dict)
    repeats: tuple[str, ...] = ()


@lru_cache(KEPT)
def render_number_cell(value: float | None) -> SafeString:
    return NOTHING if value is None else mark_safe(numbers.format_number(value).replace("-", "−"))  # a number in our own words, as in what follows


@lru_cache(KEPT)
def render_integer_cell(value: int) -> SafeString:
    """To the last digit: people look for step 1204, not for 1.2k."""
    return mark_safe(f"{value:d}")


@lru_cache(KEPT)
def render_signed_cell(value: float | None) -> SafeString:
    """A number that is good above zero and bad below it: by its sign and by colour."""
    if value is None:
        return NOTHING
    tone = "above" if value > 0 else "below" if value < 0 else "level"
    sign = "+" if value > 0 else ""
    return mark_safe(f'<span class="{tone}">{sign}{numbers.format_number(value).replace("-", "−")}</span>')


@lru_cache(KEPT)
def render_badge_cell(label: str, tone: str = "") -> SafeString:
    return format_html('<span class="badge {}">{}</span>', tone, label)


def render_run_cell(row: TableRow) -> SafeString:
    return render_run_name(row.rollout.run.number, row.rollout.run.name)


@lru_cache(KEPT)
def render_run_name(number: int, name: str) -> SafeString:
    return format_html('<span class="muted">#{}</span> <bdi>{}</bdi>', number, escape_invisible_text(name))


def render_step_cell(row: TableRow) -> SafeString:
    if row.rollout.phase == "train":
        return render_integer_cell(row.rollout.step)
    return format_html('{} <small class="muted">{}</small>', row.rollout.step, row.rollout.phase.replace("heldout", "held-out"))


def render_group_cell(row: TableRow) -> SafeString:
    rollout = row.rollout
    where = escape(build_numbered_address("group", (rollout.step, rollout.group), rollout.run.pk, rollout.phase))
    return mark_safe(f'<a href="{where}">{rollout.group:d}</a>')


def render_completion_cell(row: TableRow) -> SafeString:
    """The beginning and, where the page has it, the end. Of longer ones the page's script asks for the end."""
    head = row.rollout.head
    is_cut = len(head) >= CUT_AT
    words = make_excerpt(head, is_cut=is_cut, whole_up_to=WHOLE_IN_CELL).render() if head.strip() else (BLANK if head else EMPTY)
    more = f' data-ending="{row.rollout.pk:d}"' if is_cut else ""
    repeats = render_repeats(row.repeats) if row.repeats else ""
    return mark_safe(f'<a class="words" href="{row.url}" data-open{more}>{words}</a>{repeats}')  # ``render`` has escaped them


def render_repeats(said: Sequence[str]) -> SafeString:
    """What unfolds the rows below; it works without scripts."""
    ranges = format_html_join("", ' <span class="badge"><bdi>{}</bdi></span>', ((words,) for words in said[1:]))
    return format_html('<label class="same-toggle"><input type="checkbox"> {}{}</label>', said[0], ranges)


def render_prompt_cell(row: TableRow) -> SafeString:
    head = row.rollout.prompt_head
    words = render_line(head) if head.strip() else (BLANK if head else EMPTY)
    where = escape(build_numbered_address("prompt", (row.rollout.prompt_id,)))
    return mark_safe(f'<a class="words muted" href="{where}">{words}</a>')  # ``render_line`` has escaped them


def render_finish_cell(row: TableRow) -> SafeString:
    reason = row.rollout.finish_reason
    words = STOPPED if reason == "stop" else NOTHING if not reason else render_badge_cell(FINISH.get(reason, escape_invisible_text(reason)), "warn")
    return format_html("{} {}", words, render_badge_cell(f"attempt {row.rollout.attempt}, replayed")) if row.rollout.superseded else words


def render_filtered_cell(row: TableRow) -> SafeString:
    return render_badge_cell(escape_invisible_text(row.rollout.filtered[:60]), "warn") if row.rollout.filtered else NOTHING


def render_tags_cell(row: TableRow) -> SafeString:
    if not row.summary.tags:
        return NOTHING
    return format_html_join(" ", '<span class="tag-chip"><bdi>{}</bdi></span>', ((escape_invisible_text(tag),) for tag in row.summary.tags))


def render_rating_cell(row: TableRow) -> SafeString:
    if row.summary.rating is None:
        return NOTHING
    people = f"mean of {row.summary.ratings} {'person' if row.summary.ratings == 1 else 'people'}"
    return format_html('<span title="{}"><span aria-hidden="true">★</span> {}</span>', people, numbers.format_number(row.summary.rating))


def render_comments_cell(row: TableRow) -> SafeString:
    return format_html("{}", row.summary.comments) if row.summary.comments else NOTHING


def render_component_cell(row: TableRow, name: str) -> SafeString:
    value = row.rollout.rewards.get(name)
    return render_signed_cell(value) if isinstance(value, int | float) and not isinstance(value, bool) else NOTHING
