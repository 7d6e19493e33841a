"""The answers a prompt's page lists: the newest ones, the best and the worst. Their cards are written here, because a template takes several
times as long for fourteen of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from html import escape
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Left
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from lab.lib.addresses import build_numbered_address
from lab.lib.numbers import format_number
from lab.rollouts.annotations.summary import Summary, summarize_annotations
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import render_text
from lab.training.runs.models import Run

NEWEST = 12  # answers listed on a prompt's page
HEAD = 400  # characters of each


@dataclass(slots=True)
class ListedAnswer:
    """What the page shows of a rollout, under the names that Rollout has for it; of its completion the first HEAD characters."""

    pk: int
    run_id: UUID
    phase: str
    step: int
    group: int
    reward: float | None
    length: int | None
    mean_entropy: float | None
    head: str
    run: Run


STORED = [one.name for one in fields(ListedAnswer)][: -len(("head", "run"))]


def select_notable_answers(answers: QuerySet[Rollout], runs: Mapping[UUID, Run]) -> dict[str, Any]:
    """The newest answers, and the best and the worst ever; of equals the newest. ``runs``: those of the team that asked the prompt, by id."""
    every = list(answers.values_list("pk", "reward"))  # in one look, sorted here: the index of prompts has no order by reward or id
    scored = [(reward, pk) for pk, reward in every if reward is not None]
    best = max(scored)[1] if scored else None
    worst = min(scored, key=lambda pair: (pair[0], -pair[1]))[1] if scored else None
    newest = sorted((pk for pk, _ in every), reverse=True)[:NEWEST]
    listed = load_answers({pk for pk in (best, worst, *newest) if pk is not None}, runs)
    said = summarize_annotations(listed)
    return {
        "newest": [build_answer(listed[pk], said[pk]) for pk in newest if pk in listed],
        "best": build_answer(listed[best], said[best], "best") if best in listed else None,
        "worst": build_answer(listed[worst], said[worst], "worst") if worst in listed and worst != best else None,
    }


def load_answers(ids: Iterable[int], runs: Mapping[UUID, Run]) -> dict[int, ListedAnswer]:
    """The answers by their ids."""
    stored: Any = Rollout.objects.filter(pk__in=ids, run__in=list(runs.values())).values_list(*STORED, Left("completion", HEAD))
    return {row[0]: ListedAnswer(*(*row, runs[row[1]])) for row in stored}


def build_answer(answer: ListedAnswer, said: Summary, label: str = "") -> dict[str, Any]:
    return {"rollout": answer, "card": render_answer_card(answer, said, label)}


def render_answer_card(answer: ListedAnswer, said: Summary, label: str = "") -> SafeString:
    """``label``: what it is the best or worst of, a word of our own."""
    phase = "" if answer.phase == "train" else f'<span class="badge">{escape(answer.phase.replace("_", " ").replace("heldout", "held-out"))}</span>'
    length = "" if answer.length is None else f'<span class="muted">{answer.length} tok</span>'
    entropy = "" if answer.mean_entropy is None else f'<span class="muted">H {format_number(answer.mean_entropy)} nats</span>'
    chips = render_to_string("annotations/chips.html", {"summary": said}) if said else ""
    group = build_numbered_address("group", (answer.step, answer.group), answer.run_id, answer.phase)
    return SafeString(  # texts of models and of people are escaped, the rest are numbers and words of our own
        f'<article class="answer"><header class="member-line">{render_total(answer.reward)}{f"<strong>{label}</strong>" if label else ""}'
        f'<a href="{escape(build_numbered_address("rollout", (answer.pk,)))}">#{answer.run.number}, step {answer.step}</a>{phase}'
        f'{length}{entropy}{chips}<a class="row-end" href="{escape(group)}">group</a></header>'
        f'<div class="completion">{render_text(answer.head) or EMPTY}{CUT if len(answer.head) == HEAD else ""}</div></article>'
    )


CUT = '<span class="muted">…</span>'
EMPTY = '<span class="muted">(empty completion)</span>'


def render_total(reward: float | None) -> str:
    if reward is None:
        return '<span class="total none" title="total reward">n/a</span>'
    tone = "good" if reward > 0 else "bad" if reward < 0 else "zero"
    return f'<span class="total {tone}" title="total reward">{format_number(reward)}</span>'
