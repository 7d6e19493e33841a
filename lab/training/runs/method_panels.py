"""The charts that a run's methods declare in the catalogue, as the page draws them: plain dicts, no code for a single method anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

BINS = 20  # of a logged histogram, as trainers.methods.base has it
LINES = 8  # in one chart of metrics that no panel declares

Entry = dict[str, Any]
Described = dict[str, Any]


def build_method_panels(entries: Iterable[Entry], present: set[str]) -> tuple[list[Described], set[str]]:
    """The panels of these methods in order, and which of the metrics that are ``present`` belong to a method and nowhere else."""
    panels: list[Described] = []
    owned: set[str] = set()
    for entry in entries:
        own = {name for name in present if name.startswith(f"{entry['name']}/")}
        declared = [describe_declared_panel(entry["name"], index, panel) for index, panel in enumerate(entry.get("panels", ()))]
        drawn = {name for panel in declared for name in panel["metrics"]}
        panels += declared + build_undeclared_panels(entry["name"], sorted(own - drawn))
        owned |= own
    return panels, owned


def describe_declared_panel(method: str, index: int, panel: dict[str, Any]) -> Described:
    series = histogram_bins(panel) if panel["kind"] == "histogram" else panel["series"]
    traces = [make_panel_trace(index, trace["metric"], trace["label"], trace["dashed"]) for index, trace in enumerate(series)]
    others = [*(panel["band"] or ()), *([panel["phase"]] if panel["phase"] else [])]
    return {
        **make_panel_frame(f"method-{method.replace('.', '-')}-{index}", panel["title"], method, traces),
        "unit": panel["unit"],
        "help": panel["help"],
        "kind": panel["kind"],
        "band": panel["band"],
        "phase": panel["phase"],
        "phase_names": panel["phase_names"],
        "low": panel.get("low"),
        "high": panel.get("high"),
        "metrics": [*(trace["metric"] for trace in traces), *others],
    }


def histogram_bins(panel: dict[str, Any]) -> list[dict[str, Any]]:
    """One series a bin, as ``Method.log_histogram`` names them, each called by the middle of its bin where that is known."""
    name, low, high = panel["series"][0]["metric"], panel.get("low"), panel.get("high")

    def label(index: int) -> str:
        return f"bin {index}" if low is None or high is None else f"{low + (high - low) * (index + 0.5) / BINS:.3g}"

    return [{"metric": f"{name}/{index:02d}", "label": label(index), "dashed": False} for index in range(BINS)]


def build_undeclared_panels(method: str, names: Sequence[str]) -> list[Described]:
    """Metrics of a method that none of its panels draws, folded away."""
    panels = []
    for start in range(0, len(names), LINES):
        title = "Not in a panel" + (f" ({start // LINES + 1})" if len(names) > LINES else "")
        traces = [make_panel_trace(index, name, name.removeprefix(f"{method}/")) for index, name in enumerate(names[start : start + LINES])]
        panel = make_panel_frame(f"method-{method.replace('.', '-')}-more-{start // LINES}", title, method, traces)
        panels.append({**panel, "folded": True, "metrics": [trace["metric"] for trace in traces]})
    return panels


def make_panel_frame(name: str, title: str, method: str, traces: list[dict[str, Any]]) -> Described:
    return {
        "id": name,
        "title": title,
        "section": f"method:{method}",
        "method": method,
        "unit": "",
        "help": "",
        "said": "",
        "points": False,
        "folded": False,
        "kind": "lines",
        "traces": traces,
    }


def make_panel_trace(index: int, metric: str, label: str = "", dashed: bool = False) -> dict[str, Any]:
    return {"metric": metric, "label": label or metric.rpartition("/")[2], "color": index % 8 + 1, "dashed": dashed, "lead": False, "off": False}
