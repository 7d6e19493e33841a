"""The runs list: which runs a URL asks for, in what order, and what a row shows. Filters and sort keys are allow-listed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django.core.paginator import Page, Paginator
from django.db.models import F, Q, QuerySet
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Now
from django.http import QueryDict

from lab.lib.column_choice import ADDRESS_KEY, LONGEST
from lab.lib.listing import NEWEST_FIRST, ListQuery
from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.lib.sparkline import Sparkline, build_sparkline
from lab.teams.accounts import projects
from lab.teams.accounts.models import Project, Team, User
from lab.training.runs import live, method_usage, metrics, wait_reasons
from lab.training.runs.columns import USUAL, RunColumn, find_order, write_cells
from lab.training.runs.curve_values import WORDS
from lab.training.runs.grouping import GroupField, GroupValue, find_group_field, is_group_order, read_group_values
from lab.training.runs.models import HEAVY_WITH_PARENT, OPEN, Run, Status
from lab.training.runs.stack import MethodChip, build_method_chips, build_stack
from lab.training.runs.wait_reasons import WaitReason

PAGE = 50
SPARK_BUCKETS = 24
LONGEST_SEARCH = 100  # characters; longer text is cut

SORTS = {
    "number": "number",
    "status": "status",
    "name": "name",
    "recipe": "recipe",
    "policy": "policy",
    "task": "task",
    "progress": "step",
    "reward": "latest__reward",
    "entropy": "latest__entropy",
    "speed": "latest__tokens_per_second",
    "age": "created_at",
    "who": "created_by__email",
}
GROUPS = {"open": OPEN, "ended": (Status.FINISHED, Status.STOPPED, Status.FAILED)}
ARCHIVED, EVERYTHING = "1", "any"  # of the filter ``archived``; without it archived runs are left out
FILTERS = ("status", "project", "recipe", "method", "task", "tag", "who", "archived", "q", "value")
VIEW = ("group", ADDRESS_KEY)  # how the runs are shown: nothing is left out by it
LONGEST_VIEW = {"value": 1000, "group": 300, ADDRESS_KEY: LONGEST}  # characters


class RunQuery(ListQuery):
    filters = (*FILTERS, *VIEW)
    alphabetical = ("name", "recipe", "policy", "task", "who", "status", "group")

    @cached_property
    def group(self) -> GroupField | None:
        """What the runs are grouped by."""
        return find_group_field(self.chosen.get("group", ""))

    @cached_property
    def values(self) -> tuple[GroupValue, ...]:
        """The values that the runs are to have, of what they can be grouped by: a line each."""
        return read_group_values(self.chosen.get("value", ""))

    def list_values_without(self, other: GroupValue) -> str:
        """The parameter without the values of that field."""
        return "\n".join(str(one) for one in self.values if one.field.name != other.field.name)

    def add_value(self, value: GroupValue) -> str:
        """The parameter with the value, in place of another one of its field."""
        return "\n".join(filter(None, (self.list_values_without(value), str(value))))

    def ungrouped(self, **changes: str) -> str:
        """The query string of the runs themselves, without an order that only groups have."""
        return self.url(group="", **({"sort": NEWEST_FIRST} if self.group else {}), **changes)


def read_query(params: QueryDict) -> RunQuery:
    """The query a URL's parameters stand for; whatever is not allow-listed is left out with a note."""
    notes = {}
    chosen = {
        name: str(params[name]).replace("\0", "").strip()[: LONGEST_VIEW.get(name, LONGEST_SEARCH)]
        for name in (*FILTERS, *VIEW)
        if params.get(name, "").strip()
    }
    if "status" in chosen and chosen["status"] not in (*GROUPS, *Status.values):
        notes["status"] = f"Unknown status “{chosen.pop('status')}”; showing runs of all statuses."
    if "who" in chosen and parse_whole_number(chosen["who"]) is None:
        notes["who"] = f"Unknown person “{chosen.pop('who')}”; showing everyone's runs."
    if "project" in chosen and chosen["project"] != projects.NONE and not projects.key_of(chosen["project"]):
        notes["project"] = f"Unknown project “{chosen.pop('project')}”; showing runs of all projects."
    if "archived" in chosen and chosen["archived"] not in (ARCHIVED, EVERYTHING):
        notes["archived"] = f"Unknown value “{chosen.pop('archived')}” of “archived”; showing runs that are not archived."
    if "value" in chosen and not read_group_values(chosen["value"]):
        notes["value"] = f"Unknown value “{chosen.pop('value')[:60]}”; write a setting and its value as JSON, such as config.seed:7. It was ignored."
    if "group" in chosen and not find_group_field(chosen["group"]):
        notes["group"] = f"Runs cannot be grouped by “{chosen.pop('group')[:60]}”; choose a setting from the list. They are not grouped."
    sort = params.get("sort", NEWEST_FIRST)
    key = sort.removeprefix("-")
    if not (is_group_order(key) if "group" in chosen else key in SORTS or find_order(key) is not None):
        notes["sort"] = f"Runs cannot be sorted by “{sort[:40]}”; showing newest first."
        sort = NEWEST_FIRST
    return RunQuery(chosen, sort, parse_whole_number(params.get("page"), 10**6 - 1, 1) or 1, notes)


def select_matching_runs(team: Team, query: RunQuery, **changes: str) -> QuerySet[Run]:
    """The team's runs that ``query`` asks for, with some of its filters changed."""
    runs = method_usage.with_base(Run.objects.of(team)).filter(_build_run_condition({**query.chosen, **changes}))
    for place, one in enumerate(query.values):
        runs = one.field.narrow(runs, one.value, f"value_{place}")
    return runs


def filter_matching_runs(team: Team, query: RunQuery, columns: Sequence[RunColumn] = ()) -> QuerySet[Run]:
    """Those, in the order of ``query``, with what a row of these columns needs."""
    runs = select_matching_runs(team, query).annotate(method_choices=KeyTransform("methods", "spec"), read_at=Now())
    by = F(SORTS[query.key]) if query.key in SORTS else find_order(query.key)
    order = by.desc(nulls_last=True) if query.descending else by.asc(nulls_last=True)
    heavy = [name for name in HEAVY_WITH_PARENT if name != "spec" or not any(column.reads_spec for column in columns)]
    parts = ["parent", "created_by", *(["project"] if any(column.name == "project" for column in columns) else [])]
    return runs.select_related(*parts).defer(*heavy).order_by(order, "-number")


def count_archived_runs(team: Team, query: RunQuery) -> int:
    """Archived runs that the other filters of ``query`` leave."""
    return select_matching_runs(team, query, archived=ARCHIVED).count()


def _build_run_condition(chosen: Mapping[str, str]) -> Q:
    archived = chosen.get("archived")
    condition = Q() if archived == EVERYTHING else Q(archived_at__isnull=archived != ARCHIVED)
    if tag := chosen.get("tag"):
        condition &= Q(tags__contains=[tag])
    if status := chosen.get("status"):
        condition &= Q(status__in=GROUPS.get(status, (status,)))
    if who := chosen.get("who"):
        condition &= Q(created_by=parse_whole_number(who))
    condition &= projects.build_project_condition(chosen.get("project", ""))
    if method := chosen.get("method"):
        condition &= method_usage.build_method_condition(method)
    condition &= Q(**{name: chosen[name] for name in ("recipe", "task") if name in chosen})
    if text := chosen.get("q"):
        words = Q(name__icontains=text) | Q(policy__icontains=text) | Q(recipe__icontains=text) | Q(task__icontains=text)
        number = parse_whole_number(text.removeprefix("#"), MAX_INTEGER)
        condition &= words if number is None else words | Q(number=number)
    return condition


@dataclass(frozen=True)
class RunRow:
    """One run as a row shows it: ``state`` is what a live update carries, so that both draw the same cells."""

    run: Run
    state: dict[str, Any]
    spark: Sparkline | None
    waiting: WaitReason | None
    stack: list[MethodChip]
    cells: Mapping[str, str]  # of the columns that are not usual, by name

    @property
    def reward(self) -> Any:
        latest = self.state["latest"]
        return latest["heldout"] if latest["reward"] is None else latest["reward"]

    @property
    def is_heldout(self) -> bool:
        """Supervised and preference runs have no training reward; their held-out reward stands in for it."""
        return self.state["latest"]["reward"] is None and self.state["latest"]["heldout"] is not None

    @property
    def reward_statistic(self) -> str:
        return f"held-out reward, {WORDS['last']}" if self.is_heldout else f"reward, {WORDS['step']}"


def page_of(team: Team, query: RunQuery, columns: Sequence[RunColumn] = ()) -> Page[Run]:
    return Paginator(filter_matching_runs(team, query, columns), PAGE).get_page(query.page)


def build_run_rows(runs: list[Any], columns: Sequence[RunColumn] = USUAL) -> list[RunRow]:
    """Rows for ``runs`` of ``filter_matching_runs``: a fixed number of queries however many there are."""
    ids = [run.pk for run in runs]
    cells = write_cells(columns, runs)
    measured = {} if not any(column.name == "curve" for column in columns) else read_reward_curves(ids)
    reasons = wait_reasons.find_waiting_reasons(runs)
    return [
        RunRow(
            run,
            live.describe_run_state(run, run.read_at),
            _build_run_sparkline(measured.get(run.pk)),
            reasons.get(run.pk),
            _build_stack_chips(run),
            cells[run.pk],
        )
        for run in runs
    ]


def read_reward_curves(runs: Sequence[UUID]) -> dict[UUID, metrics.Series]:
    """By run; the held-out reward of those that have no other."""
    return metrics.read_sparkline_series(runs, "reward", SPARK_BUCKETS, otherwise="heldout/reward")


def _build_stack_chips(run: Any) -> list[MethodChip]:
    """Chips of a recipe that says what it stacks; a plain one is told by its name and trainer."""
    if not run.base_name and not run.method_choices:
        return []
    return build_method_chips(build_stack({"name": run.base_name or ""}, run.method_choices, run.trainer))


def _build_run_sparkline(series: metrics.Series | None) -> Sparkline | None:
    return build_sparkline(series.steps.tolist(), series.values.tolist()) if series is not None else None


@dataclass(frozen=True)
class RunFilterChoices:
    """What the filters of a team offer, and the number of its newest run (0 without any), which is read with them."""

    recipes: list[str]
    methods: list[str]
    tasks: list[str]
    people: list[User]
    projects: list[Project]
    tags: list[str]
    newest: int


def list_run_filter_choices(team: Team, project: str = "") -> RunFilterChoices:
    """``project``: the one that is chosen, offered even if it is archived."""
    stacks = list(method_usage.count_run_stacks(team, "recipe", "task", "tags"))
    return RunFilterChoices(
        recipes=sorted({stack["recipe"] for stack in stacks}),
        methods=sorted(method_usage.sum_method_counts(stacks)),
        tasks=sorted({stack["task"] for stack in stacks}),
        people=list(User.objects.filter(memberships__team=team).order_by("email")),
        projects=projects.list_project_choices(team, project),
        tags=sorted({tag for stack in stacks for tag in stack["tags"]}, key=str.casefold),
        newest=max((stack["newest"] for stack in stacks), default=0),
    )
