"""The figures of an ablation: each variant's mean with its interval and every seed, and what each method contributes to the full stack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.urls import reverse

from lab.training.ablations.budgets import find_budget_cuts
from lab.training.ablations.intervals import MeanEstimate, estimate_mean_interval
from lab.training.ablations.models import Ablation, AblationRun
from lab.training.ablations.quantities import AblationQuantity, list_quantities, read_run_values
from lab.training.ablations.variants import BASE, FULL, variant_without
from lab.training.runs.models import OPEN, Run, Status
from lab.training.runs.stack import stack_of

GREY = 8  # series colour of the base


@dataclass(frozen=True)
class VariantCell:
    """A variant's quantity over its finished seeds, and how far it is from the full stack (this minus full, paired by seed)."""

    quantity: AblationQuantity
    estimate: MeanEstimate | None
    difference: MeanEstimate | None


@dataclass(frozen=True)
class VariantRow:
    variant: str
    color: int
    members: list[AblationRun]
    cells: list[VariantCell]

    @property
    def finished(self) -> int:
        return sum(member.run.status == Status.FINISHED for member in self.members)


@dataclass(frozen=True)
class MethodShare:
    """What a method contributes to a quantity: the full stack minus the stack without it, paired by seed. ``claimed``: its card is about this."""

    quantity: AblationQuantity
    estimate: MeanEstimate | None
    claimed: str = ""

    @property
    def verdict(self) -> str:
        """Whether the claim was seen here; empty where the method claims nothing or one seed is all there is."""
        if not self.claimed or self.estimate is None or self.estimate.half is None:
            return ""
        sign = 1 if self.claimed == "higher" else -1
        return {sign: "held", 0: "not seen", -sign: "opposite"}[self.estimate.sign]


@dataclass(frozen=True)
class Contribution:
    method: str
    shares: list[MethodShare]


@dataclass
class AblationFigures:
    quantities: list[AblationQuantity]
    rows: list[VariantRow]
    contributions: list[Contribution]
    chart: list[dict[str, Any]] = field(default_factory=list)

    @property
    def chart_json(self) -> str:
        return json.dumps(self.chart)


def build_ablation_figures(ablation: Ablation, members: list[AblationRun]) -> AblationFigures:
    """From the finished runs among ``members``; a quantity that none of them has is left out once there are any."""
    finished = [member.run for member in members if member.run.status == Status.FINISHED]
    cuts = find_budget_cuts(ablation.read_matched_budget(), [run.pk for run in finished])
    known = [(quantity, read_run_values(quantity, finished, cuts)) for quantity in list_quantities(ablation)]
    known = [(quantity, of_run) for quantity, of_run in known if of_run or not finished]
    tables = [(quantity, by_variant(members, of_run)) for quantity, of_run in known]
    rows = [build_variant_row(variant.name, index, members, tables) for index, variant in enumerate(ablation.list_variants())]
    methods = () if ablation.is_grid else stack_of(ablation.spec).methods
    contributions = [compute_contribution(ablation.spec, method, tables) for method in methods]
    return AblationFigures([quantity for quantity, _ in known], rows, contributions, build_ablation_charts(rows, tables))


Seeds = Mapping[int, float]  # seed -> value
Table = tuple[AblationQuantity, dict[str, dict[int, float]]]  # variant -> seed -> value


def by_variant(members: list[AblationRun], of_run: Mapping[UUID, float]) -> dict[str, dict[int, float]]:
    values: dict[str, dict[int, float]] = {}
    for member in members:
        if member.run_id in of_run:
            values.setdefault(member.variant, {})[member.seed] = of_run[member.run_id]
    return values


def build_variant_row(variant: str, index: int, members: list[AblationRun], tables: list[Table]) -> VariantRow:
    cells = []
    for quantity, table in tables:
        apart = None if variant == FULL else estimate_paired_difference(table, variant, FULL)
        cells.append(VariantCell(quantity, estimate_seed_mean(table.get(variant, {})), apart))
    color = GREY if variant == BASE else index % (GREY - 1) + 1
    return VariantRow(variant, color, [member for member in members if member.variant == variant], cells)


def compute_contribution(spec: dict[str, Any], method: str, tables: list[Table]) -> Contribution:
    lacking = variant_without(spec, method)
    shares = [
        MethodShare(quantity, estimate_paired_difference(table, FULL, lacking), dict(quantity.claims).get(method, "")) for quantity, table in tables
    ]
    return Contribution(method, shares)


def estimate_seed_mean(seeds: Seeds) -> MeanEstimate | None:
    return estimate_mean_interval([seeds[seed] for seed in sorted(seeds)])


def estimate_paired_difference(table: Mapping[str, Seeds], first: str, second: str) -> MeanEstimate | None:
    """``first`` minus ``second`` over the seeds that both have finished: the same seed draws the same prompts, which takes that noise away."""
    ones, others = table.get(first, {}), table.get(second, {})
    return estimate_mean_interval([ones[seed] - others[seed] for seed in sorted(set(ones) & set(others))])


def build_ablation_charts(rows: list[VariantRow], tables: list[Table]) -> list[dict[str, Any]]:
    """One chart a quantity, as JSON: every variant with its mean, its interval and a dot for each seed that leads to the run."""
    return [
        {
            "key": quantity.key,
            "label": quantity.label,
            "unit": quantity.unit,
            "variants": [
                build_variant_series(row, cell.estimate, table.get(row.variant, {}))
                for row in rows
                for cell in row.cells
                if cell.quantity == quantity
            ],
        }
        for quantity, table in tables
    ]


def build_variant_series(row: VariantRow, estimate: MeanEstimate | None, seeds: Seeds) -> dict[str, Any]:
    runs = {member.seed: member.run for member in row.members}
    dots = [{"seed": seed, "value": seeds[seed], "run": runs[seed].number, "url": reverse("run", args=[runs[seed].pk])} for seed in sorted(seeds)]
    return {"name": row.variant, "color": row.color, "mean": estimate and estimate.mean, "half": estimate and estimate.half, "dots": dots}


@dataclass(frozen=True)
class RunsProgress:
    """How far the runs are, each counting by its own steps."""

    total: int
    finished: int
    training: int
    waiting: int
    ended: int  # stopped or failed: they have no figures

    share: float

    @property
    def is_open(self) -> bool:
        return bool(self.training or self.waiting)


def compute_ablation_progress(runs: list[Run]) -> RunsProgress:
    count = {status: sum(run.status == status for run in runs) for status in Status}
    training = sum(run.is_active for run in runs)
    done = sum(1.0 if run.status not in OPEN else min(1.0, run.step / run.total_steps) if run.total_steps else 0.0 for run in runs)
    return RunsProgress(
        total=len(runs),
        finished=count[Status.FINISHED],
        training=training,
        waiting=count[Status.QUEUED] + count[Status.LOST],
        ended=count[Status.STOPPED] + count[Status.FAILED],
        share=done / len(runs) if runs else 0.0,
    )
