"""A group read from the database: its members best first, bars of their rewards, what their advantages come from, words that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from django.utils.safestring import SafeString

from lab.lib import diff
from lab.rollouts.annotations.summary import Summary, summarize_annotations
from lab.rollouts.reading.advantage_steps import AdvantageInputs, build_scaling_inputs, is_same_advantage
from lab.rollouts.trajectories.cards import BASE, Card, Stage, with_cards
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.rollouts.trajectories.text_pieces import CUT_AT, Piece, escape_invisible_text, iterate_text_pieces, render_text
from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.runs.models import Run
from lab.training.runs.stack import Stack, load_method_entries, stack_of
from trainers.contract.spec import HUMAN
from trainers.contract.stacking import list_applied_methods

COLUMNS = 64  # members on a page


@dataclass(frozen=True)
class BarScale:
    """The scale of the reward bars: 0 to 100 from the top, with zero always in view."""

    low: float
    high: float

    @classmethod
    def over(cls, rewards: Sequence[float]) -> BarScale:
        low, high = min([0.0, *rewards]), max([0.0, *rewards])
        return cls(low, high if high > low else low + 1.0)

    def y(self, value: float) -> float:
        return 94.0 - 88.0 * (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class RewardBar:
    """One member's bar: places of 100, from the top, as they stand in the picture."""

    top: str
    height: str
    zero: str
    mean: str
    band_top: str
    band_height: str


@dataclass(frozen=True)
class AdvantageAccount:
    """How a member's advantage came about: what goes in, what comes out here, what the trainer stored at that point."""

    reward: float | None
    written_out: str
    worked_out: float
    stored: float | None

    @property
    def agrees(self) -> bool:
        return self.stored is None or is_same_advantage(self.stored, self.worked_out)


@dataclass
class GroupMember:
    card: Card
    rank: int  # 1 is the best
    bar: RewardBar | None
    components: list[float | None]
    account: AdvantageAccount | None
    stages: dict[str, Stage]
    own_prompt: list[Piece] = field(default_factory=list)
    annotations: Summary | None = None  # tags, ratings, comments, marks
    changes: SafeString | None = None  # the text with what differs marked; None where it is not compared
    is_target: bool = False
    is_same: bool = False  # as the one it is compared with


@dataclass
class RolloutGroup:
    """The members of one attempt. ``rows`` are all of them, best first; ``members`` those of the page, with their texts."""

    run: Run
    rows: list[Rollout]
    prompt: Prompt
    members: list[GroupMember] = field(default_factory=list)

    @cached_property
    def stack(self) -> Stack:
        return stack_of(self.run.spec)

    @cached_property
    def rewards(self) -> list[float]:
        return [row.reward for row in self.rows if row.reward is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.rewards) if self.rewards else None

    @cached_property
    def std(self) -> float | None:
        """Of the sample, as TRL's."""
        inputs = build_scaling_inputs("group", self.rewards)
        return inputs.std if inputs else None

    @property
    def zero_variance(self) -> bool:
        return len(self.rewards) > 1 and min(self.rewards) == max(self.rewards)

    @property
    def texts(self) -> int:
        """How many different texts the page's members wrote, by the part that is shown."""
        return len({(getattr(member.card.rollout, "head", ""), member.card.characters) for member in self.members})

    @property
    def has_advantages(self) -> bool:
        return any(row.advantage is not None for row in self.rows)

    @property
    def taught(self) -> bool:
        """Whether any advantage is not 0: methods may tell members apart whose rewards are equal."""
        return any(row.advantage for row in self.rows)

    @cached_property
    def names(self) -> list[str]:
        """Reward functions: the task's first, in its order."""
        known = list(resolve_reward_weights(self.run))
        names = {name for row in self.rows for name in row.rewards}
        return [*(name for name in known if name in names), *sorted(names - set(known))]

    @cached_property
    def components(self) -> list[tuple[str, float | None]]:
        """(name as text, weight in the total) of each reward function."""
        known = resolve_reward_weights(self.run)
        return [(escape_invisible_text(name), known.get(name)) for name in self.names]

    @cached_property
    def scale(self) -> str:
        """The base's scale mode; empty when the catalogue does not know the base."""
        entry: Mapping[str, Any] = load_method_entries([self.stack.base]).get(self.stack.base, {})
        return str(entry.get("scale", ""))

    @cached_property
    def acting(self) -> list[str]:
        """Methods on the base that changed a reward or an advantage here, in the order they acted in."""
        touched = {name for row in self.rows for name in (*row.contributions, *row.shaped)} - {BASE, self.stack.base}
        return self.in_order(touched, "rewards", "advantages")

    def in_order(self, names: Iterable[str], *hooks: str) -> list[str]:
        """The methods in the order they acted in at the last of the hooks that they fill."""
        known = load_method_entries(self.stack.methods)
        recipe = [known[name] for name in self.stack.methods if name in known]
        order = [*self.stack.methods, *(name for hook in hooks for name in list_applied_methods(recipe, hook))]
        places = {name: index for index, name in enumerate(order)}  # the last mention counts
        return sorted(names, key=lambda name: (places.get(name, len(order)), name))

    @cached_property
    def shaping(self) -> list[str]:
        return self.in_order({name for row in self.rows for name in row.shaped} - {BASE, self.stack.base}, "rewards")

    def shaped(self, row: Rollout) -> float | None:
        """The reward that the advantage is worked out from."""
        last: float | None = row.shaped.get(self.shaping[-1], row.reward) if self.shaping else row.reward
        return last

    def inputs(self, batch: Sequence[float] = ()) -> AdvantageInputs | None:
        return build_scaling_inputs(self.scale, [value for row in self.rows if (value := self.shaped(row)) is not None], batch)

    def stored(self, row: Rollout) -> float | None:
        """The advantage after the base and before any method stacked on it."""
        for name in (self.stack.base, BASE):
            if name in row.contributions:
                value: float | None = row.contributions[name]
                return value
        return row.advantage

    def account(self, row: Rollout, given: AdvantageInputs | None) -> AdvantageAccount | None:
        if given is None or row.advantage is None:
            return None
        reward = self.shaped(row)
        if reward is None:  # no reward function had an opinion: it counts as its group's mean and moves no baseline
            return AdvantageAccount(None, "no reward: counted as the mean", 0.0, self.stored(row))
        return AdvantageAccount(reward, given.written_out(reward), given.advantage(reward), self.stored(row))


def resolve_reward_weights(run: Run) -> dict[str, float]:
    """Weight of each reward function of the run's task, in the task's order; what the recipe sets wins. What people say comes last."""
    try:
        known = {reward["name"]: float(reward["weight"]) for reward in load_catalog().task(run.task)["rewards"]}
    except (CatalogError, KeyError, TypeError, ValueError):
        known = {}
    task = run.spec.get("task")
    chosen = task.get("rewards") if isinstance(task, dict) else None
    set_here = {name: float(value) for name, value in chosen.items() if isinstance(value, int | float)} if isinstance(chosen, dict) else {}
    people = run.spec.get("human")
    human_weight = {HUMAN: float(people["weight"])} if isinstance(people, dict) and isinstance(people.get("weight"), int | float) else {}
    return known | set_here | human_weight


def best_first(rows: Sequence[Rollout]) -> list[Rollout]:
    """By reward, those without one last; equals in the order they were sampled."""
    return sorted(rows, key=lambda row: (row.reward is None, -(row.reward or 0.0), row.sample, row.pk))


def load_group_members(group: RolloutGroup, start: int, given: AdvantageInputs | None) -> None:
    """Reads the texts of a page of members."""
    page = group.rows[start : start + COLUMNS]
    # In the order of the recipe, so that a card's own stages stand in it too.
    cards = {card.rollout.pk: card for card in with_cards(Rollout.objects.filter(run=group.run, pk__in=[row.pk for row in page]), group.acting)}
    others = {row.prompt_id for row in page} - {group.prompt.pk}
    prompts = Prompt.objects.of(group.run.team_id).in_bulk(others) if others else {}
    summaries = summarize_annotations(row.pk for row in page)
    bars = BarScale.over(group.rewards)
    for rank, row in enumerate(page, start + 1):
        card = cards[row.pk]
        own = prompts.get(row.prompt_id)
        group.members.append(
            GroupMember(
                card,
                rank,
                bar_of(row, group, bars),
                [row.rewards.get(name) for name in group.names],
                group.account(row, given),
                {stage.name: stage for stage in card.stages},
                list(iterate_text_pieces(str(own.messages[-1][1]))) if own and own.messages else [],
                summaries[row.pk],
            )
        )


def bar_of(row: Rollout, group: RolloutGroup, bars: BarScale) -> RewardBar | None:
    if row.reward is None or group.mean is None or group.std is None:
        return None
    top, zero = sorted((bars.y(row.reward), bars.y(0.0)))
    band_top, band_end = bars.y(group.mean + group.std), bars.y(group.mean - group.std)
    places = (top, max(zero - top, 1.0), bars.y(0.0), bars.y(group.mean), band_top, band_end - band_top)
    return RewardBar(*(f"{end:.2f}" for end in places))


def mark_word_diffs(members: Sequence[GroupMember], target: Rollout, ignore_space: bool) -> None:
    """Word diffs from the target's text to each member's, over the part of each that the page shows."""
    before = head_of(target, members)
    for member in members:
        if member.card.rollout.pk == target.pk:
            member.is_target = True
            continue
        spans = diff.diff_words(before, head_of(member.card.rollout, members), ignore_space)
        member.changes, member.is_same = render_diff_spans(spans), all(span.kind == "same" for span in spans)


TAGS = {"same": "<span>{}</span>", "removed": "<del>{}</del>", "added": "<ins>{}</ins>"}


def render_diff_spans(spans: Sequence[diff.DiffSpan]) -> SafeString:
    """The spans as escaped text inside del and ins. Not a template: a page of 64 long answers has tens of thousands of spans."""
    return SafeString("".join(TAGS[span.kind].format(render_text(span.text)) for span in spans))  # tags of our own around escaped text


def head_of(rollout: Rollout, members: Sequence[GroupMember]) -> str:
    """The part of the completion that cards show, from the members read already where it is among them."""
    for member in members:
        if member.card.rollout.pk == rollout.pk:
            return str(getattr(member.card.rollout, "head", ""))
    return rollout.completion[:CUT_AT]


def steps_rewards(group: RolloutGroup, rows: Iterator[tuple[float | None, dict[str, float | None]]]) -> list[float]:
    """Rewards after shaping of (reward, shaped) rows: what a scale over the whole batch is taken from."""
    last = group.shaping[-1] if group.shaping else ""
    return [value for reward, shaped in rows if (value := shaped.get(last, reward)) is not None]
