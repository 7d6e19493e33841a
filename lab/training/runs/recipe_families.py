"""Recipes that differ in model and GPU only, as one card with a choice of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FamilyModel:
    """``recipes``: by the family's GPUs; None where there is none for it."""

    title: str
    recipes: list[dict[str, Any] | None]


@dataclass(frozen=True)
class RecipeFamily:
    """``gpus``: GB, ascending. ``summary``: of its first recipe, whose words are those of all."""

    title: str
    summary: str
    trainers: list[str]
    gpus: list[int]
    models: list[FamilyModel]

    @property
    def names(self) -> list[str]:
        return [recipe["name"] for model in self.models for recipe in model.recipes if recipe]


def group_recipe_families(recipes: Sequence[dict[str, Any]]) -> list[RecipeFamily]:
    titles = dict.fromkeys(recipe["family"] for recipe in recipes if recipe.get("family"))
    return [build_family(title, [recipe for recipe in recipes if recipe.get("family") == title]) for title in titles]


def build_family(title: str, recipes: Sequence[dict[str, Any]]) -> RecipeFamily:
    gpus = sorted({recipe["gpu"] for recipe in recipes})
    by_place = {(recipe["model"], recipe["gpu"]): recipe for recipe in recipes}
    models = [FamilyModel(model, [by_place.get((model, gpu)) for gpu in gpus]) for model in dict.fromkeys(recipe["model"] for recipe in recipes)]
    first = recipes[0]
    trainers = [stage["spec"]["training"]["trainer"] for stage in first["stages"]]
    return RecipeFamily(title, first["summary"], trainers, gpus, models)


def find_family(recipes: Sequence[dict[str, Any]], name: str) -> RecipeFamily | None:
    """The family of the recipe ``name``; None for one that stands alone."""
    title = next((recipe.get("family") for recipe in recipes if recipe["name"] == name), "")
    return next((family for family in group_recipe_families(recipes) if family.title == title), None)
