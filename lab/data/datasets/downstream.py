"""What hangs on a version: recalls that touch it, and runs trained on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q

from lab.data.datasets.models import Dataset, Recall, RecallKind, Row, Version
from lab.training.runs.models import Run


def flags_of(versions: Iterable[Version]) -> dict[int, list[Recall]]:
    """Version -> the recalls that touch it and are not undone, newest first. Versions without one are missing."""
    by_id = {version.pk: version for version in versions}
    if not by_id:
        return {}
    teams = set(Dataset.objects.filter(versions__in=list(by_id.values())).values_list("team", flat=True))
    flags: defaultdict[int, list[Recall]] = defaultdict(list)
    for recall in Recall.objects.filter(team__in=teams, undone_at=None).select_related("labeller", "queue", "by").order_by("-at"):
        for pk in find_recalled_versions(recall, by_id):
            flags[pk].append(recall)
    return dict(flags)


def find_recalled_versions(recall: Recall, versions: Mapping[int, Version]) -> list[int]:
    """Ids of those of ``versions`` that hold rows of what was recalled, or were made under a recalled rule."""
    if recall.kind == RecallKind.RULE:
        return [pk for pk, version in versions.items() if recall.rule and has_rule_settings(version.rule, recall.rule)]
    rows = Row.objects.filter(version__in=versions, version__dataset__team=recall.team_id)
    if recall.kind == RecallKind.LABELLER and recall.labeller_id is not None:
        rows = rows.filter(labellers__contains=[recall.labeller_id])
    elif recall.kind == RecallKind.PROMPT and recall.prompt is not None:
        rows = rows.filter(prompt=recall.prompt)
    elif recall.kind == RecallKind.QUEUE and recall.queue_id is not None:
        rows = rows.filter(Q(queue=recall.queue_id) | Q(provenance__span_queues__contains=[recall.queue_id]))
    else:  # what it named is gone
        return []
    return sorted(rows.values_list("version", flat=True).distinct())


def has_rule_settings(rule: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Whether every setting of ``part`` is so in ``rule``."""
    for name, value in part.items():
        own = rule.get(name)
        if isinstance(value, Mapping) and isinstance(own, Mapping):
            if not has_rule_settings(own, value):
                return False
        elif own != value:
            return False
    return True


def runs_of(versions: Iterable[Version]) -> dict[int, list[Run]]:
    """Version -> the runs whose spec names one of its files, oldest first. Versions without one are missing."""
    named = {name: version for version in versions for name in (version.train_file, version.test_file) if name}
    if not named:
        return {}
    teams = set(Dataset.objects.filter(versions__in=list(named.values())).values_list("team", flat=True))
    ends = reduce(or_, (Q(spec__dataset__path__endswith=f"/{name}") for name in named))
    runs_by_version: defaultdict[int, list[Run]] = defaultdict(list)
    for run in Run.objects.filter(ends, team__in=teams, binned_at=None).order_by("number"):
        runs_by_version[named[str(run.spec["dataset"]["path"]).rsplit("/", 1)[-1]].pk].append(run)
    return dict(runs_by_version)
