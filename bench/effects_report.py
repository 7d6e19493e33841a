"""docs/effects.md and docs/effects.json from the measured results."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

from trainers.stacking import entries

# 97.5 % quantiles of Student's t by degrees of freedom.
T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 15: 2.131, 19: 2.093}
SLOW = 1.15

INTRODUCTION = """# Measured effects

Each method against its parent, all else equal, on a problem small enough for two CPU cores. Every seed runs both; the interval is that of Student's
t over the paired differences (95 %). **held**: the interval lies on the claimed side of zero. **opposite**: it lies on the other side.
**not seen**: it holds zero. These are small problems: *not seen* says nothing about large models, and *held* not that the gain is worth having.
Written by `python -m bench.effects`; the single seeds are in `bench/effect_cases/results/`, the cases beside them.
"""


def write_report(results: Path, docs: Path) -> None:
    found = [json.loads(file.read_text()) for file in sorted(results.glob("*.json"))]
    groups = {name: entry["group"] for name, entry in entries().items()}
    rows = {one["method"]: summary(one) for one in found if one["method"] in groups}
    (docs / "effects.json").write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    (docs / "effects.md").write_text(markdown(rows, groups))


def summary(one: dict[str, Any]) -> dict[str, Any]:
    """What the method's page and the table say about one method."""
    step = one.get("step_time") or {}
    made: dict[str, Any] = {"parent": one["parent"], "step_time_ratio": round(step["ratio"], 2) if step else None}
    pairs = list((one.get("values") or {}).values())
    if len(pairs) < 2:
        return made | {"verdict": "", "seeds": len(pairs)}
    differences = [own - parent for own, parent in pairs]
    mean, half = statistics.fmean(differences), half_width(differences)
    return made | {
        "claim": one["claim"],
        "quantity": one["quantity"],
        "problem": one["problem"],
        "measured": f"{shown(statistics.fmean(own for own, _ in pairs))} against {shown(statistics.fmean(parent for _, parent in pairs))}",
        "difference": mean,
        "interval": f"{signed(mean)} [{signed(mean - half)}, {signed(mean + half)}]",
        "verdict": verdict(mean, half, one["direction"]),
        "seconds": round(one["seconds"]),
        "seeds": len(pairs),
    }


def half_width(differences: list[float]) -> float:
    count = len(differences)
    quantile = T[max(df for df in T if df <= count - 1)]
    return quantile * statistics.stdev(differences) / math.sqrt(count)


def verdict(mean: float, half: float, direction: str) -> str:
    towards = mean if direction == "higher" else -mean
    if towards - half > 0:
        return "held"
    return "opposite" if towards + half < 0 else "not seen"


def shown(value: float) -> str:
    return f"{value:.3g}"


def signed(value: float) -> str:
    return f"{value:+.3g}"


def markdown(rows: dict[str, dict[str, Any]], groups: dict[str, str]) -> str:
    measured = [row for row in rows.values() if row["verdict"]]
    counts = {name: sum(row["verdict"] == name for row in measured) for name in ("held", "not seen", "opposite")}
    lines = [INTRODUCTION, f"{len(measured)} methods measured: " + ", ".join(f"{count} {name}" for name, count in counts.items()) + ".", ""]
    for group in ("group", "tokens", "prompts", "pairs", "analysis"):
        inside = {name: row for name, row in rows.items() if groups[name] == group and row["verdict"]}
        if not inside:
            continue
        lines += [
            f"## {group.capitalize()}",
            "",
            "| method | claim | problem | measured | difference [95 %] | verdict | seeds | seconds | step time |",
        ]
        lines += ["|---|---|---|---|---|---|---|---|---|"]
        lines += [line(name, row) for name, row in inside.items()]
        lines.append("")
    slow = [f"{name} (x {row['step_time_ratio']:.2f})" for name, row in rows.items() if (row["step_time_ratio"] or 0) > SLOW]
    lines.append("Step time is relative to the parent in the same run on the same two cores (median of alternating blocks).")
    if slow:
        lines.append(f"Above x {SLOW}, for the reason given in the method's docstring: {', '.join(slow)}.")
    return "\n".join(lines) + "\n"


def line(name: str, row: dict[str, Any]) -> str:
    ratio = f"x {row['step_time_ratio']:.2f}" if row["step_time_ratio"] else "not measured"
    measured = f"{row['quantity']}: {row['measured']} ({row['parent']})"
    cells = [name, row["claim"], row["problem"], measured, row["interval"], f"**{row['verdict']}**", row["seeds"], row["seconds"], ratio]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
