"""The team's reward functions where one is chosen: in a launch, a task, a composition. What is chosen is the newest version."""

from __future__ import annotations

from lab.teams.accounts.models import Team
from lab.training.rewards.definition_words import describe_stored_definition
from lab.training.rewards.models import RewardFunction, RewardVersion
from lab.training.runs.reward_choices import SOURCES, RewardChoice

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


def register_team_choices() -> None:
    SOURCES.register("rewards", list_team_choices)
