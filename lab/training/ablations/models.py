"""Ablations: which runs belong together, as which variant of a recipe and with which seed."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Count, Q

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.training.runs.models import OPEN, Run, Status


class AblationQuerySet(TeamQuerySet["Ablation"]):
    def counted(self) -> AblationQuerySet:
        """With how many runs each has, how many of them have finished and how many will go on."""
        return self.annotate(
            runs=Count("members"),
            finished=Count("members", filter=Q(members__run__status=Status.FINISHED)),
            open=Count("members", filter=Q(members__run__status__in=OPEN)),
        )


class Ablation(TeamOwned):
    """A recipe taken apart: ``spec`` is the full stack, with names where a launched spec has paths
    (``lab.training.runs.references.restore_reference_names``)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="ablations")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="ablations")
    source = models.ForeignKey(Run, models.SET_NULL, null=True, related_name="ablations")  # the run its spec was taken from
    name = models.CharField(max_length=100)
    spec = models.JSONField()
    seeds = models.PositiveSmallIntegerField()  # of each variant
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TeamManager.from_queryset(AblationQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(AblationQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        indexes = [models.Index(fields=["team", "-created_at"], name="ablation_newest")]

    def __str__(self) -> str:
        return self.name

    def in_order(self) -> list[AblationRun]:
        """Its runs, seed by seed."""
        return list(self.members.select_related("run").defer("run__spec", "run__special_tokens").order_by("seed", "pk"))


class AblationRun(TeamOwned):
    """One run of an ablation. ``variant`` is "full", "base" or "without <method>"."""

    team_path = "ablation__team"

    ablation = models.ForeignKey(Ablation, models.CASCADE, related_name="members")
    run = models.OneToOneField(Run, models.CASCADE, related_name="member")
    variant = models.CharField(max_length=250)
    seed = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["ablation", "variant", "seed"], name="ablation_variant_seed")]

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.seed}"
