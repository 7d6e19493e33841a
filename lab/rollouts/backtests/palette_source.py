"""Backtests in the palette."""

from __future__ import annotations

from django.urls import reverse

from lab.rollouts.backtests.models import Backtest
from lab.training.runs.palette import MOST, SOURCES, PaletteEntry, PaletteQuery, PaletteSource


def find_backtests(query: PaletteQuery) -> list[PaletteEntry]:
    """By the name of the function."""
    rows = Backtest.objects.of(query.team).filter(query.build_condition("name")).select_related("run").order_by("-created_at")[:MOST]
    return [PaletteEntry(f"{row.name} on #{row.run.number}", "backtest", reverse("backtest", args=[row.pk])) for row in rows]


def register_backtest_palette() -> None:
    SOURCES.register("backtests", PaletteSource("rewards.read", find_backtests))
