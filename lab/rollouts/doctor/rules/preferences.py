"""Preference training: what happens to both sides of the pairs."""

from __future__ import annotations

from lab.lib.numbers import format_number
from lab.rollouts.doctor.facts import RunFacts
from lab.rollouts.doctor.trends import ENOUGH, SURE, fit_trend_line
from lab.rollouts.doctor.verdicts import EvidenceLink, HealthRule, RuleVerdict, make_clear_verdict, make_early_verdict, suggest_alternatives

CHOSEN, REJECTED = "logps/chosen", "logps/rejected"
FALL = 0.05  # of the size at the start


def both_fall(facts: RunFacts) -> RuleVerdict:
    """Likelihood displacement: the margin can grow while the chosen answers, too, become less likely."""
    chosen, rejected = facts.of(CHOSEN), facts.of(REJECTED)
    if min(len(chosen), len(rejected)) < ENOUGH:
        return make_early_verdict(min(len(chosen), len(rejected)), ENOUGH, f"{CHOSEN} and {REJECTED}")
    lines = {"chosen": fit_trend_line(chosen), "rejected": fit_trend_line(rejected)}
    courses = [f"Log-probability of the {name} answers: {format_number(line.start)} → {format_number(line.end)} nats" for name, line in lines.items()]
    if not all(line.t <= -SURE and line.relative <= -FALL for line in lines.values()):
        return make_clear_verdict(f"{courses[0]}; {courses[1].lower()} (steps {chosen.steps[0]} to {chosen.steps[-1]}).")
    seen = [f"{course}." for course in courses]
    margin = facts.of("rewards/margins")
    if len(margin) >= ENOUGH:
        line = fit_trend_line(margin)
        seen.append(
            f"The margin went from {format_number(line.start)} to {format_number(line.end)} over the same steps: "
            "it can grow although both log-probabilities fall."
        )
    links = (
        EvidenceLink("Held-out rollouts, worst first", ("phase:is:heldout",), "reward"),
        EvidenceLink("Sampled answers of the pairs", ("phase:is:sampled",)),
        EvidenceLink("Chart", chart="logps"),
    )
    advice = (
        "Lower the learning rate or raise beta.",
        "Add a supervised (SFT) term on the chosen answers.",
        *suggest_alternatives("Bound the margin with a different base", facts, "ipo"),
        "Look for pairs with nearly identical answers: lowering one also lowers the other.",
    )
    return RuleVerdict("found", tuple(seen), "Chosen and rejected log-probabilities both fall", "warn", links, advice)


BOTH_FALL = HealthRule(
    "both-fall",
    "Falling log-probabilities",
    "trends of the chosen and rejected log-probabilities",
    (CHOSEN, REJECTED),
    both_fall,
    ("rewards/margins",),
)
