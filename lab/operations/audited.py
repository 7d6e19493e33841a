"""Where the objects that the audit log names are seen."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from lab.ablations.models import Ablation
from lab.accounts.models import ApiToken, Membership, Project, Team
from lab.audit.links import register
from lab.catalog.models import SavedRecipe
from lab.datasets.models import Dataset, Recall, Version
from lab.labels.models import Item, Queue
from lab.loop.models import Feed
from lab.runs.models import Run


def connect() -> None:
    for kind, words, model, route in (
        ("run", "run", Run, "run"),
        ("ablation", "ablation", Ablation, "ablation"),
        ("savedrecipe", "saved recipe", SavedRecipe, "recipe-saved"),
        ("queue", "queue", Queue, "queue"),
        ("dataset", "dataset", Dataset, "dataset"),
        ("version", "dataset version", Version, "version"),
    ):
        page(kind, words, model, route)
    register("item", "item", lambda team: Item.objects.filter(queue__team=team), lambda pk: reverse("label-item", args=[pk]))
    register("recall", "recall", Recall.objects.of, lambda pk: f"{reverse('recalls')}#recall-{pk}")
    register("feed", "feed", lambda team: Feed.objects.filter(team=team), lambda pk: reverse("run-feeds", args=[Feed.objects.get(pk=pk).run_id]))
    whole("apitoken", "access token", ApiToken, "tokens")
    whole("membership", "membership", Membership, "team")
    whole("project", "project", Project, "projects")
    register("user", "account", lambda team: Team.objects.none(), lambda pk: "")


def page(kind: str, words: str, model: Any, route: str) -> None:
    register(kind, words, model.objects.of, lambda pk: reverse(route, args=[pk]))


def whole(kind: str, words: str, model: Any, route: str) -> None:
    """Objects that have no page of their own are seen on the page of all of them."""
    register(kind, words, lambda team: model.objects.filter(team=team), lambda pk: reverse(route))
