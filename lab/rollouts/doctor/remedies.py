"""Which methods may help a run: from what its health checks found to methods whose effect was measured on just that.

``REMEDIES`` is the whole knowledge: for each finding, which measured quantity (``docs/effects.json``) would have to move where. A method is proposed
when its effect on such a quantity held, and when it can be stacked on the run's recipe. What was measured on a small problem is no promise for a run:
the ablation that a proposal leads to tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

from lab.lib.numbers import format_number
from lab.rollouts.doctor.examine import HealthReport
from lab.rollouts.doctor.facts import RunFacts
from lab.rollouts.doctor.heldout import HELD, rise_of
from lab.rollouts.doctor.rules.completions import LENGTH
from lab.rollouts.doctor.rules.rewards import MEASUREMENTS
from lab.rollouts.doctor.trends import fit_trend_line
from lab.training.catalog.catalog import load_catalog
from lab.training.catalog.effects import MethodComparison, MethodEffect, load_method_effects
from lab.training.catalog.methods import Method
from lab.training.runs.models import Run
from lab.training.runs.stack import stack_of
from trainers.contract.spec import SpecError, parse_spec
from trainers.contract.stacking import check_stack

MOST = 3
SOLVED = 0.95  # held-out reward from which a flat curve of shares is no trouble
NO_RISE = "no-rise"


@dataclass(frozen=True)
class Remedy:
    """``effects``: words of a measured quantity, and where it has to move. ``idea``: where the map of systems lists methods that are about it."""

    effects: tuple[tuple[str, Literal["higher", "lower"]], ...]
    idea: str


LESS_ALIKE = Remedy(
    (
        ("groups whose rewards are all equal", "lower"),
        ("groups with equal rewards", "lower"),
        ("groups without spread", "lower"),
        ("groups without a gradient", "lower"),
    ),
    "curriculum",
)
SHORTER = Remedy((("mean length", "lower"), ("tokens of a held-out episode", "lower")), "efficiency")
REMEDIES: Mapping[str, Remedy] = {  # by health check; NO_RISE is read from the held-out reward
    "zero-variance": LESS_ALIKE,
    "no-gradient": LESS_ALIKE,
    "entropy-collapse": Remedy(
        (("entropy", "higher"), ("distance of peak entropy", "lower"), ("effective number of rewarded", "higher")), "exploration"
    ),
    "cut-off": SHORTER,
    "length-drift": SHORTER,
    "goodhart": Remedy((("true utility", "higher"), ("safe equations", "lower"), ("coherence", "higher")), "faithfulness"),
    "both-fall": Remedy((("log-likelihood of right completions", "higher"), ("log-probability of the right ending", "higher")), "preferences"),
    NO_RISE: Remedy(
        (
            ("held-out accuracy", "higher"),
            ("share of right answers", "higher"),
            ("probability of a right answer", "higher"),
            ("probability of the right", "higher"),
            ("solve rate", "higher"),
            ("mean reward", "higher"),
        ),
        "signal",
    ),
}
SETTINGS_ONLY = frozenset({"not-finite", "one-component", "sampler-mismatch"})  # checks whose cure is a setting and no method


@dataclass(frozen=True)
class Signal:
    """What a method may help against. ``anchor``: the element of the page that shows it; empty for the held-out reward."""

    name: str
    title: str
    anchor: str = ""

    @property
    def idea(self) -> str:
        return REMEDIES[self.name].idea


@dataclass(frozen=True)
class Proposal:
    """``comparison`` is the effect that fits; ``cost`` one that went the wrong way, of what the method does not pay for."""

    signal: Signal
    method: Method
    effect: MethodEffect
    comparison: MethodComparison
    cost: MethodComparison | None

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, str]:
        """Lower is better: without a cost, fresh, not by construction, sure among all comparisons."""
        one = self.comparison
        return (self.cost is not None, self.effect.stale, bool(one.by_construction), not one.holds_among_all, self.method.name)


@dataclass(frozen=True)
class Remedies:
    """``unanswered``: signals that no measured method fits which can be stacked on the run's recipe."""

    proposals: Sequence[Proposal]
    unanswered: Sequence[Signal]


def propose_methods(run: Run, facts: RunFacts, report: HealthReport) -> Remedies:
    """At most three, the best of each signal first. None for a run that was trained elsewhere: its recipe is not known."""
    signals = [] if run.outside else list_signals(facts, report)
    fitting = [sorted(find_fitting_methods(run.spec, signal), key=lambda proposal: proposal.rank) for signal in signals]
    chosen: dict[str, Proposal] = {}
    for proposal in chain.from_iterable(zip_longest(*fitting)):
        if proposal is not None:
            chosen.setdefault(proposal.method.name, proposal)
    return Remedies(list(chosen.values())[:MOST], [signal for signal, found in zip(signals, fitting, strict=True) if not found])


def list_signals(facts: RunFacts, report: HealthReport) -> list[Signal]:
    """The findings that methods can help against, and a held-out reward that has not risen."""
    signals = []
    for found in report.findings:
        name = found.rule.name
        shrinks = name == "length-drift" and fit_trend_line(facts.of(LENGTH)).change < 0  # against which nothing was measured
        if name in REMEDIES and not shrinks:
            signals.append(Signal(name, found.verdict.title, f"finding-{name}"))
    held = facts.of(HELD)
    if len(held) >= MEASUREMENTS and rise_of(facts) <= 0 and not SOLVED <= held.values.max() <= 1:
        first, last = (f"{format_number(float(held.values[place]))} at step {held.steps[place]}" for place in (0, -1))
        signals.append(Signal(NO_RISE, f"Held-out reward has not risen: {first}, {last}"))
    return signals


def find_fitting_methods(spec: Mapping[str, Any], signal: Signal) -> Iterator[Proposal]:
    """Methods with a measured effect on a quantity of the signal's remedy that can be stacked on the recipe."""
    known, wanted = load_catalog().methods_by_name, REMEDIES[signal.name].effects
    for name, effect in load_method_effects().items():
        comparison = next((one for one in effect.measured if is_wanted_effect(one, wanted)), None)
        if comparison and name in known and can_stack_method(spec, name):
            cost = next((one for one in effect.measured if one.verdict == "opposite" and not one.by_construction), None)
            yield Proposal(signal, Method(known[name]), effect, comparison, cost)


def is_wanted_effect(comparison: MethodComparison, wanted: Sequence[tuple[str, str]]) -> bool:
    """Whether it held, was worth having, and is of a wanted quantity in its direction."""
    return comparison.verdict == "held" and any(words in comparison.quantity and comparison.direction == direction for words, direction in wanted)


def can_stack_method(spec: Mapping[str, Any], name: str) -> bool:
    """Whether the recipe can have it as one more method: trainer, world, other methods and settings go with it."""
    if name in stack_of(spec).names:
        return False
    try:
        checked = parse_spec({**spec, "methods": [*(spec.get("methods") or ()), {"name": name}]})
    except SpecError:
        return False
    return not check_stack(checked, load_catalog().methods_by_name).problems
