"""What a recall touches: dataset versions with rows of the labels it took back, the runs on them, the runs from those runs' policies, matches."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.data.datasets.downstream import find_recalled_versions, flags_of
from lab.data.datasets.models import Recall, Version
from lab.data.loop.models import Match
from lab.data.loop.policy_descent import LineageRun, RunLineage
from lab.training.runs.models import Run


@dataclass(frozen=True)
class RecallImpact:
    """``trained``: runs on the versions; ``descended``: runs from those runs' policies, at any distance."""

    versions: list[Version] = field(default_factory=list)
    trained: list[LineageRun] = field(default_factory=list)
    descended: list[LineageRun] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        return not self.versions


def versions_of(recall: Recall) -> list[Version]:
    """The team's versions that the recall touches, newest first; it need not be saved."""
    every = Version.objects.of(recall.team).select_related("dataset__team").order_by("-created_at", "-pk").in_bulk()
    return [every[pk] for pk in sorted(find_recalled_versions(recall, every), reverse=True)]


def find_recall_downstream(recall: Recall, descent: RunLineage | None = None) -> RecallImpact:
    """All that rests on the labels; ``recall`` need not be saved."""
    versions = versions_of(recall)
    if not versions:
        return RecallImpact()
    descent = descent or RunLineage(recall.team)
    trained = descent.trained_on(versions)
    descended = descent.below(trained)
    keys = [run.pk for run in (*trained, *descended)]
    return RecallImpact(versions, trained, descended, list(Match.objects.of(recall.team).filter(child__in=keys).select_related("child", "queue")))


def flags_of_run(run: Run) -> list[tuple[Version, list[Recall]]]:
    """Flagged versions that the run, or a run it descends from, was trained on. One query where the team has no live recall."""
    if not Recall.objects.filter(team=run.team_id, undone_at=None).exists():
        return []
    files = {descended.file for descended in RunLineage(run.team).above(run.pk) if descended.file}
    versions = list(Version.objects.of(run.team).filter(train_file__in=files).select_related("dataset")) if files else []
    flags = flags_of(versions)
    return [(version, flags[version.pk]) for version in versions if version.pk in flags]
