"""The runs list: one URL, the whole page or only its table, its runs one by one or in groups."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods
from django_htmx.http import push_url

from lab.lib.column_choice import ADDRESS_KEY, ColumnChoice
from lab.teams.accounts import projects
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest, wants_fragment
from lab.teams.accounts.roles import has_team_permission
from lab.teams.accounts.table_columns import read_remembered_columns, remember_columns
from lab.training.runs import grouping, listing
from lab.training.runs.columns import FIXED, RunColumn, arrange_columns, list_columns
from lab.training.runs.config_fields import ConfigField, list_config_fields
from lab.training.runs.models import TAG_LENGTH, Run, Status

TABLE = "runs"  # the name under which its columns are remembered
STATUSES = (("open", "Open (queued or running)"), ("ended", "Ended"), *((status.value, status.label) for status in Status))


def show_home(request: HttpRequest) -> HttpResponse:
    """The runs; for annotators, who see none, their queues."""
    return redirect("runs" if has_team_permission(request, "runs.read") else "queues")


@dataclass(frozen=True)
class Head:
    """A column's header: where a click on it leads, whether the table is sorted by it, and the classes of a pinned one."""

    column: RunColumn
    url: str
    direction: str
    pin: str


def list_runs(request: LabRequest) -> HttpResponse:
    query, fragment = read_shown_query(request), wants_fragment(request)
    choice = ColumnChoice.read(query.chosen.get(ADDRESS_KEY, ""))
    columns = arrange_columns(choice)
    choices = listing.list_run_filter_choices(request.team, query.chosen.get("project", ""))
    shown = build_group_context(request.team, query, columns) if query.group else build_row_context(request.team, query, columns)
    context: dict[str, Any] = {
        "room": "runs",
        "query": query,
        "columns": columns,
        "heads": [build_head(column, query, choice) for column in columns],
        "own_columns": bool(str(choice)),
        "pins": bool(choice.pinned),
        "chips": _build_filter_chips(query, choices),
        "choices": choices,
        "group_choices": () if fragment else list_group_choices(request.team, choices.newest),
        "statuses": STATUSES,
        "may_move": has_team_permission(request, "projects.manage") and choices.projects,
        "archived": query.chosen.get("archived", ""),
        "archived_count": listing.count_archived_runs(request.team, query),
        "archived_url": query.url(archived=listing.ARCHIVED),
        "tag_length": TAG_LENGTH,
        "any_runs": bool(choices.newest),
        "token": secrets.token_urlsafe(16),
        "newest": choices.newest,
        **shown,
    }
    if request.GET.get("part") == "group" and not query.group:
        return TemplateResponse(request, "runs/groups.html#group-runs", context)
    page = shown["page"]
    context |= {"newer": query.url(page=str(page.number - 1)), "older": query.url(page=str(page.number + 1))}
    response = TemplateResponse(request, "runs/list.html" + ("#table" if fragment else ""), context)
    if not fragment:
        return response
    page_number = str(page.number) if page.number > 1 else ""
    address = reverse("runs") + query.url(page=page_number).removesuffix("?")
    # Rows that are drawn anew where they stand, after an act on some of them, are no step in the history.
    return response if request.htmx.current_url_abs_path == address else push_url(response, address)


def read_shown_query(request: LabRequest) -> listing.RunQuery:
    """What the address asks for, with the columns that the person chose last where it leaves them open: links carry them from there on."""
    query = listing.read_query(request.GET)
    remembered = "" if ADDRESS_KEY in request.GET else read_remembered_columns(request, TABLE)
    return listing.RunQuery({**query.chosen, ADDRESS_KEY: remembered}, query.sort, query.page, query.notes) if remembered else query


def find_newest_number(team: Team) -> int:
    return Run.objects.of(team).order_by("-number").values_list("number", flat=True).first() or 0


def build_row_context(team: Team, query: listing.RunQuery, columns: list[RunColumn]) -> dict[str, Any]:
    page = listing.page_of(team, query, columns)
    return {
        "page": page,
        "total": page.paginator.count,
        "rows": listing.build_run_rows(list(page.object_list), columns),
        "measured": [column for column in columns if grouping.is_measured(column)],
    }


def build_group_context(team: Team, query: listing.RunQuery, columns: list[RunColumn]) -> dict[str, Any]:
    """The groups of the page. They are few, so all are read and sorted here."""
    assert query.group is not None
    measured = [column for column in columns if grouping.is_measured(column)]
    found = grouping.collect_run_groups(listing.select_matching_runs(team, query), query.group, measured)
    page = Paginator(grouping.sort_run_groups(found.groups, query.key, query.descending), listing.PAGE).get_page(query.page)
    heads = [("group", query.group.label), ("runs", "Runs")]
    return {
        "page": page,
        "total": found.runs,
        "groups": [(group, query.ungrouped(value=query.add_value(group.value))) for group in page.object_list],
        "group_heads": [(title, query.toggled(key), _format_sort_direction(query, key)) for key, title in heads],
        "measured": [(column, [build_statistic_head(query, column, name) for name in grouping.STATISTICS]) for column in measured],
        "unread": found.unread,
        "most_curves": grouping.MOST_CURVES,
        "ungrouped": query.ungrouped(),
    }


def build_statistic_head(query: listing.RunQuery, column: RunColumn, statistic: str) -> tuple[str, str, str, str]:
    """(key, name, address that sorts by it, direction)."""
    key = f"{column.name}.{statistic}"
    return key, statistic, query.toggled(key), _format_sort_direction(query, key)


def build_head(column: RunColumn, query: listing.RunQuery, choice: ColumnChoice) -> Head:
    url = query.toggled(column.key) if column.key and not query.group else ""
    return Head(column, url, _format_sort_direction(query, column.key), choice.pins.get(column.name, ""))


def list_group_choices(team: Team, newest: int) -> list[tuple[str, list[grouping.GroupField]]]:
    """(title, fields) of what runs can be grouped by."""
    plain = [field for name in grouping.PLAIN if (field := grouping.find_group_field(name))]
    return [("Run", plain), ("Config", [grouping.make_group_field(field) for field in list_config_fields(team.pk, newest)])]


@require_http_methods(["GET", "HEAD", "POST"])
def choose_run_columns(request: LabRequest) -> HttpResponse:
    """The menu of columns for the table of the address; sent, it remembers them and shows the same runs with them."""
    query = read_shown_query(request)
    choice = ColumnChoice.read(query.chosen.get(ADDRESS_KEY, ""))
    fields: tuple[ConfigField, ...] = list_config_fields(request.team.pk, find_newest_number(request.team))
    offered = list_columns(choice, fields)
    if request.method != "POST":
        context = {
            "column_choices": choice.describe_choices(offered),
            "columns_key": f"runs {choice} {len(offered)} {hash(fields)}",
            "columns_action": reverse("runs-columns") + query.url(),
            "fixed": FIXED,
        }
        return TemplateResponse(request, "columns/menu.html", context)
    wanted = request.POST.getlist("column")
    chosen = "" if "usual" in request.POST else str(ColumnChoice.of(offered, wanted, request.POST.getlist("pin")))
    remember_columns(request, TABLE, chosen)
    return redirect(reverse("runs") + query.url(cols=chosen).removesuffix("?"))


def _format_sort_direction(query: listing.RunQuery, key: str) -> str:
    if not key or key != query.key:
        return ""
    return "descending" if query.descending else "ascending"


def _build_filter_chips(query: listing.RunQuery, choices: listing.RunFilterChoices) -> list[tuple[str, str]]:
    """Each filter that is set: what it says, and the query string without it."""
    names = {str(person.pk): str(person) for person in choices.people}
    named = {str(project.pk): project.name for project in choices.projects}
    archive = {listing.ARCHIVED: "only", listing.EVERYTHING: "included"}
    words = {"status": dict(STATUSES), "who": names, "project": {projects.NONE: "none", **named}, "archived": archive}
    titles = {"status": "Status", "project": "Project", "recipe": "Recipe", "method": "Method", "task": "Task", "tag": "Tag", "who": "Who"}
    titles |= {"archived": "Archived", "q": "Text"}
    chips = [
        (f"{titles[name]}: {words.get(name, {}).get(value, value)}", query.url(**{name: ""}))
        for name, value in query.chosen.items()
        if name in titles
    ]
    return [*chips, *((value.label, query.url(value=query.list_values_without(value))) for value in query.values)]
