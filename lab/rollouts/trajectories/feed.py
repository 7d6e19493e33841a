"""The rollouts feed: one step of one phase, group by group, at most a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.db.models import Avg, Count, F, Max, Min, Q, QuerySet, StdDev
from django.db.models.expressions import OrderBy

from lab.rollouts.trajectories.answers import Answer, collect_answers
from lab.rollouts.trajectories.cards import Card, with_cards
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.rollouts.trajectories.selection import ORDERS, Selection
from lab.rollouts.trajectories.steps import Steps, list_offered_phases, resolve_phase_and_step, rollouts_of
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces
from lab.training.runs.models import Run
from lab.training.runs.stack import stack_of

PAGE = 64  # rollouts on a page


@dataclass
class Group:
    """Rollouts of one prompt; the numbers are over the whole group, also when the page shows only part of it."""

    number: int
    count: int
    mean: float | None
    std: float | None
    zero_variance: bool
    prompt: Prompt
    cards: list[Card] = field(default_factory=list)
    continued: bool = False

    @cached_property
    def answers(self) -> list[Answer]:
        return collect_answers(self.cards, self.count)

    @property
    def distinct(self) -> int:
        """How many different answers the group has, where all of it is shown; else 0."""
        return len(self.answers) if len(self.cards) == self.count else 0

    @property
    def messages(self) -> list[tuple[str, list[Piece]]]:
        return [(escape_invisible_text(str(role)), list(iterate_text_pieces(str(content)))) for role, content in self.prompt.messages]

    @property
    def reference(self) -> list[Piece]:
        return list(iterate_text_pieces(self.prompt.reference))


@dataclass(frozen=True)
class Feed:
    selection: Selection
    steps: Steps
    phases: list[str]
    groups: list[Group]
    total: int
    more: str  # query string of the next page, or nothing
    superseded: int  # rollouts of this step that a resumed attempt has replayed


def read_feed(run: Run, selection: Selection) -> Feed:
    offered = list_offered_phases(run, selection.phase)
    phase, steps = resolve_phase_and_step(run, selection.phase, selection.step, selection.tries)
    selection = replace(selection, phase=phase)
    if steps.step is None:
        return Feed(selection, steps, offered, [], 0, "", 0)
    rows = rollouts_of(run, phase, selection.tries).filter(step=steps.step)
    groups, more = read_groups(run, rows, replace(selection, step=steps.step), stack_of(run.spec).methods)
    replayed, mine = Q(superseded=True), Q() if selection.tries else Q(superseded=False)
    counts = Rollout.objects.filter(run=run, phase=phase, step=steps.step).aggregate(
        all=Count("pk", filter=mine), replayed=Count("pk", filter=replayed)
    )
    shown = count_shown_rollouts(rows, selection) if selection.zero or selection.filtered else counts["all"]
    return Feed(selection, steps, offered, groups, shown, more, counts["replayed"])


def read_groups(run: Run, rows: QuerySet[Rollout], selection: Selection, methods: Sequence[str] = ()) -> tuple[list[Group], str]:
    """A page of whole groups, at most PAGE rollouts; a group larger than a page has pages of its own. ``methods`` in the order they act."""
    _, _, inside = ORDERS[selection.order]
    summaries = list(filter_group_summaries(summarize_feed_groups(rows, selection.order), selection)[selection.group : selection.group + PAGE + 1])
    chosen: list[dict[str, Any]] = []
    left = PAGE
    for summary in summaries:
        if chosen and summary["shown"] > left:
            break
        chosen.append(summary)
        left -= summary["shown"]
    if not chosen:
        return [], ""
    start = selection.row if len(chosen) == 1 else 0
    if selection.filtered:
        rows = rows.exclude(filtered="")
    members = rows.filter(group__in=[summary["group"] for summary in chosen]).order_by(*map(order_last_without_value, inside))[start : start + PAGE]
    groups = assemble_feed_groups(run, chosen, with_cards(members, methods), continued=start > 0)
    if len(chosen) == 1 and start + PAGE < chosen[0]["shown"]:
        return groups, selection.query(group=selection.group, row=start + PAGE)
    reached = selection.group + len(chosen)
    return groups, selection.query(group=reached) if len(chosen) < len(summaries) else ""


def order_last_without_value(column: str) -> OrderBy | str:
    """A rollout whose number is not recorded stands after those that have one, whichever way they are sorted."""
    return F(column[1:]).desc(nulls_last=True) if column.startswith("-") else column


def summarize_feed_groups(rows: QuerySet[Rollout], order: str) -> QuerySet[Any, dict[str, Any]]:
    """One row a group with its numbers over all its rollouts, in the order the page shows them."""
    _, aggregate, inside = ORDERS[order]
    sums: QuerySet[Any, Any] = rows.values("group").annotate(
        count=Count("pk"), mean=Avg("reward"), std=StdDev("reward", sample=True), low=Min("reward"), high=Max("reward"), prompt=Min("prompt_id")
    )
    if aggregate is None:
        return sums.order_by("group")
    key = F("key").desc(nulls_last=True) if inside[0].startswith("-") else F("key").asc(nulls_last=True)
    ordered: QuerySet[Any, Any] = sums.annotate(key=aggregate).order_by(key, "group")
    return ordered


def filter_group_summaries(sums: QuerySet[Any, dict[str, Any]], selection: Selection) -> QuerySet[Any, dict[str, Any]]:
    """The groups the selection keeps; ``shown`` is how many of a group's rollouts it shows."""
    if selection.zero:
        sums = sums.filter(count__gt=1, low=F("high"))
    if selection.filtered:
        return sums.annotate(shown=Count("pk", filter=~Q(filtered=""))).filter(shown__gt=0)
    return sums.annotate(shown=Count("pk"))


def count_shown_rollouts(rows: QuerySet[Rollout], selection: Selection) -> int:
    """How many of a step's rollouts the selection shows of its groups, on all its pages."""
    return sum(filter_group_summaries(summarize_feed_groups(rows, "order"), selection).values_list("shown", flat=True))


def assemble_feed_groups(run: Run, chosen: list[dict[str, Any]], cards: list[Card], continued: bool) -> list[Group]:
    first = {summary["group"]: summary["prompt"] for summary in chosen}
    prompts = Prompt.objects.of(run.team_id).in_bulk({*first.values(), *(card.rollout.prompt_id for card in cards)})
    groups = {
        summary["group"]: Group(
            number=summary["group"],
            count=summary["count"],
            mean=summary["mean"],
            std=summary["std"],
            zero_variance=summary["count"] > 1 and summary["low"] is not None and summary["low"] == summary["high"],
            prompt=prompts[summary["prompt"]],
            continued=continued,
        )
        for summary in chosen
    }
    for card in cards:
        other = card.rollout.prompt_id != first[card.rollout.group]
        groups[card.rollout.group].cards.append(replace(card, own_prompt=prompts[card.rollout.prompt_id]) if other else card)
    return [group for group in groups.values() if group.cards]
