"""Queues in the palette: those that the person may see."""

from __future__ import annotations

from django.urls import reverse

from lab.labelling.labels.people import open_to
from lab.training.runs.palette import MOST, SOURCES, PaletteEntry, PaletteQuery, PaletteSource


def find_queues(query: PaletteQuery) -> list[PaletteEntry]:
    queues = open_to(query.team, query.user, query.may("label.lead")).filter(query.build_condition("name")).order_by("-created_at")[:MOST]
    return [PaletteEntry(queue.name, "queue", reverse("queue", args=[queue.pk])) for queue in queues]


def register_palette_source() -> None:
    SOURCES.register("queues", PaletteSource("label.see", find_queues))
