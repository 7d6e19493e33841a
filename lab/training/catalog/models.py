"""Recipes that a team saved. A version never changes; saving under the same name makes the next one, deleting can be undone."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.text import slugify

from lab.teams.accounts.models import Team, User
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet

NAME_LENGTH, NOTE_LENGTH = 80, 300


class SavedRecipeQuerySet(TeamQuerySet["SavedRecipe"]):
    def kept(self) -> SavedRecipeQuerySet:
        return self.filter(deleted_at=None)

    def save_version(self, team: Team, user: User, name: str, note: str, origin: str, stages: list[dict[str, Any]]) -> tuple[RecipeVersion, bool]:
        """The next version of the team's recipe of that name and True; the newest one and False where it says just this already, as when a form
        is sent twice. A deleted recipe of the name comes back with all its versions.
        """
        with transaction.atomic():
            Team.objects.select_for_update().get(pk=team.pk)  # two people who save at once get two numbers
            recipe, _ = self.update_or_create(team=team, name=name, defaults={"deleted_at": None})
            newest = recipe.versions.first()
            if newest and (newest.note, newest.origin, newest.stages) == (note, origin, stages):
                return newest, False
            number = newest.number + 1 if newest else 1
            return recipe.versions.create(number=number, note=note, origin=origin, stages=stages, created_by=user), True


class SavedRecipe(TeamOwned):
    team = models.ForeignKey(Team, models.CASCADE, related_name="recipes")
    name = models.CharField(max_length=NAME_LENGTH)
    created_at = models.DateTimeField(auto_now_add=True)
    deleted_at = models.DateTimeField(null=True)

    objects = TeamManager.from_queryset(SavedRecipeQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(SavedRecipeQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="recipe_name_in_team")]

    def __str__(self) -> str:
        return self.name

    def delete_softly(self) -> bool:
        """Takes it off the lists; False when somebody did so before."""
        return bool(SavedRecipe.objects.same_row(self).filter(deleted_at=None).update(deleted_at=timezone.now()))

    def restore(self) -> bool:
        return bool(SavedRecipe.objects.same_row(self).exclude(deleted_at=None).update(deleted_at=None))


class RecipeVersionQuerySet(TeamQuerySet["RecipeVersion"]):
    def of(self, team: Team | int) -> RecipeVersionQuerySet:
        """Versions of the team's recipes that are not deleted, with recipe and author."""
        return self.filter(recipe__team=team, recipe__deleted_at=None).select_related("recipe", "created_by")

    def newest(self) -> RecipeVersionQuerySet:
        """One of each recipe, the newest first."""
        newest = RecipeVersion.objects.filter(recipe=OuterRef("recipe")).order_by("-number").values("number")[:1]
        return self.filter(number=Subquery(newest)).order_by("-created_at")


class RecipeVersion(TeamOwned):
    """``stages``: title and spec of each stage without output, policies and datasets by name. ``origin``: the built-in recipe it was made from."""

    team_path = "recipe__team"

    recipe = models.ForeignKey(SavedRecipe, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    note = models.CharField(max_length=NOTE_LENGTH, blank=True)
    origin = models.CharField(max_length=100)
    stages = models.JSONField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TeamManager.from_queryset(RecipeVersionQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(RecipeVersionQuerySet)()  # type: ignore[misc,assignment]

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
        names = []
        for stage in self.stages:
            base = stage["spec"].get("base")
            names += [choice["name"] for choice in ([base] if base else []) + (stage["spec"].get("methods") or [])]
        return names


class PublishedCatalog(models.Model):
    """What packages installed beside a worker add to the catalogue (``publishing``); of no team."""

    digest = models.CharField(max_length=64, unique=True)  # SHA-256 of the additions as JSON with sorted keys
    additions = models.JSONField()  # {"tasks": […], "methods": […]}, entries as in catalog.json
    worker = models.CharField(max_length=200)  # that confirmed it last
    confirmed_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"catalogue of {self.worker}"
