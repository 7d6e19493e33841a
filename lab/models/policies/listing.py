"""The list of policies: what an address asks for, in what order, and what a row shows. Filters and sort keys are allow-listed here.

Whether a checkpoint is still there only the disk knows, so that the newest MOST rows are looked at, filtered and sorted in memory; metrics and
votes are read for the page that is shown, and for all rows only where they decide the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import QueryDict

from lab.lib.listing import NEWEST_FIRST, ListQuery
from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.models.policies import blind_votes, measures
from lab.models.policies.blind_votes import MatchEvidence
from lab.models.policies.checkpoint_paths import format_checkpoint_step
from lab.models.policies.measures import MeasuredValue
from lab.models.policies.models import Alias, Removal
from lab.teams.accounts.models import Project, Team
from lab.training.runs.models import Checkpoint, Run
from lab.training.runs.stored_checkpoints import find_checkpoints_there

PAGE = 50
MOST = 2000  # newest checkpoints that are looked at
LONGEST_SEARCH = 100  # characters
SORTS = ("run", "step", "size", "reward", "heldout", "entropy", "win", "age")
FILTERS = ("q", "run", "project", "alias", "kind", "votes", "gone", "twins")
KINDS = {"final": "Final policies", "checkpoint": "Checkpoints"}


class PolicyQuery(ListQuery):
    filters = FILTERS


def read_query(params: QueryDict) -> PolicyQuery:
    notes = {}
    chosen = {name: str(params[name]).replace("\0", "").strip()[:LONGEST_SEARCH] for name in FILTERS if params.get(name, "").strip()}
    for name, words in (("run", "run number"), ("project", "project")):
        if name in chosen and not parse_whole_number(chosen[name].removeprefix("#"), MAX_INTEGER):
            notes[name] = f"“{chosen.pop(name)}” is no {words}; it was ignored."
    if "kind" in chosen and chosen["kind"] not in KINDS:
        notes["kind"] = f"Unknown kind “{chosen.pop('kind')}”; showing both kinds."
    sort = params.get("sort", NEWEST_FIRST)
    if sort.removeprefix("-") not in SORTS:
        notes["sort"] = f"Policies cannot be sorted by “{sort[:40]}”; showing newest first."
        sort = NEWEST_FIRST
    return PolicyQuery(chosen, sort, parse_whole_number(params.get("page"), 10**9 - 1, 1) or 1, notes)


def of_team(team: Team) -> QuerySet[Checkpoint]:
    """Every policy that was ever written, once: a row that a later attempt wrote again under the same path does not count."""
    later = Checkpoint.objects.filter(run=OuterRef("run"), path=OuterRef("path"), pk__gt=OuterRef("pk"))
    return Checkpoint.objects.of(team).filter(~Exists(later))


def filter_team_checkpoints(team: Team, chosen: Mapping[str, str]) -> QuerySet[Checkpoint]:
    checkpoints = of_team(team).select_related("run", "run__project").defer("run__spec", "run__special_tokens", "run__latest")
    if text := chosen.get("q"):
        words = Q(run__name__icontains=text) | Q(run__policy__icontains=text) | Q(run__recipe__icontains=text)
        number = parse_whole_number(text.removeprefix("#"))
        checkpoints = checkpoints.filter(words | Q(run__number=number) if number else words)
    if "run" in chosen:
        checkpoints = checkpoints.filter(run__number=parse_whole_number(chosen["run"].removeprefix("#")) or 0)
    if "project" in chosen:
        checkpoints = checkpoints.filter(run__project=parse_whole_number(chosen["project"]))
    if "alias" in chosen:
        checkpoints = checkpoints.filter(aliases__name__iexact=chosen["alias"])
    if "kind" in chosen:
        checkpoints = checkpoints.filter(final=chosen["kind"] == "final")
    if "votes" in chosen:
        checkpoints = checkpoints.filter(run__in=blind_votes.voted_runs(team))
    return checkpoints.order_by("-created_at", "-pk")


@dataclass
class PolicyRow:
    checkpoint: Checkpoint
    on_disk: bool
    removal: Removal | None = None
    aliases: list[Alias] = field(default_factory=list)
    measured: Mapping[str, MeasuredValue] = field(default_factory=dict)
    evidence: list[MatchEvidence] = field(default_factory=list)

    @property
    def run(self) -> Run:
        return self.checkpoint.run

    @property
    def which(self) -> str:
        return format_checkpoint_step(self.checkpoint)

    @property
    def main_measures(self) -> list[MeasuredValue | None]:
        """Reward, held-out reward, entropy."""
        return [self.measured.get(name) for name in measures.SHOWN.values()]

    @property
    def best(self) -> MatchEvidence | None:
        """The match with most votes."""
        return self.evidence[0] if self.evidence else None

    def order(self, key: str) -> Any:
        """What it is sorted by; None comes last either way."""
        if key in measures.SHOWN:
            measured = self.measured.get(measures.SHOWN[key])
            return measured.value if measured else None
        if key == "win":
            return self.best.shown_rate.value if self.best and self.best.shown_rate else None
        simple: dict[str, int | datetime] = {
            "run": self.run.number,
            "step": self.checkpoint.step,
            "size": self.checkpoint.bytes,
            "age": self.checkpoint.created_at,
        }
        return simple[key]


@dataclass
class PolicyListing:
    page: Page[PolicyRow]
    on_disk: int
    gone: int
    twins: int  # checkpoints that hold the same policy as a final one
    more: bool  # older ones were not looked at


@dataclass
class FilteredPolicies:
    """Rows that an address asks for, newest first, with nothing filled in; and what was left out of them."""

    rows: list[PolicyRow]
    on_disk: int
    gone: int
    twins: int
    more: bool


def found_of(team: Team, chosen: Mapping[str, str]) -> FilteredPolicies:
    checkpoints = list(filter_team_checkpoints(team, chosen)[: MOST + 1])
    there = find_checkpoints_there(team, checkpoints[:MOST])
    rows = [PolicyRow(checkpoint, checkpoint.pk in there) for checkpoint in checkpoints[:MOST]]
    present = sum(row.on_disk for row in rows)
    gone = len(rows) - present
    named = set(Alias.objects.filter(team=team).exclude(checkpoint=None).values_list("checkpoint", flat=True))
    if "gone" not in chosen:
        rows = [row for row in rows if row.on_disk]
    finals = {(row.run.pk, row.checkpoint.step) for row in rows if row.checkpoint.final and row.on_disk}
    twins = {row.checkpoint.pk for row in rows if not row.checkpoint.final and (row.run.pk, row.checkpoint.step) in finals}
    if "twins" not in chosen:
        rows = [row for row in rows if row.checkpoint.pk not in twins or row.checkpoint.pk in named]
    return FilteredPolicies(rows, present, gone, len(twins), len(checkpoints) > MOST)


def build_policy_listing(team: Team, query: PolicyQuery) -> PolicyListing:
    listed = found_of(team, query.chosen)
    rows = listed.rows
    if query.key in measures.SHOWN:
        add_measures(rows, [measures.SHOWN[query.key]])
    if query.key == "win":
        add_evidence(rows)
    ordered = [row for row in rows if row.order(query.key) is not None]
    ordered.sort(key=lambda row: (row.order(query.key), row.checkpoint.created_at, row.checkpoint.pk), reverse=query.descending)
    page = Paginator([*ordered, *(row for row in rows if row.order(query.key) is None)], PAGE).get_page(query.page)
    fill_policy_rows(list(page.object_list))
    return PolicyListing(page, listed.on_disk, listed.gone, listed.twins, listed.more)


def fill_policy_rows(rows: list[PolicyRow]) -> None:
    """Everything a row shows."""
    add_measures(rows, list(measures.SHOWN.values()))
    add_evidence(rows)
    by_id, held = {row.checkpoint.pk: row for row in rows}, [row.checkpoint for row in rows]
    for alias in Alias.objects.filter(checkpoint__in=held):
        by_id[alias.checkpoint_id].aliases.append(alias)  # type: ignore[index]
    for removal in Removal.objects.filter(checkpoint__in=held).select_related("by"):
        by_id[removal.checkpoint_id].removal = removal


def add_measures(rows: list[PolicyRow], names: list[str]) -> None:
    measured = measures.at_steps([row.checkpoint for row in rows], names)
    for row in rows:
        row.measured = {**row.measured, **measured[row.checkpoint.pk]}


def add_evidence(rows: list[PolicyRow]) -> None:
    missing = [row for row in rows if not row.evidence]
    evidence = blind_votes.collect_match_evidence([row.checkpoint for row in missing])
    for row in missing:
        row.evidence = evidence[row.checkpoint.pk]


@dataclass(frozen=True)
class PolicyFilterChoices:
    projects: list[Project]
    aliases: list[str]


def load_policy_filter_choices(team: Team) -> PolicyFilterChoices:
    return PolicyFilterChoices(list(Project.objects.of(team).order_by("name")), list(Alias.objects.filter(team=team).values_list("name", flat=True)))
