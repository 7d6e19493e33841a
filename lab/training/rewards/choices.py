"""The team's reward functions where one is chosen: in a launch, a task, a composition. What is chosen is the newest version."""

from __future__ import annotations

from collections.abc import Collection

from django.urls import reverse

from lab.teams.accounts.models import Team
from lab.training.rewards.models import RewardFunction, RewardVersion
from lab.training.runs.reward_choices import SOURCES, VERSIONS, KnownVersion, Origin, RewardChoice
from lab.training.runs.reward_words import describe_stored_definition

MOST = 200
TEAM = "team"


def list_team_choices(team: Team) -> list[RewardChoice]:
    rows = RewardFunction.objects.of(team).filter(archived_at=None).order_by("name").prefetch_related("versions")[:MOST]
    return [make_version_choice(function.newest) for function in rows]


def make_version_choice(version: RewardVersion) -> RewardChoice:
    title = f"{version.function.name} v{version.number}"
    origin = {"id": version.function_id, "version": version.number}
    words = describe_stored_definition(version.definition)
    return RewardChoice(f"{TEAM}:{version.function_id}", title, words, "Your team's", version.definition, {}, origin)


def find_team_versions(team: Team, origins: Collection[Origin]) -> dict[Origin, KnownVersion]:
    """By id and number; archived ones too."""
    rows = RewardVersion.objects.of(team).filter(function__in={key for key, _ in origins}).select_related("function").defer("definition")
    found = {(version.function_id, version.number): version for version in rows}
    return {origin: KnownVersion(str(found[origin]), f"{reverse('reward', args=[origin[0]])}?v={origin[1]}") for origin in origins if origin in found}


def register_team_choices() -> None:
    SOURCES.register("rewards", list_team_choices)
    VERSIONS.register("rewards", find_team_versions)
