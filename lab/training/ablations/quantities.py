"""What an ablation measures of each run: one number a run, read from the stored metrics of its finished runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from lab.training.ablations.budgets import Cut
from lab.training.ablations.models import Ablation
from lab.training.runs import curve_values, metrics
from lab.training.runs.models import Run
from lab.training.runs.stack import load_method_entries, stack_of

WALL = "@wall"


@dataclass(frozen=True)
class AblationQuantity:
    """``metric`` is a logged one, or WALL for the time from start to end. ``claims``: methods that are about it, with the claimed direction."""

    metric: str
    label: str
    reading: Literal["last", "tail", "median", "wall"]
    unit: str = ""
    claims: tuple[tuple[str, Literal["higher", "lower"]], ...] = ()

    @property
    def key(self) -> str:
        return self.metric.replace("/", "-").replace("@", "")

    @property
    def help(self) -> str:
        return curve_values.WORDS[self.reading]


LABELS = {
    "heldout/reward": ("Held-out reward", ""),
    "heldout/accuracy": ("Held-out accuracy", ""),
    "heldout/entropy": ("Held-out entropy", "nats"),
    "heldout/length": ("Held-out length", "tokens"),
    "entropy": ("Token entropy", "nats"),
    "completions/mean_length": ("Completion length", "tokens"),
    "kl": ("KL to the reference", "nats"),
    "speed/step_seconds": ("Step time", "s"),
}
ALWAYS = ("heldout/reward", "heldout/accuracy")


def list_quantities(ablation: Ablation) -> list[AblationQuantity]:
    """Of an ablation those of its recipe; of a grid those of all methods that any of its cells stacks."""
    if not ablation.is_grid:
        return quantities_of(ablation.spec)
    stacked = [method for cell in ablation.list_variants() for method in stack_of(cell.spec(ablation.spec, 0)).methods]
    return quantities_of_methods(dict.fromkeys(stacked))


def quantities_of(spec: dict[str, object]) -> list[AblationQuantity]:
    return quantities_of_methods(stack_of(spec).methods)


def quantities_of_methods(methods: Iterable[str]) -> list[AblationQuantity]:
    """Held-out reward and accuracy, what each method claims to change, and time."""
    claims: dict[str, list[tuple[str, Literal["higher", "lower"]]]] = {name: [] for name in ALWAYS}
    for name, entry in load_method_entries(methods).items():
        if claim := entry.get("claim"):
            claims.setdefault(claim["metric"], []).append((name, claim["direction"]))
    claimed = [make_quantity(metric, tuple(by)) for metric, by in claims.items()]
    return [*claimed, AblationQuantity("speed/step_seconds", "Step time", "median", "s"), AblationQuantity(WALL, "Run time", "wall", "s")]


def make_quantity(metric: str, claims: tuple[tuple[str, Literal["higher", "lower"]], ...]) -> AblationQuantity:
    label, unit = LABELS.get(metric, (metric, ""))
    return AblationQuantity(metric, label, "last" if metric.startswith("heldout/") else "tail", unit, claims)


NO_CUTS: Mapping[UUID, Cut] = {}


def read_run_values(quantity: AblationQuantity, runs: Sequence[Run], cuts: Mapping[UUID, Cut] = NO_CUTS) -> dict[UUID, float]:
    """The quantity of each run that has it, in two queries; of its curve up to where a budget cuts it, but for the time from start to end."""
    if quantity.reading == "wall":
        return {run.pk: (run.finished_at - run.started_at).total_seconds() for run in runs if run.finished_at and run.started_at}
    return reduce_curves(quantity, metrics.read_sparkline_series([run.pk for run in runs], quantity.metric, 0), cuts)


def reduce_curves(quantity: AblationQuantity, curves: Mapping[UUID, metrics.Series], cuts: Mapping[UUID, Cut] = NO_CUTS) -> dict[UUID, float]:
    values = {key: reduce_series(quantity, cut_curve(curve, cuts.get(key))) for key, curve in curves.items()}
    return {key: value for key, value in values.items() if value is not None}


def cut_curve(curve: metrics.Series, cut: Cut | None) -> metrics.Series:
    return curve if cut is None or cut.step is None else curve_values.cut_series(curve, cut.step)


READINGS = {"last": curve_values.find_last_value, "tail": curve_values.compute_tail_mean, "median": curve_values.compute_median_value}


def reduce_series(quantity: AblationQuantity, series: metrics.Series) -> float | None:
    """One number of a run's points; None when none of them is finite."""
    found = READINGS[quantity.reading](series)
    return None if found is None else found.value
