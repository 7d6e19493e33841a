"""What the items of a queue are made of: a selection of rollouts, how they are put together, and which come first. An address can hold all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.db import models
from django.http import QueryDict

from lab.labelling.labels.models import Kind, Strategy
from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.rollouts.browse.selection import Selection

MOST_ITEMS = 100_000


class PairSource(models.TextChoices):
    GROUP = "group", "Within a group"
    TIME = "time", "Across steps"
    RUNS = "runs", "Across runs or checkpoints"


PAIRED = (Kind.PAIR, Kind.CLEARER)  # kinds whose items are made of pairs
OF_ONE = (Strategy.RANDOM, Strategy.ENTROPY)  # strategies that make sense for a single answer


@dataclass(frozen=True)
class StepWindow:
    """Steps from ``first`` to ``last``, both included."""

    first: int
    last: int


@dataclass(frozen=True)
class PolicySide:
    """What one policy answered: a run by its number, at a step; None is the newest step that has the prompt."""

    run: int
    step: int | None = None


@dataclass(frozen=True)
class Recipe:
    """``per``: most items from one group (of ``GROUP``, and of single answers) or one prompt; 0 is all of them. ``phase``: "" is any."""

    selection: Selection
    kind: Kind = Kind.PAIR
    how: PairSource = PairSource.GROUP
    strategy: Strategy = Strategy.RANDOM
    seed: int = 0
    most: int = 200
    per: int = 1
    early: StepWindow | None = None
    late: StepWindow | None = None
    a: PolicySide | None = None
    b: PolicySide | None = None
    phase: str = ""
    gold: int = 0
    gold_by: str = ""
    judge_by: str = ""  # reward function that votes beside the reward where disagreement comes first
    gold_again: int = 0  # gold items of earlier queues that are asked again
    gold_from: int | None = None  # of this queue only

    @property
    def address(self) -> str:
        """The browser's query string with how the items were made; the browser ignores what it does not know."""
        pairs: dict[str, Any] = {"how": self.how.value, "most": self.most, "per": self.per, "phase": self.phase}
        if self.early and self.late:
            pairs |= {"early_from": self.early.first, "early_to": self.early.last, "late_from": self.late.first, "late_to": self.late.last}
        for name, side in (("a", self.a), ("b", self.b)):
            if side:
                pairs |= {f"{name}_run": side.run, f"{name}_step": "" if side.step is None else side.step}
        if self.gold:
            pairs |= {"gold": self.gold, "gold_by": self.gold_by}
        if self.judge_by:
            pairs |= {"judge_by": self.judge_by}
        if self.gold_again:
            pairs |= {"gold_again": self.gold_again, "gold_from": self.gold_from or ""}
        query = self.selection.query(sort="")
        return f"{query}{'&' if len(query) > 1 else ''}{urlencode({name: value for name, value in pairs.items() if value != ''})}".removeprefix("?")

    @classmethod
    def stored(cls, address: str, kind: str, strategy: str, seed: int) -> Recipe:
        """The recipe of a queue, from ``Queue.selection``; what its address lacks is as usual."""
        given = dict(parse_qsl(address, keep_blank_values=True))
        windows = [parse_step_window(given, name) for name in ("early", "late")]
        sides = [parse_policy_side(given, name) for name in ("a", "b")]
        how = given.get("how", "")
        return cls(
            selection=Selection.read(QueryDict(address)),
            kind=Kind(kind),
            how=PairSource(how) if how in PairSource.values else PairSource.GROUP,
            strategy=Strategy(strategy),
            seed=seed,
            most=parse_whole_number(given.get("most"), MOST_ITEMS) or 200,
            per=parse_whole_number(given.get("per"), MOST_ITEMS) or 0,
            early=windows[0],
            late=windows[1],
            a=sides[0],
            b=sides[1],
            phase=given.get("phase", ""),
            gold=parse_whole_number(given.get("gold"), MOST_ITEMS) or 0,
            gold_by=given.get("gold_by", ""),
            judge_by=given.get("judge_by", ""),
            gold_again=parse_whole_number(given.get("gold_again"), MOST_ITEMS) or 0,
            gold_from=parse_whole_number(given.get("gold_from"), MAX_INTEGER) or None,
        )


def parse_step_window(given: Mapping[str, str], name: str) -> StepWindow | None:
    first, last = parse_whole_number(given.get(f"{name}_from"), MAX_INTEGER), parse_whole_number(given.get(f"{name}_to"), MAX_INTEGER)
    return None if first is None or last is None else StepWindow(first, last)


def parse_policy_side(given: Mapping[str, str], name: str) -> PolicySide | None:
    run = parse_whole_number(given.get(f"{name}_run"), MAX_INTEGER)
    return None if not run else PolicySide(run, parse_whole_number(given.get(f"{name}_step"), MAX_INTEGER))
