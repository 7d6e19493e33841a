"""Reports in the palette."""

from __future__ import annotations

from django.db.models import F
from django.urls import reverse

from lab.training.runs.palette import MOST, SOURCES, PaletteEntry, PaletteQuery, PaletteSource
from lab.watching.reports.models import Report


def find_reports(query: PaletteQuery) -> list[PaletteEntry]:
    """By title, the newest first; archived ones last."""
    found = Report.objects.of(query.team).filter(query.build_condition("title")).order_by(F("archived_at").asc(nulls_first=True), "-updated_at")
    return [PaletteEntry(one.title, "archived report" if one.archived_at else "report", reverse("report", args=[one.pk])) for one in found[:MOST]]


def register_palette_source() -> None:
    SOURCES.register("reports", PaletteSource("reports.read", find_reports))
