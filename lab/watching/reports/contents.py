"""What the blocks of a report show, read for one team: a fixed number of queries for all charts, tables and rollouts together.

Whatever a block names that the team does not have (another team's, deleted, in the bin, or never there) is "not available", without a word on which.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from lab.rollouts.comparison.chart_choice import describe_metric_chart
from lab.rollouts.comparison.compared_runs import style_of
from lab.rollouts.trajectories.cards import Card, with_cards
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import CUT_AT, Piece, escape_invisible_text, iterate_text_pieces
from lab.teams.accounts.models import Project, Team
from lab.training.runs.listing import RunQuery, filter_matching_runs
from lab.training.runs.models import HEAVY, MetricChunk, Run
from lab.watching.reports.blocks import BlockProblem, ChartBlock, GroupBlock, ParsedBlock, RolloutBlock, RunsBlock, TableBlock
from lab.watching.reports.markup import Prose, Rewrite, parse_markup
from lab.watching.reports.tables import RunTable, build_run_table, find_table_columns

MOST_MEMBERS = 64  # of a group


@dataclass(frozen=True)
class ChartContent:
    """``chart`` as static/reports/charts.js reads it."""

    block: ChartBlock
    runs: list[Run]
    about: dict[str, Any]

    @property
    def chart(self) -> dict[str, Any]:
        block = self.block
        runs = [{"number": run.number, "name": run.name, "open": run.is_open, **vars(style_of(run.number))} for run in self.runs]
        return {**self.about, "metric": block.metric, "x": block.x, "smooth": block.smooth, "log": block.log, "runs": runs}

    @property
    def title(self) -> str:
        return str(self.about["title"])


@dataclass(frozen=True)
class RolloutContent:
    card: Card
    overlay: str

    @property
    def messages(self) -> list[tuple[str, list[Piece], bool]]:
        """(role, text, whether it was cut) of the prompt's messages, the newest of them up to CUT_AT characters."""
        room, found = CUT_AT, []
        for role, text in reversed(self.card.rollout.prompt.messages):
            if room > 0:
                found.append((escape_invisible_text(str(role)), list(iterate_text_pieces(str(text)[:room])), len(str(text)) > room))
            room -= len(str(text))
        return found[::-1]


@dataclass(frozen=True)
class GroupContent:
    run: Run
    block: GroupBlock
    members: list[Card]


@dataclass(frozen=True)
class Part:
    """A block with what it shows: ``content`` is None where there is nothing to show, and ``missing`` or ``problems`` say why."""

    kind: str
    line: int
    content: Any = None
    missing: list[str] = field(default_factory=list)
    problems: list[BlockProblem] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    parts: list[Prose | Part]

    @property
    def problems(self) -> list[BlockProblem]:
        return [problem for part in self.parts if isinstance(part, Part) for problem in part.problems]

    @property
    def runs(self) -> list[Run]:
        """Every run that it shows, by number."""
        found = {run.number: run for part in self.parts if isinstance(part, Part) for run in list_part_runs(part)}
        return [found[number] for number in sorted(found)]

    @property
    def draws_charts(self) -> bool:
        return any(part.kind == "chart" and part.content for part in self.parts if isinstance(part, Part))

    @property
    def shows_rollouts(self) -> bool:
        return any(part.kind == "rollout" and part.content for part in self.parts if isinstance(part, Part))


def list_part_runs(part: Part) -> list[Run]:
    content = part.content
    if isinstance(content, RolloutContent):
        return [content.card.rollout.run]
    if isinstance(content, GroupContent):
        return [content.run]
    return list(content.runs) if isinstance(content, ChartContent | RunTable) else []


def build_document(team: Team, text: str, rewrite: Rewrite | None = None) -> Document:
    """``text`` is no longer than a version may be (``lab.lib.markdown.clean_markdown_text`` has been over it)."""
    parsed = parse_markup(text, rewrite)
    blocks = [part.block for part in parsed if isinstance(part, ParsedBlock) and part.block]
    numbers = {number for block in blocks if isinstance(block, ChartBlock | TableBlock) for number in block.runs}
    runs = read_runs(team, numbers | {block.run for block in blocks if isinstance(block, GroupBlock)})
    charts = [block for block in blocks if isinstance(block, ChartBlock)]
    found = Found(
        team,
        runs,
        read_metric_names([run for block in charts for number in block.runs if (run := runs.get(number))]),
        read_rollout_cards(team, {block.id for block in blocks if isinstance(block, RolloutBlock)}),
    )
    return Document([part if isinstance(part, Prose) else found.fill(part) for part in parsed])


@dataclass(frozen=True)
class Found:
    """What was read for all blocks. ``metrics``: run → names of its metrics."""

    team: Team
    runs: dict[int, Run]
    metrics: dict[UUID, set[str]]
    cards: dict[int, Card]

    def fill(self, parsed: ParsedBlock) -> Part:
        match parsed.block:
            case ChartBlock() as block:
                return self.fill_chart(parsed, block)
            case TableBlock() as block:
                runs, missing = self.choose_runs(block.runs)
                return Part("table", parsed.line, build_run_table(runs, block.columns) if runs else None, missing)
            case RunsBlock() as block:
                return self.fill_runs(parsed, block)
            case RolloutBlock() as block:
                card = self.cards.get(block.id)
                missing = [] if card else [f"Rollout {block.id} is not available."]
                return Part("rollout", parsed.line, RolloutContent(card, block.overlay) if card else None, missing)
            case GroupBlock() as block:
                return self.fill_group(parsed, block)
        return Part(parsed.kind, parsed.line, problems=parsed.problems)

    def choose_runs(self, numbers: Sequence[int]) -> tuple[list[Run], list[str]]:
        """The runs there are in that order, and what is said about the others."""
        missing = [f"#{number}" for number in numbers if number not in self.runs]
        words = [f"Run {missing[0]} is not available."] if len(missing) == 1 else [f"Runs {', '.join(missing)} are not available."]
        return [self.runs[number] for number in numbers if number in self.runs], words if missing else []

    def fill_chart(self, parsed: ParsedBlock, block: ChartBlock) -> Part:
        """A metric that no run has is a problem once all of them have ended: until then it may come."""
        runs, missing = self.choose_runs(block.runs)
        known = {name for run in runs for name in self.metrics.get(run.pk, ())}
        if runs and block.metric not in known and not any(run.is_open for run in runs):
            near = get_close_matches(block.metric, known, 1)
            words = f"unknown metric “{block.metric}”{f'. Did you mean {near[0]}?' if near else ': none of these runs has it.'}"
            return Part("chart", parsed.line, None, missing, [BlockProblem(parsed.line_of("metric"), words)])
        about = describe_metric_chart(block.metric)
        chart = {"title": block.title or about["title"], "unit": about["unit"], "points": about["points"]}
        return Part("chart", parsed.line, ChartContent(block, runs, chart) if runs else None, missing)

    def fill_runs(self, parsed: ParsedBlock, block: RunsBlock) -> Part:
        chosen = {name: value for name, value in (("q", block.search), ("tag", block.tag), ("status", block.status)) if value}
        if block.project:
            project = Project.objects.of(self.team).filter(name__iexact=block.project).first()
            if project is None:
                words = f"project: your team has no project “{block.project}”."
                return Part("runs", parsed.line, problems=[BlockProblem(parsed.line_of("project"), words)])
            chosen["project"] = str(project.pk)
        columns = find_table_columns(block.columns)
        runs = list(filter_matching_runs(self.team, RunQuery(chosen, block.sort), columns)[: block.limit])
        return Part("runs", parsed.line, build_run_table(runs, block.columns) if runs else None, [] if runs else ["No runs match."])

    def fill_group(self, parsed: ParsedBlock, block: GroupBlock) -> Part:
        run = self.runs.get(block.run)
        if run is None:
            return Part("group", parsed.line, missing=[f"Run #{block.run} is not available."])
        rows = Rollout.objects.filter(run=run, phase=block.phase, step=block.step, group=block.group, superseded=False)
        members = with_cards(Rollout.objects.filter(run=run, pk__in=list(rows.order_by("sample").values_list("pk", flat=True)[:MOST_MEMBERS])))
        members.sort(key=lambda card: card.rollout.sample)
        where = f"Group {block.group} of step {block.step} of run #{block.run} is not available."
        return Part("group", parsed.line, GroupContent(run, block, members) if members else None, [] if members else [where])


def read_runs(team: Team, numbers: Collection[int]) -> dict[int, Run]:
    if not numbers:
        return {}
    rows = Run.objects.of(team).filter(number__in=numbers).defer(*(name for name in HEAVY if name != "spec"))
    return {run.number: run for run in rows.select_related("created_by", "project")}


def read_metric_names(runs: Sequence[Run]) -> dict[UUID, set[str]]:
    names: dict[UUID, set[str]] = {run.pk: set() for run in runs}
    if runs:
        for run, name in MetricChunk.objects.filter(run__in=list(runs), chunk=0).values_list("run", "name").distinct():
            names[run].add(name)
    return names


def read_rollout_cards(team: Team, ids: Collection[int]) -> dict[int, Card]:
    if not ids:
        return {}
    rows = Rollout.objects.of(team).filter(pk__in=ids).select_related("run", "prompt")
    return {card.rollout.pk: card for card in with_cards(rows)}
