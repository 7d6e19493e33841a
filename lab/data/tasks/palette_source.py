"""Tasks in the palette."""

from __future__ import annotations

from django.urls import reverse

from lab.data.tasks.models import Task
from lab.training.runs.palette import MOST, SOURCES, PaletteEntry, PaletteQuery, PaletteSource


def find_tasks(query: PaletteQuery) -> list[PaletteEntry]:
    tasks = Task.objects.of(query.team).filter(query.build_condition("name")).order_by("-changed_at")[:MOST]
    return [PaletteEntry(task.name, "task", reverse("task", args=[task.pk])) for task in tasks]


def register_task_palette() -> None:
    SOURCES.register("tasks", PaletteSource("tasks.read", find_tasks))
