"""Recipes that a team saved. A version never changes; saving under the same name makes the next one, deleting can be undone."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import Max, OuterRef, Subquery
from django.utils import timezone
from django.utils.text import slugify

from lab.accounts.models import Team, User

NAME_LENGTH, NOTE_LENGTH = 80, 300


class SavedRecipeQuerySet(models.QuerySet["SavedRecipe"]):
    def of(self, team: Team) -> SavedRecipeQuerySet:
        return self.filter(team=team)

    def kept(self) -> SavedRecipeQuerySet:
        return self.filter(deleted_at=None)

    def save_version(self, team: Team, user: User, name: str, note: str, origin: str, stages: list[dict[str, Any]]) -> RecipeVersion:
        """The next version of the team's recipe of that name. A deleted recipe of the name comes back with all its versions."""
        with transaction.atomic():
            Team.objects.select_for_update().get(pk=team.pk)  # two people who save at once get two numbers
            recipe, _ = self.update_or_create(team=team, name=name, defaults={"deleted_at": None})
            newest = recipe.versions.aggregate(number=Max("number"))["number"] or 0
            return recipe.versions.create(number=newest + 1, note=note, origin=origin, stages=stages, created_by=user)


class SavedRecipe(models.Model):
    team = models.ForeignKey(Team, models.CASCADE, related_name="recipes")
    name = models.CharField(max_length=NAME_LENGTH)
    created_at = models.DateTimeField(auto_now_add=True)
    deleted_at = models.DateTimeField(null=True)

    objects = SavedRecipeQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="recipe_name_in_team")]

    def __str__(self) -> str:
        return self.name

    def delete_softly(self) -> bool:
        """Takes it off the lists; False when somebody did so before."""
        return bool(SavedRecipe.objects.filter(pk=self.pk, deleted_at=None).update(deleted_at=timezone.now()))

    def restore(self) -> bool:
        return bool(SavedRecipe.objects.filter(pk=self.pk).exclude(deleted_at=None).update(deleted_at=None))


class RecipeVersionQuerySet(models.QuerySet["RecipeVersion"]):
    def of(self, team: Team) -> RecipeVersionQuerySet:
        """Versions of the team's recipes that are not deleted, with recipe and author."""
        return self.filter(recipe__team=team, recipe__deleted_at=None).select_related("recipe", "created_by")

    def newest(self) -> RecipeVersionQuerySet:
        """One of each recipe, the newest first."""
        newest = RecipeVersion.objects.filter(recipe=OuterRef("recipe")).order_by("-number").values("number")[:1]
        return self.filter(number=Subquery(newest)).order_by("-created_at")


class RecipeVersion(models.Model):
    """``stages``: title and spec of each stage without output, policies and datasets by name. ``origin``: the built-in recipe it was made from."""

    recipe = models.ForeignKey(SavedRecipe, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    note = models.CharField(max_length=NOTE_LENGTH, blank=True)
    origin = models.CharField(max_length=100)
    stages = models.JSONField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = RecipeVersionQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["recipe", "number"], name="version_in_recipe")]
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"{self.recipe} v{self.number}"

    @property
    def slug(self) -> str:
        """For the address of its launch form; a recipe of an older catalogue may have any name."""
        return slugify(self.origin) or "custom"

    @property
    def trainers(self) -> list[str]:
        return [stage["spec"]["training"]["trainer"] for stage in self.stages]

    @property
    def methods(self) -> list[str]:
        """Names of the bases that are not the usual ones and of the methods, in order."""
        found = []
        for stage in self.stages:
            base = stage["spec"].get("base")
            found += [choice["name"] for choice in ([base] if base else []) + (stage["spec"].get("methods") or [])]
        return found
