"""Where the objects that the audit log names are seen."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from lab.data.datasets.models import Dataset, Recall, Version
from lab.data.loop.models import Feed
from lab.data.tasks.models import Fetch, Task
from lab.labelling.labels.models import Item, Queue
from lab.models.branches.models import Branch
from lab.models.embeddings.models import Embedder, EmbeddingJob, JobKind
from lab.rollouts.backtests.models import Backtest
from lab.teams.accounts.models import ApiToken, Membership, Project, Team
from lab.teams.audit.links import register_object_place
from lab.training.ablations.models import Ablation
from lab.training.catalog.models import SavedRecipe
from lab.training.rewards.models import RewardFunction
from lab.training.runs.models import Run
from lab.training.sweeps.models import Sweep
from lab.watching.reports.models import Report


def register_audit_links() -> None:
    for kind, words, model, route in (
        ("run", "run", Run, "run"),
        ("ablation", "ablation", Ablation, "ablation"),
        ("sweep", "sweep", Sweep, "sweep"),
        ("rewardfunction", "reward function", RewardFunction, "reward"),
        ("backtest", "backtest", Backtest, "backtest"),
        ("savedrecipe", "saved recipe", SavedRecipe, "recipe-saved"),
        ("branch", "branch", Branch, "branch"),
        ("queue", "queue", Queue, "queue"),
        ("dataset", "dataset", Dataset, "dataset"),
        ("version", "dataset version", Version, "version"),
        ("task", "task", Task, "task"),
        ("report", "report", Report, "report"),
    ):
        register_object_page(kind, words, model, route)
    register_object_place("item", "item", lambda team: Item.objects.filter(queue__team=team), lambda pk: reverse("label-item", args=[pk]))
    register_object_place("recall", "recall", Recall.across_teams.of, lambda pk: f"{reverse('recalls')}#recall-{pk}")
    register_object_place(
        "feed", "feed", lambda team: Feed.objects.filter(team=team), lambda pk: reverse("run-feeds", args=[Feed.across_teams.get(pk=pk).run_id])
    )
    register_object_place(
        "embeddingjob",
        "clustering",
        lambda team: EmbeddingJob.objects.filter(team=team, kind=JobKind.CLUSTERS),
        lambda pk: reverse("clustering", args=[pk]),
    )
    register_list_page("fetch", "fetch of rows", Fetch, "tasks")
    register_list_page("embedder", "vectors", Embedder, "clusters")
    register_list_page("apitoken", "access token", ApiToken, "tokens")
    register_list_page("membership", "membership", Membership, "team")
    register_list_page("project", "project", Project, "projects")
    register_object_place("user", "account", lambda team: Team.objects.none(), lambda pk: "")


def register_object_page(kind: str, words: str, model: Any, route: str) -> None:
    register_object_place(kind, words, model.across_teams.of, lambda pk: reverse(route, args=[pk]))


def register_list_page(kind: str, words: str, model: Any, route: str) -> None:
    """Objects that have no page of their own are seen on the page of all of them."""
    register_object_place(kind, words, lambda team: model.objects.filter(team=team), lambda pk: reverse(route))
