"""Equal completions of a group, shown once: how many there are, and what differs between them although the text is the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.lib.numbers import format_number
from lab.rollouts.trajectories.cards import Card
from lab.rollouts.trajectories.text_pieces import escape_invisible_text


@dataclass(frozen=True)
class Answer:
    """The cards with one text. ``among``: how many rollouts they are counted in, the group's (``whole``) or those of it that are shown."""

    cards: tuple[Card, ...]
    among: int
    whole: bool

    @property
    def first(self) -> Card:
        return self.cards[0]

    @property
    def others(self) -> tuple[Card, ...]:
        return self.cards[1:]

    @property
    def words(self) -> str:
        """8 of 8 in the group identical; empty where no other has the text."""
        return f"{len(self.cards)} of {self.among} {'in the group' if self.whole else 'shown'} identical" if self.others else ""

    @property
    def differences(self) -> list[str]:
        """Values that differ between the cards, the total reward first."""
        found = describe_reward_ranges([card.rollout for card in self.cards])
        left_out = sum(1 for card in self.cards if card.rollout.filtered)
        if 0 < left_out < len(self.cards):
            found.append(f"{left_out} filtered out")
        return found


def describe_reward_ranges(rollouts: Sequence[Any]) -> list[str]:
    """The rewards that differ between rollouts, the total first."""
    names = dict.fromkeys(name for rollout in rollouts for name in rollout.rewards)
    found = [format_range("reward", [rollout.reward for rollout in rollouts])]
    found += [format_range(escape_invisible_text(name), [rollout.rewards.get(name) for rollout in rollouts]) for name in names]
    return [words for words in found if words]


def format_range(name: str, values: Sequence[float | None]) -> str:
    """``name −1 to 1``, empty where all values are the same. Some rollouts may have none."""
    known = sorted(value for value in values if value is not None)
    if len(set(values)) < 2 or not known:
        return ""
    low, high = (format_number(value).replace("-", "−") for value in (known[0], known[-1]))
    return f"{name} {low}{f' to {high}' if high != low else ''}{' or n/a' if len(known) < len(values) else ''}"


def collect_answers(cards: Iterable[Card], count: int) -> list[Answer]:
    """The shown cards of a group of ``count`` rollouts by their text, in the order of the first of each."""
    by_text: dict[Any, list[Card]] = {}
    for card in cards:
        by_text.setdefault(card.text_key, []).append(card)
    shown = sum(map(len, by_text.values()))
    return [Answer(tuple(equal), shown, whole=shown == count) for equal in by_text.values()]
