"""What a version's page says of the tool that made it, and of the versions that tools made of it."""

from __future__ import annotations

from dataclasses import dataclass

from lab.data.datasets.models import Version
from lab.data.datasets.tool_form import build_again_url
from lab.data.datasets.tool_plan import KEY, ToolPlan
from trainers.contract.dataset_tools.registry import TOOLS

LISTED = 20


@dataclass(frozen=True)
class ToolOrigin:
    """How a version was made. ``source`` is None where it is gone."""

    plan: ToolPlan
    title: str
    source: Version | None
    again_url: str

    @property
    def words(self) -> list[tuple[str, str]]:
        """(what, its value), as the rule of other versions is shown."""
        settings = ", ".join(f"{name.replace('_', ' ')}: {format_setting(value)}" for name, value in self.plan.config.items())
        return [
            ("Tool", f"{self.title} ({self.plan.name})"),
            ("Settings", settings or "none"),
            ("Seed", str(self.plan.seed)),
            ("Source", self.plan.source),
            ("Source digest", self.plan.digest),
            ("Split", "As in the source: each row is where its source row is"),
            ("Duplicates", "First one kept"),
        ]


def format_setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return str(value)


def describe_tool_origin(version: Version) -> ToolOrigin | None:
    """None for a version that no tool made."""
    plan = ToolPlan.read(version.rule)
    if plan is None:
        return None
    title = TOOLS[plan.name].card.title if plan.name in TOOLS else plan.name
    source = Version.objects.of(version.dataset.team).filter(pk=plan.version).select_related("dataset").first()
    return ToolOrigin(plan, title, source, build_again_url(version, plan))


def list_made_versions(version: Version) -> list[Version]:
    """Versions of the team that a tool made of this one, newest first."""
    made = Version.objects.of(version.dataset.team).filter(**{f"rule__{KEY}__version": version.pk})
    return list(made.select_related("dataset").order_by("-pk")[:LISTED])
