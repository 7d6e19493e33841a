"""The rows of the table on a prompt's page, one for each run and phase. Written here, because a template takes several times as long for twenty."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from django.urls import get_script_prefix
from django.utils.safestring import SafeString

from lab.lib.addresses import build_address_start
from lab.lib.numbers import format_number
from lab.rollouts.reading.history import OutcomeChange, PromptSeries

UNCONFIRMED = ' title="At the last visit only; not confirmed by a second one yet."'


def render_series_rows(rows: Iterable[dict[str, Any]]) -> SafeString:
    """``rows`` as ``prompts.build_series_row`` makes them."""
    return SafeString("\n".join(render_series_row(row) for row in rows))


def render_series_row(row: dict[str, Any]) -> str:
    series, run, last = row["series"], row["series"].run, row["last"]
    dotted = " dotted" if series.phase == "heldout" else ""
    page = escape(build_address_start(get_script_prefix(), "run", 0, run.pk))
    return (
        f'<tr><th scope="row"><button class="legend-entry series-{row["color"]}" type="button" data-series="{row["index"]}" aria-pressed="true"'
        f' title="Show or hide in the charts"><span class="swatch{dotted}"></span><span class="visually-hidden">Show in the charts: </span>'
        f'#{run.number}</button> <a href="{page}"><bdi>{escape(run.name)}</bdi></a></th>'
        f"<td>{escape(series.phase_label)}</td><td>{render_turns(series)}</td>"
        f'<td class="num">{len(series.visits)}</td><td class="num">{series.answers}</td>'
        f'<td class="num">{format_number(row["first"].passed)} → <strong>{format_number(last.passed)}</strong></td>'
        f'<td class="num">{format_number(last.mean)}</td><td class="num"><a href="{escape(row["last_url"])}">step {last.step}</a></td></tr>'
    )


def render_turns(series: PromptSeries) -> str:
    """Where the prompt was solved and unlearned, in words."""
    if not series.turns:
        return f'<span class="muted">{"passed, never twice in a row" if series.ever_passed else "never solved"}</span>'
    return "".join(f"{render_turn(turn)} " for turn in series.turns)


def render_turn(turn: OutcomeChange) -> str:
    tone = "solved" if turn.solved else "unlearned"
    return f'<span class="turn {tone}"{"" if turn.confirmed else UNCONFIRMED}>{turn.words}</span>'
