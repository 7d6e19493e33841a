"""Datasets in the palette."""

from __future__ import annotations

from django.urls import reverse

from lab.data.datasets.models import Dataset
from lab.training.runs.palette import MOST, SOURCES, PaletteEntry, PaletteQuery, PaletteSource


def find_datasets(query: PaletteQuery) -> list[PaletteEntry]:
    datasets = Dataset.objects.of(query.team).filter(query.build_condition("name")).order_by("-created_at")[:MOST]
    return [PaletteEntry(dataset.name, "dataset", reverse("dataset", args=[dataset.pk])) for dataset in datasets]


def register_palette_source() -> None:
    SOURCES.register("datasets", PaletteSource("datasets.read", find_datasets))
