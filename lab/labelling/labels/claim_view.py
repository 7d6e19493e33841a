"""An item as the labelling page gets it: in the order shown, and of a blind queue without anything that tells where an answer came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse

from lab.labelling.labels.earlier_preferences import find_preferred_rollouts
from lab.labelling.labels.models import Claim, Item, Kind, Queue
from lab.lib.clock import database_now
from lab.rollouts.annotations.annotation_panel import load_rollout_steps, units_of
from lab.rollouts.annotations.token_stretches import TokenStretch
from lab.rollouts.trajectories.cards import lengths_of
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.rollouts.trajectories.text_pieces import by_turn


def claim_views(queue: Queue, claims: Sequence[Claim], now: datetime | None = None) -> list[dict[str, Any]]:
    """A ClaimView for each claim whose answers are all there; the number of queries does not grow with the claims, save for steps and spans.

    ``now``: the database's clock, which is asked without it.
    """
    if not claims:
        return []
    items = item_views(queue, [(claim.item, claim.order) for claim in claims])
    now = now or database_now()
    return [
        {
            "token": str(claim.token),
            "item": claim.item_id,
            "seconds_left": max(0, round((claim.expires_at - now).total_seconds())),
            "draft": claim.draft,
            **items[claim.item_id],
        }
        for claim in claims
        if claim.item_id in items
    ]


def item_views(queue: Queue, pairs: Iterable[tuple[Item, list[int]]]) -> dict[int, dict[str, Any]]:
    """{item id: {"prompt", "reference", "answers"}}, answers in the order shown. Items whose prompt or answers were deleted are left out."""
    pairs = list(pairs)
    prompts = {row.pk: row for row in Prompt.objects.filter(team=queue.team_id, pk__in={item.prompt_id for item, _ in pairs})}
    rollouts_read = {rollout for item, _ in pairs if item.texts is None for rollout in item.rollouts}
    rollouts = {row.pk: row for row in answers_of(queue).filter(pk__in=rollouts_read)} if rollouts_read else {}
    lengths = lengths_of([row for row in rollouts.values() if any(turn[0] != "assistant" for turn in row.turns)])
    better = find_preferred_rollouts(queue, [pair for item, _ in pairs for pair in pairs_of(item)]) if queue.kind == Kind.CLEARER else {}
    views = {}
    for item, order in pairs:
        prompt = prompts.get(item.prompt_id)
        if prompt is None or (item.texts is None and any(rollout not in rollouts for rollout in item.rollouts)):
            continue
        if item.texts is None:
            answers = [build_answer_view(queue, rollouts[item.rollouts[index]], lengths.get(item.rollouts[index])) for index in order]
            mark_preferred_answers(answers, order, [better.get(pair) for pair in pairs_of(item)], item)
        else:
            answers = [{"text": item.texts[index], "turns": [["assistant", item.texts[index]]], "tokens": None} for index in order]
        messages = [[str(role), str(content)] for role, content in prompt.messages]
        views[item.pk] = {"prompt": messages, "reference": "" if queue.blind else prompt.reference, "answers": answers}
    return views


def pairs_of(item: Item) -> list[tuple[int, int]]:
    """The two pairs of a question about pairs, as they lie: places 0 and 1, 2 and 3."""
    return [(item.rollouts[at], item.rollouts[at + 1]) for at in range(0, len(item.rollouts) - 1, 2)]


def mark_preferred_answers(answers: list[dict[str, Any]], order: list[int], better: list[int | None], item: Item) -> None:
    """Says which answer of each pair earlier labels preferred (``preferred`` in lab/labelling/labels/earlier_preferences.py)."""
    for view, index in zip(answers, order, strict=True):
        if index // 2 < len(better) and item.rollouts[index] == better[index // 2]:
            view["preferred"] = True


def answers_of(queue: Queue) -> QuerySet[Rollout]:
    """The team's rollouts with what is shown of them. A run's spec alone is larger than most answers."""
    rows = Rollout.objects.filter(run__team=queue.team_id)
    if queue.kind == Kind.SINGLE:
        return rows.select_related("run")
    return rows.select_related("run").only("completion", "turns", "length", "step", "reward", "run__number")


def build_answer_view(queue: Queue, rollout: Rollout, lengths: Any) -> dict[str, Any]:
    turns = [[role, text] for role, text in by_turn(rollout.completion, rollout.turns, lengths)]
    view: dict[str, Any] = {"text": rollout.completion, "turns": turns, "tokens": rollout.length}
    if queue.kind == Kind.SINGLE and (queue.steps or queue.spans):
        if queue.steps:
            view["steps"] = [{"start": step.start, "end": step.end, "text": step.text} for step in load_rollout_steps(rollout.pk, rollout.run_id)]
        if queue.spans:
            view["units"] = units_of(rollout)
    if not queue.blind:
        view["about"] = {"run": rollout.run.number, "step": rollout.step, "reward": rollout.reward, "url": reverse("rollout", args=[rollout.pk])}
    return view


def steps_and_units(team: int, rollout_id: int) -> tuple[Sequence[TokenStretch], list[list[Any]]]:
    """What steps and spans of an answer may be; empty for an answer that is gone or has no tokens."""
    rollout = Rollout.objects.of(team).select_related("run").filter(pk=rollout_id).first()
    if rollout is None:
        return (), []
    return load_rollout_steps(rollout.pk, rollout.run_id), units_of(rollout)
