"""What a rule is and what it may say. Rules are pure: they see ``RunFacts`` and name what to open; addresses are made by ``links``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from lab.rollouts.doctor.facts import RunFacts

State = Literal["found", "clear", "early", "absent"]
Severity = Literal["bad", "warn"]


@dataclass(frozen=True)
class EvidenceLink:
    """``rollouts``: the browser with these filters and this sort; ``chart``: the overview's charts with ``chart`` in their names."""

    label: str
    filters: tuple[str, ...] = ()
    sort: str = ""
    chart: str = ""


@dataclass(frozen=True)
class RuleVerdict:
    """``found``: there is evidence. ``clear``: looked, and saw this. ``early``: too few points yet. ``absent``: does not apply or is not logged."""

    state: State
    evidence: tuple[str, ...]
    title: str = ""
    severity: Severity = "warn"
    links: tuple[EvidenceLink, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True)
class HealthRule:
    """``metrics`` are read for it; without those in ``needs`` it cannot look."""

    name: str
    title: str
    looks_at: str
    needs: tuple[str, ...]
    look: Callable[[RunFacts], RuleVerdict]
    also: tuple[str, ...] = field(default=())

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*self.needs, *self.also)

    def judge(self, facts: RunFacts) -> RuleVerdict:
        missing = [name for name in self.needs if not len(facts.of(name))]
        if missing:
            return RuleVerdict("absent", (f"This run does not log {' and '.join(missing)}.",))
        return self.look(facts)


def make_clear_verdict(*evidence: str) -> RuleVerdict:
    return RuleVerdict("clear", evidence)


def make_early_verdict(have: int, need: int, of: str) -> RuleVerdict:
    return RuleVerdict("early", (f"{have} of the {need} points of {of} that this check needs.",))


def make_absent_verdict(why: str) -> RuleVerdict:
    return RuleVerdict("absent", (why,))


def suggest_alternatives(words: str, facts: RunFacts, *names: str) -> tuple[str, ...]:
    """Advice that ends in the bases and methods to try, those the run already uses left out; none when it uses them all."""
    left = [name for name in names if name not in facts.recipe]
    return (f"{words} ({', '.join(left)}).",) if left else ()
