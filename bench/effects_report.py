"""docs/effects.md and docs/effects.json from the measured results."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench.effect_cases import Case
from bench.effect_statistics import VERDICTS, Comparison, Result, results_of
from trainers.catalog.entries import built_in_entries

SLOW = 1.15
NO_METHOD = "data and ablations"  # systems that are no method here
GROUPS = ("group", "tokens", "prompts", "pairs", "worlds", "analysis", NO_METHOD)
HEADER = (
    "method",
    "claim",
    "problem",
    "quantity",
    "measured",
    "difference [95 %]",
    "worth having",
    "verdict",
    "p",
    "p, Holm",
    "seeds",
    "seconds",
    "step time",
)

INTRODUCTION = """# Measured effects

Each method against its parent, all else equal, on a problem small enough for two CPU cores. Every seed runs both. These are small problems:
*not seen* says nothing about large models.

- **claim**: what should be seen. A note below it says where the case was changed after a first look at its results; take its verdict for less.
- **quantity**: what is compared. The first row of a method is what its claim names. Where the method pays for that quantity, selects by it or sets
  it, the row says *by construction* and why: that it moves shows that the code does what it is written to do, and no more. The rows below it compare
  what the claim is for: accuracy at equal steps and at equal tokens, or another outcome that the method does not pay for.
- **measured**: the mean over seeds with the method, against its parent's.
- **difference**: the mean of the paired differences and its 95 % interval (Student's t). Where every seed has the
  same difference, its spread is taken to be that of rounding: three equal shares of 128 answers do not say that seeds do not vary.
- **worth having**: the smallest difference that would matter to somebody, and why.
- **verdict**: **held** when the interval lies on the claimed side of zero; **opposite** when it lies on the other side; either is **negligible**
  when the mean difference is smaller than what is worth having. **not seen** when the interval holds zero.
- **p** and **p, Holm**: the p-value of no difference, alone and after Holm's correction for all comparisons on this page. Below .05 in the second
  column, a difference holds although so many were looked at; it is printed in bold.
- *stale*: the code of the method, of its case or of a module that either imports has changed since it was measured, so the row may no longer be
  true. Stale rows count in Holm's correction and not in the counts below. *not measured yet* says what it says.

Written by `python -m bench.effects`; the single seeds are in `bench/effect_cases/results/`, the cases beside them.
"""


def write_report(measured: list[tuple[Case, dict[str, Any], str]], docs: Path) -> None:
    """``measured``: each case, what is kept of it, and the digest of its code today."""
    for name, text in render_report(measured).items():
        (docs / name).write_text(text)


def render_report(measured: list[tuple[Case, dict[str, Any], str]]) -> dict[str, str]:
    """Contents of the files by name."""
    results = results_of(measured)
    rows = {result.case.method: describe_result(result) for result in results}
    return {"effects.json": json.dumps(rows, indent=1, sort_keys=True) + "\n", "effects.md": markdown(results)}


def describe_result(result: Result) -> dict[str, Any]:
    """What the method's page says about it."""
    return {
        "parent": result.case.parent,
        "claim": result.case.claim,
        "problem": result.case.problem,
        "changed": result.case.changed,
        "state": result.state,
        "seeds": result.seeds,
        "seconds": round(result.seconds),
        "step_time_ratio": round(result.step_time_ratio, 2) if result.step_time_ratio else None,
        "comparisons": [describe_comparison(one) for one in result.comparisons],
    }


def describe_comparison(one: Comparison) -> dict[str, Any]:
    made: dict[str, Any] = {
        "quantity": one.quantity.words,
        "direction": one.quantity.direction,
        "by_construction": one.quantity.by_construction,
        "least": f"{one.quantity.least:g}",
        "least_because": one.quantity.least_because,
        "verdict": one.verdict or "",
    }
    if one.difference is None:
        return made
    return made | {
        "measured": f"{one.own:.3g} against {one.parent:.3g}",
        "interval": interval(one),
        "p": chance(one.difference.p),
        "holm": chance(one.holm),
        "holds_among_all": one.holds_among_all,
    }


def interval(one: Comparison) -> str:
    assert one.difference is not None
    return f"{one.difference.mean:+.3g} [{one.difference.low:+.3g}, {one.difference.high:+.3g}]"


def chance(value: float) -> str:
    """A p-value to two digits."""
    return "< 0.0001" if value < 0.0001 else f"{value:.2g}"


def markdown(results: list[Result]) -> str:
    groups = {name: entry["group"] for name, entry in built_in_entries().items()}
    lines = [INTRODUCTION, *counts(results), ""]
    for group in GROUPS:
        inside = [result for result in results if groups.get(result.case.method, NO_METHOD) == group]
        if inside:
            lines += [f"## {group.capitalize()}", "", "| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
            lines += [row for result in inside for row in rows_of(result)] + [""]
    slow = [f"{one.case.method} (x {one.step_time_ratio:.2f})" for one in results if (one.step_time_ratio or 0) > SLOW]
    lines.append("Step time is relative to the parent in the same run on the same two cores (median of alternating blocks).")
    if slow:
        lines.append(f"Above x {SLOW}, for the reason given in the method's docstring: {', '.join(slow)}.")
    return "\n".join(lines) + "\n"


def counts(results: list[Result]) -> list[str]:
    """How many comparisons came out how, by construction apart from the rest; then what is stale or missing, by name."""
    fresh = [one for result in results if result.state == "fresh" for one in result.comparisons if one.verdict]
    lines = []
    for title, some in (
        ("Of what no method pays for", [one for one in fresh if not one.quantity.by_construction]),
        ("By construction", [one for one in fresh if one.quantity.by_construction]),
    ):
        found = Counter(one.verdict for one in some)
        said = "; ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS)
        lines.append(
            f"- {title}, {len(some)} comparisons: {said}. After Holm's correction {sum(one.holds_among_all for one in some)} of them differ."
        )
    for state, title in (("stale", "Stale"), ("not measured yet", "Not measured yet")):
        names = [result.case.method for result in results if result.state == state]
        lines.append(f"- {title}: {len(names)} method{'' if len(names) == 1 else 's'}" + (f" ({', '.join(names)})." if names else "."))
    return lines


def rows_of(result: Result) -> list[str]:
    """A line of the table for each quantity; what is said of the method as a whole stands in the first."""
    case = result.case
    claim = case.claim + (f"<br>*Changed after a first look: {case.changed}.*" if case.changed else "")
    ratio = f"x {result.step_time_ratio:.2f}" if result.step_time_ratio else "not measured"
    made = []
    for place, one in enumerate(result.comparisons):
        first = [f"{case.method}<br>against {case.parent}", claim, case.problem] if place == 0 else ["", "", ""]
        last = [str(result.seeds), str(round(result.seconds)), ratio] if place == 0 else ["", "", ""]
        cells = [*first, *cells_of(one, result.state), *last]
        made.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return made


def cells_of(one: Comparison, state: str) -> list[str]:
    quantity = one.quantity
    words = quantity.words + (f"<br>*By construction: {quantity.by_construction}.*" if quantity.by_construction else "")
    least = f"{quantity.least:g}: {quantity.least_because}"
    if one.difference is None:
        return [words, "", "", least, "not measured yet", "", ""]
    verdict = f"*stale* (was: {one.verdict})" if state == "stale" else f"**{one.verdict}**"
    holm = f"**{chance(one.holm)}**" if one.holds_among_all else chance(one.holm)
    return [words, f"{one.own:.3g} against {one.parent:.3g}", interval(one), least, verdict, chance(one.difference.p), holm]
