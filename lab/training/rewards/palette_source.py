"""Reward functions in the palette."""

from __future__ import annotations

from django.urls import reverse

from lab.training.rewards.models import RewardFunction
from lab.training.runs.palette import MOST, SOURCES, PaletteEntry, PaletteQuery, PaletteSource


def find_functions(query: PaletteQuery) -> list[PaletteEntry]:
    rows = RewardFunction.objects.of(query.team).filter(query.build_condition("name"), archived_at=None).order_by("-changed_at")[:MOST]
    return [PaletteEntry(function.name, "reward function", reverse("reward", args=[function.pk])) for function in rows]


def register_reward_palette() -> None:
    SOURCES.register("rewards", PaletteSource("rewards.read", find_functions))
