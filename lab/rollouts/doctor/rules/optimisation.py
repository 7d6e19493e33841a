"""Gradients and losses."""

from __future__ import annotations

import numpy as np

from lab.lib.numbers import format_number
from lab.rollouts.doctor.facts import RunFacts
from lab.rollouts.doctor.trends import SeriesWindow, compute_newest_window, compute_window_width, window_of
from lab.rollouts.doctor.verdicts import EvidenceLink, HealthRule, RuleVerdict, Severity, make_clear_verdict, make_early_verdict
from lab.training.runs.metrics import Series

NORM = "grad_norm"
ZERO = 1e-7
MOST = 0.9  # of the newest points
FEW_POINTS = 10
WATCHED = ("loss", "grad_norm", "reward", "kl", "entropy")


def no_gradient(facts: RunFacts) -> RuleVerdict:
    """Gradient norm 0 while the reward (where there is none: the loss) stands still."""
    norm = facts.of(NORM)
    if len(norm) < FEW_POINTS:
        return make_early_verdict(len(norm), FEW_POINTS, NORM)
    now = compute_newest_window(norm)
    dead = float((norm.values[-now.count :] <= ZERO).mean())
    if dead < MOST:
        return make_clear_verdict(
            f"Gradient norm {format_number(now.mean)} over steps {now.first} to {now.last}; {format_number(100 * dead)} % of them 0."
        )
    course = next((facts.of(name) for name in ("reward", "loss") if len(facts.of(name)) >= FEW_POINTS), None)
    if course is not None and not is_series_flat(course):
        return make_clear_verdict(
            f"Gradient norm 0 in {format_number(100 * dead)} % of steps {now.first} to {now.last}, but {course.name} still moved over them."
        )
    seen = [f"The gradient norm was 0 in {format_number(100 * dead)} % of steps {now.first} to {now.last}."]
    if course is not None:
        seen.append(f"{course.name} stood at {format_number(compute_newest_window(course).mean)} over those steps, without a trend.")
    spread = facts.of("frac_reward_zero_std")
    if len(spread):
        seen.append(f"{format_number(100 * compute_newest_window(spread).mean)} % of the groups had zero variance there.")
    rate = facts.of("learning_rate")
    if len(rate) and compute_newest_window(rate).mean <= ZERO * 1e-3:
        seen.append("The learning rate was 0 there.")
    links = (EvidenceLink("Rollouts of these steps", (f"step:ge:{now.first}",)), EvidenceLink("Chart", chart=NORM))
    advice = (
        "If groups have zero variance, all advantages are 0: change the prompts or the reward first.",
        "Otherwise check that weights are trainable (LoRA targets, frozen weights) and that not all completions are masked.",
    )
    return RuleVerdict("found", tuple(seen), "The policy gets no gradient", "bad", links, advice)


def is_series_flat(series: Series) -> bool:
    """Whether the two halves of the newest points differ by less than three standard errors."""
    start, half = len(series) - compute_window_width(series), compute_window_width(series) // 2
    first, second = window_of(series, start, start + half), window_of(series, start + half, len(series))
    return abs(first.mean - second.mean) <= 3 * spread_of(first, second) + 1e-9


def spread_of(first: SeriesWindow, second: SeriesWindow) -> float:
    return float(np.hypot(first.error, second.error))


def not_finite(facts: RunFacts) -> RuleVerdict:
    bad = {name: facts.series[name] for name in WATCHED if name in facts.series and not np.isfinite(facts.series[name].values).all()}
    looked = [name for name in WATCHED if name in facts.series]
    if not looked:
        return RuleVerdict("absent", ("This run has not logged a loss, a gradient norm or a reward yet.",))
    if not bad:
        return make_clear_verdict(f"Every value of {', '.join(looked)} is finite.")
    seen = []
    first = min(int(series.steps[~np.isfinite(series.values)][0]) for series in bad.values())
    for name, series in bad.items():
        at = series.steps[~np.isfinite(series.values)]
        seen.append(f"{name}: {len(at)} of {len(series)} values are NaN or infinite, first at step {at[0]}, last at step {at[-1]}.")
    links = (
        EvidenceLink("Rollouts around it", (f"step:ge:{max(0, first - 2)}", f"step:le:{first + 2}")),
        EvidenceLink("Chart", chart=next(iter(bad))),
    )
    advice = (
        "Check the step before the first one: often a very long completion or an extreme ratio is the cause.",
        "Lower the learning rate or max_grad_norm, or train in bf16/fp32 instead of fp16.",
    )
    severe: Severity = "bad" if {"loss", "grad_norm"} & set(bad) else "warn"
    return RuleVerdict("found", tuple(seen), "NaN or infinite values", severe, links, advice)


NO_GRADIENT = HealthRule(
    "no-gradient",
    "No gradient",
    "gradient norms of 0 while the reward does not change",
    (NORM,),
    no_gradient,
    ("reward", "loss", "frac_reward_zero_std", "learning_rate"),
)
NOT_FINITE = HealthRule("not-finite", "NaN and infinite values", "loss, gradient norm, reward, KL and entropy", (), not_finite, WATCHED)
