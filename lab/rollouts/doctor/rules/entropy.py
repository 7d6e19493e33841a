"""Token entropy that is gone."""

from __future__ import annotations

from lab.lib.numbers import format_number
from lab.rollouts.doctor.facts import RunFacts
from lab.rollouts.doctor.heldout import rise_of
from lab.rollouts.doctor.trends import ENOUGH, SeriesWindow, compute_newest_window, compute_oldest_window, split_into_windows
from lab.rollouts.doctor.verdicts import (
    EvidenceLink,
    HealthRule,
    RuleVerdict,
    make_absent_verdict,
    make_clear_verdict,
    make_early_verdict,
    suggest_alternatives,
)

ENTROPY = "entropy"
RELATIVE = 0.2  # of the start
ABSOLUTE = 0.1  # nats
DEEP = (0.1, 0.05)


def judge_entropy_collapse(facts: RunFacts) -> RuleVerdict:
    """Low both relative to the start and as such; either alone is common and harmless."""
    if facts.trainer in ("sft", "gkd"):
        return make_absent_verdict("Learning from demonstrations or a teacher lowers entropy on purpose.")
    series = facts.of(ENTROPY)
    if len(series) < ENOUGH:
        return make_early_verdict(len(series), ENOUGH, ENTROPY)
    then, now = compute_oldest_window(series), compute_newest_window(series)
    share = now.mean / then.mean if then.mean > 0 else 1.0
    course = f"Mean token entropy: {describe_entropy_window(then)}, {describe_entropy_window(now)}"
    if now.high > RELATIVE * then.low or now.high > ABSOLUTE:
        return make_clear_verdict(f"{course} ({format_number(100 * share)} % of the start).")
    seen = [f"{course}: {format_number(100 * share)} % of the start is left."]
    if half := next((window for window in split_into_windows(series) if window.high < then.mean / 2), None):
        seen.append(f"It had fallen below half of the start by step {half.last}.")
    held = facts.of("heldout/reward")
    if len(held) >= 2:
        seen.append(f"Held-out reward went from {format_number(float(held.values[0]))} to {format_number(float(held.values[-1]))} meanwhile.")
    gained = rise_of(facts) > 0
    links = (
        EvidenceLink("Least uncertain rollouts now", (f"step:ge:{now.first}", "phase:is:train"), "mean_entropy"),
        EvidenceLink("Zero-variance groups", (f"step:ge:{now.first}", "zero_variance:is:yes")),
        EvidenceLink("Chart", chart=ENTROPY),
    )
    advice = (
        *suggest_alternatives(
            "If the reward should still grow, keep up exploration: higher temperature, higher clip ε, an entropy method", facts, "dapo", "siren"
        ),
        "If the task is solved, low entropy is expected; sample several times to check the remaining diversity.",
    )
    deep = share <= DEEP[0] and now.mean <= DEEP[1] and not gained
    return RuleVerdict("found", tuple(seen), "Token entropy has collapsed", "bad" if deep else "warn", links, advice)


def describe_entropy_window(window: SeriesWindow) -> str:
    return f"{format_number(window.mean)} nats over steps {window.first} to {window.last}"


COLLAPSE = HealthRule(
    "entropy-collapse",
    "Entropy collapse",
    "mean token entropy now vs. the start, relative and absolute",
    (ENTROPY,),
    judge_entropy_collapse,
    ("heldout/reward",),
)
