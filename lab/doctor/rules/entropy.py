"""Token entropy that is gone."""

from __future__ import annotations

from lab.doctor.facts import Facts
from lab.doctor.trends import ENOUGH, Window, newest, oldest
from lab.doctor.verdicts import Link, Rule, Verdict, absent, clear, early
from lab.lib.numbers import number

ENTROPY = "entropy"
RELATIVE = 0.2  # of the start
ABSOLUTE = 0.1  # nats
DEEP = (0.1, 0.05)


def collapse(facts: Facts) -> Verdict:
    """Low both relative to the start and as such; either alone is common and harmless."""
    if facts.trainer == "sft":
        return absent("Supervised training lowers entropy on purpose.")
    series = facts.of(ENTROPY)
    if len(series) < ENOUGH:
        return early(len(series), ENOUGH, ENTROPY)
    then, now = oldest(series), newest(series)
    share = now.mean / then.mean if then.mean > 0 else 1.0
    course = f"Mean token entropy: {said(then)}, {said(now)}"
    if share > RELATIVE or now.mean > ABSOLUTE:
        return clear(f"{course} ({number(100 * share)} % of the start).")
    seen = [f"{course}: {number(100 * share)} % of the start is left."]
    half = series.steps[series.values < then.mean / 2]
    if len(half):
        seen.append(f"It first fell below half of the start at step {int(half[0])}.")
    held = facts.of("heldout/reward")
    if len(held) >= 2:
        seen.append(f"Held-out reward went from {number(float(held.values[0]))} to {number(float(held.values[-1]))} meanwhile.")
    gained = len(held) >= 2 and held.values[-1] > held.values[0]
    links = (
        Link("Least uncertain rollouts now", (f"step:ge:{now.first}", "phase:is:train"), "mean_entropy"),
        Link("Groups without spread", (f"step:ge:{now.first}", "zero_variance:is:yes")),
        Link("Chart", chart=ENTROPY),
    )
    advice = (
        "If reward still has to grow, keep exploration up: a higher clip (dapo), an entropy method (siren), a higher temperature.",
        "If the task is solved, this is what certainty looks like; sample it more than once to see what variety is left.",
    )
    deep = share <= DEEP[0] and now.mean <= DEEP[1] and not gained
    return Verdict("found", tuple(seen), "Token entropy has nearly gone", "bad" if deep else "warn", links, advice)


def said(window: Window) -> str:
    return f"{number(window.mean)} nats over steps {window.first} to {window.last}"


COLLAPSE = Rule(
    "entropy-collapse",
    "Entropy collapse",
    "mean token entropy now against the start, relative and absolute",
    (ENTROPY,),
    collapse,
    ("heldout/reward",),
)
