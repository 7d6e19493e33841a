"""The rollouts feed: one step of one phase, group by group, at most a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Avg, Count, F, Max, Min, Q, QuerySet, StdDev
from django.db.models.functions import Left, Length

from lab.rollouts.trajectories.models import Prompt, Rollout, RolloutTokens
from lab.rollouts.trajectories.selection import ORDERS, Selection
from lab.rollouts.trajectories.steps import Steps, list_offered_phases, resolve_phase_and_step, rollouts_of
from lab.rollouts.trajectories.text_pieces import CUT_AT, Block, Piece, escape_invisible_text, iterate_text_pieces, split_completion_blocks
from lab.training.runs.models import Run
from lab.training.runs.stack import stack_of
from trainers.contract.arrays import PackError, unpack_array

PAGE = 64  # rollouts on a page
BASE = "base"  # the entry of ``Rollout.contributions`` before any method


@dataclass(frozen=True)
class Chip:
    """One reward function's value, in words as well as by colour."""

    name: str
    value: float | None

    @property
    def sign(self) -> str:
        if self.value is None:
            return "none"
        return "good" if self.value > 0 else "bad" if self.value < 0 else "zero"

    @property
    def text(self) -> str:
        return "n/a" if self.value is None else format_signed_value(self.value)


def format_signed_value(value: float) -> str:
    """+1, −0.25, 0: at most three significant digits after a sign."""
    return "0" if value == 0 else f"{value:+.3g}".replace("-", "−")


@dataclass(frozen=True)
class Stage:
    """The rollout's reward and advantage after one method, or before all of them (``base``); None where it left them alone."""

    name: str
    reward: float | None
    advantage: float | None


@dataclass(frozen=True)
class Card:
    rollout: Rollout
    blocks: list[Block]
    chips: list[Chip]
    characters: int
    stages: list[Stage] = field(default_factory=list)
    own_prompt: Prompt | None = None  # where a method asked this member something else than the first of its group

    @property
    def asked(self) -> list[Piece]:
        """The last message of the prompt this member got, where it is not the group's."""
        return list(iterate_text_pieces(str(self.own_prompt.messages[-1][1]))) if self.own_prompt else []

    @property
    def shaped(self) -> bool:
        return bool(self.rollout.shaped)

    @property
    def is_cut(self) -> bool:
        return self.characters > CUT_AT

    @property
    def filtered(self) -> str:
        return escape_invisible_text(self.rollout.filtered)

    @property
    def empty(self) -> bool:
        return self.characters == 0


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
    superseded = Rollout.objects.filter(run=run, phase=phase, step=steps.step, superseded=True).count()
    return Feed(selection, steps, offered, groups, shown_of(rows, selection), more, superseded)


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
    members = rows.filter(group__in=[summary["group"] for summary in chosen]).order_by(*inside)[start : start + PAGE]
    groups = assemble_feed_groups(run, chosen, with_cards(members, methods), continued=start > 0)
    if len(chosen) == 1 and start + PAGE < chosen[0]["shown"]:
        return groups, selection.query(group=selection.group, row=start + PAGE)
    reached = selection.group + len(chosen)
    return groups, selection.query(group=reached) if len(chosen) < len(summaries) else ""


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


def shown_of(rows: QuerySet[Rollout], selection: Selection) -> int:
    """How many of a step's rollouts the selection shows, on all its pages."""
    if not selection.zero and not selection.filtered:
        return rows.count()
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


def with_cards(rows: QuerySet[Rollout], methods: Sequence[str] = ()) -> list[Card]:
    """Cards without the part of a long completion that nobody sees yet: a page of 200k-character completions stays small."""
    rollouts = list(rows.defer("completion").annotate(head=Left("completion", CUT_AT), characters=Length("completion")))
    lengths = lengths_of([rollout for rollout in rollouts if any(role != "assistant" for role, _, _ in rollout.turns)])
    return [card_of(rollout, rollout.head, rollout.characters, lengths.get(rollout.pk), methods) for rollout in rollouts]  # type: ignore[attr-defined]


def whole_card(rollout: Rollout) -> Card:
    return card_of(rollout, rollout.completion, len(rollout.completion), lengths_of([rollout]).get(rollout.pk))


def card_of(rollout: Rollout, text: str, characters: int, lengths: Any, methods: Sequence[str] = ()) -> Card:
    chips = [Chip(escape_invisible_text(name), value) for name, value in rollout.rewards.items()]
    return Card(rollout, split_completion_blocks(text, rollout.turns, lengths), chips, characters, build_advantage_stages(rollout, methods))


def build_advantage_stages(rollout: Rollout, methods: Sequence[str]) -> list[Stage]:
    """How the rollout's advantage came about; empty when no method touched it. JSON objects have no order: the recipe's is taken."""
    advantages, rewards = rollout.contributions, rollout.shaped
    touched = [name for name in advantages | rewards if name != BASE]
    if not touched:
        return []
    order = {name: place for place, name in enumerate(methods)}
    touched.sort(key=lambda name: (order.get(name, len(order)), name))
    before = Stage(BASE, rollout.reward, advantages.get(BASE))
    return [before, *(Stage(escape_invisible_text(name), rewards.get(name), advantages.get(name)) for name in touched)]


def lengths_of(rollouts: list[Rollout]) -> dict[int, Any]:
    """Code points of each token, for the rollouts whose turns have to be found in their text; a damaged array counts as absent."""
    lengths = {}
    for pk, packed in RolloutTokens.objects.filter(rollout__in=rollouts).values_list("pk", "lengths") if rollouts else []:
        with suppress(PackError):
            lengths[pk] = unpack_array(bytes(packed)).astype("int64")
    return lengths
