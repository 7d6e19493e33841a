"""Lists of installed packages, each kept once for all attempts of a team that have it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from django.db import models

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamOwned


class PackageList(TeamOwned):
    """``packages``: by name, each as a trainer reports it (``trainers.contract.events.Package``). ``sha256``: of their canonical JSON.

    It stays when its last attempt is deleted: a team has few, each a few kilobytes.
    """

    team_path = "team"

    team = models.ForeignKey(Team, models.CASCADE, related_name="package_lists")
    sha256 = models.CharField(max_length=64)
    packages = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "sha256"], name="package_list_once")]

    def __str__(self) -> str:
        return f"{len(self.packages)} packages"


def keep_package_list(team_id: int, packages: Sequence[dict[str, Any]]) -> PackageList:
    """The team's row of that list, made if it is new."""
    text = json.dumps(packages, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    kept, _ = PackageList.objects.filter(team=team_id).get_or_create(team_id=team_id, sha256=digest, defaults={"packages": list(packages)})
    return kept
