"""Ablations and experiment grids: which runs belong together, as which variant of a recipe and with which seed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.conf import settings
from django.db import models
from django.db.models import Count, Q

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.training.ablations.budgets import Budget, read_budget
from lab.training.ablations.factors import Cell, Factor, list_cells, read_factors
from lab.training.ablations.variants import Variant, variants_of
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
    """Variants of a recipe, each with several seeds. ``spec`` is the recipe, with names where a launched spec has paths
    (``lab.training.runs.references.restore_reference_names``).

    Without ``factors`` the recipe is taken apart: the full stack, the stack without each method, the base. With them it is an experiment grid, whose
    variants are the combinations of their levels, compared at ``budget``.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="ablations")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="ablations")
    source = models.ForeignKey(Run, models.SET_NULL, null=True, related_name="ablations")  # the run its spec was taken from
    name = models.CharField(max_length=100)
    spec = models.JSONField()
    seeds = models.PositiveSmallIntegerField()  # of each variant
    factors = models.JSONField(default=list, db_default=[])  # of a grid, as ``factors.Factor`` writes them
    budget = models.JSONField(default=dict, db_default={})  # of a grid, as ``budgets.Budget`` writes it
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TeamManager.from_queryset(AblationQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(AblationQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        indexes = [models.Index(fields=["team", "-created_at"], name="ablation_newest")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_grid(self) -> bool:
        return bool(self.factors)

    @property
    def noun(self) -> str:
        return "grid" if self.is_grid else "ablation"

    def list_factors(self) -> list[Factor]:
        """Of a grid; none of an ablation."""
        return read_factors(self.factors)

    def read_matched_budget(self) -> Budget:
        return read_budget(self.budget)

    def list_variants(self) -> Sequence[Variant | Cell]:
        """Every variant that each seed is launched of."""
        return list_cells(self.list_factors(), self.read_matched_budget().steps) if self.is_grid else variants_of(self.spec)

    def in_order(self) -> list[AblationRun]:
        """Its runs, seed by seed."""
        return list(self.members.select_related("run").defer("run__spec", "run__special_tokens").order_by("seed", "pk"))


class AblationRun(TeamOwned):
    """One run of an ablation. ``variant`` is "full", "base" or "without <method>"; in a grid the levels of its cell."""

    team_path = "ablation__team"

    ablation = models.ForeignKey(Ablation, models.CASCADE, related_name="members")
    run = models.OneToOneField(Run, models.CASCADE, related_name="member")
    variant = models.CharField(max_length=250)
    seed = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["ablation", "variant", "seed"], name="ablation_variant_seed")]

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.seed}"
