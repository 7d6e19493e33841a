"""What a rule is and what it may say. Rules are pure: they see ``Facts`` and name what to open; addresses are made by ``links``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from lab.rollouts.doctor.facts import Facts

State = Literal["found", "clear", "early", "absent"]
Severity = Literal["bad", "warn"]


@dataclass(frozen=True)
class Link:
    """``rollouts``: the browser with these filters and this sort; ``chart``: the overview's charts with ``chart`` in their names."""

    label: str
    filters: tuple[str, ...] = ()
    sort: str = ""
    chart: str = ""


@dataclass(frozen=True)
class Verdict:
    """``found``: there is evidence. ``clear``: looked, and saw this. ``early``: too few points yet. ``absent``: does not apply or is not logged."""

    state: State
    evidence: tuple[str, ...]
    title: str = ""
    severity: Severity = "warn"
    links: tuple[Link, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """``metrics`` are read for it; without those in ``needs`` it cannot look."""

    name: str
    title: str
    looks_at: str
    needs: tuple[str, ...]
    look: Callable[[Facts], Verdict]
    also: tuple[str, ...] = field(default=())

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*self.needs, *self.also)

    def judge(self, facts: Facts) -> Verdict:
        missing = [name for name in self.needs if not len(facts.of(name))]
        if missing:
            return Verdict("absent", (f"This run does not log {' and '.join(missing)}.",))
        return self.look(facts)


def make_clear_verdict(*evidence: str) -> Verdict:
    return Verdict("clear", evidence)


def make_early_verdict(have: int, need: int, of: str) -> Verdict:
    return Verdict("early", (f"{have} of the {need} points of {of} that this check needs.",))


def make_absent_verdict(why: str) -> Verdict:
    return Verdict("absent", (why,))


def suggest_alternatives(words: str, facts: Facts, *names: str) -> tuple[str, ...]:
    """Advice that ends in the bases and methods to try, those the run already uses left out; none when it uses them all."""
    left = [name for name in names if name not in facts.recipe]
    return (f"{words} ({', '.join(left)}).",) if left else ()
