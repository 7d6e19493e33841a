"""A rollout as the feed and the page of its group show it: its text by author, its rewards, and how its advantage came about."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Case, Func, IntegerField, Q, QuerySet, TextField, Value, When
from django.db.models.functions import MD5, Left, Length, Right

from lab.rollouts.trajectories.excerpts import END_AT_MOST, Excerpt, make_excerpt
from lab.rollouts.trajectories.models import Prompt, Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import CUT_AT, Block, Piece, escape_invisible_text, iterate_text_pieces, split_completion_blocks
from trainers.contract.arrays import PackError, unpack_array

CUT_TURNS = """jsonb_array_length(jsonb_path_query_array(%(expressions)s::jsonb, '$[*] ? (@.by == "policy" && @.fate == "cut")'))"""
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
    text: str = ""  # of the completion, as much as was read
    stages: list[Stage] = field(default_factory=list)
    own_prompt: Prompt | None = None  # where a method asked this member something else than the first of its group

    @property
    def text_key(self) -> tuple[object, ...]:
        """Equal for rollouts that answered the same prompt by the same text, by the same authors, with as many turns cut on the way."""
        digest = getattr(self.rollout, "digest", "")
        return (self.rollout.prompt_id, self.rollout.superseded, self.characters, self.text, digest, tuple(self.blocks), self.cut_turns)

    @property
    def cut_turns(self) -> int:
        """Turns of the policy that a method took out of the episode."""
        return getattr(self.rollout, "cut_turns", 0)

    @property
    def excerpt(self) -> Excerpt:
        return make_excerpt(self.text, is_cut=self.is_cut, ending=getattr(self.rollout, "ending", ""))

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


def with_cards(rows: QuerySet[Rollout], methods: Sequence[str] = ()) -> list[Card]:
    """Cards without the part of a long completion that nobody sees yet: a page of 200k-character completions stays small.

    Of that part ``digest`` tells whether two are the same, and ``ending`` is its end.
    """
    is_cut = Q(characters__gt=CUT_AT)
    read = rows.defer("completion", "nodes").annotate(head=Left("completion", CUT_AT), characters=Length("completion"))
    read = read.annotate(cut_turns=Func("nodes", template=CUT_TURNS, output_field=IntegerField()))
    read = read.annotate(
        digest=Case(When(is_cut, then=MD5("completion")), default=Value(""), output_field=TextField()),
        ending=Case(
            When(is_cut, then=Right("completion", 2 * END_AT_MOST)), default=Value(""), output_field=TextField()
        ),  # white space at the end is not shown
    )
    rollouts = list(read)
    lengths = lengths_of([rollout for rollout in rollouts if any(role != "assistant" for role, _, _ in rollout.turns)])
    return [card_of(rollout, rollout.head, rollout.characters, lengths.get(rollout.pk), methods) for rollout in rollouts]  # type: ignore[attr-defined]


def whole_card(rollout: Rollout) -> Card:
    return card_of(rollout, rollout.completion, len(rollout.completion), lengths_of([rollout]).get(rollout.pk))


def card_of(rollout: Rollout, text: str, characters: int, lengths: Any, methods: Sequence[str] = ()) -> Card:
    chips = [Chip(escape_invisible_text(name), value) for name, value in rollout.rewards.items()]
    return Card(rollout, split_completion_blocks(text, rollout.turns, lengths), chips, characters, text, build_advantage_stages(rollout, methods))


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
