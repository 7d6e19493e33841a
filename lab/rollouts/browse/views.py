"""The table over rollouts of one run, several, or the whole team: one address, the whole page or a part of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.db.models import Max, Sum
from django.db.models.functions import Left, Right
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import get_script_prefix, reverse
from django.utils.html import escape
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import push_url

from lab.lib.addresses import build_address_start
from lab.lib.column_choice import ColumnChoice
from lab.lib.costly import limit_costly_requests
from lab.lib.numbers import parse_ids
from lab.rollouts.annotations.models import Tag
from lab.rollouts.annotations.summary import summarize_annotations
from lab.rollouts.browse import columns
from lab.rollouts.browse.actions import TAGGED_KEY
from lab.rollouts.browse.address import Address
from lab.rollouts.browse.bars import build_histogram_bars
from lab.rollouts.browse.cells import TableRow, render_signed_cell
from lab.rollouts.browse.columns import COLLAPSED, TABLE
from lab.rollouts.browse.conditions import sort_newest_first
from lab.rollouts.browse.exports import FORMATS
from lab.rollouts.browse.fields import field_named
from lab.rollouts.browse.filter_bar import NEWEST_RUNS, OPERATORS, components_of, filter_bar, runs_to_choose
from lab.rollouts.browse.heads import build_column_heads, render_column_heads
from lab.rollouts.browse.histograms import compute_field_histograms
from lab.rollouts.browse.pages import Page, read_page
from lab.rollouts.browse.repeats import group_equal_rows
from lab.rollouts.browse.rows import render_table_body
from lab.rollouts.browse.saved import DELETED_KEY, views_of
from lab.rollouts.trajectories.excerpts import END_AT_MOST, flatten_end
from lab.rollouts.trajectories.models import DroppedRollouts, Rollout
from lab.rollouts.trajectories.text_pieces import escape_invisible_text, iterate_text_pieces
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest, wants_fragment
from lab.teams.accounts.roles import has_team_permission
from lab.teams.accounts.table_columns import read_remembered_columns, remember_columns
from lab.training.runs.models import Run
from trainers.contract.problems import Problem

OFFERED_TAGS = 200
PREVIEWED = 4000  # characters
ENDS = 100  # rollouts of a request: more than a page of the table has


def address_of(request: LabRequest) -> Address:
    return Address.read(request.GET, remembered=read_remembered_columns(request, TABLE))


@require_safe
@limit_costly_requests(lambda request: bool(request.GET.get("re")))
def show_rollout_browser(request: LabRequest) -> HttpResponse:
    address = address_of(request)
    offered = runs_to_choose(request.team, address.selection.runs, offered=NEWEST_RUNS)
    chosen = [run for run in offered if run.number in address.selection.runs]
    page = read_page(request.team, address.selection, runs=sort_newest_first(chosen) if address.selection.runs else None)
    context = {"room": "rollouts", "address": address, "url": address.url(), "page": page, **table_of(request, address, page, offered, chosen)}
    context["dropped"] = sum_dropped_rollouts(request.team, chosen if address.selection.runs else None)
    if not wants_fragment(request):
        return TemplateResponse(request, "browse/browser.html", {**context, **collect_undo_offers(request)})
    response = TemplateResponse(request, "browse/browser.html#browser", context)
    return push_url(response, reverse("rollouts") + address.url(after=address.selection.after).removesuffix("?"))


def sum_dropped_rollouts(team: Team, runs: Sequence[Run] | None) -> dict[str, Any]:
    """What retention rules have dropped of the runs, or of all (None): ``rollouts``, None for nothing, and when last (``at``)."""
    of_runs = {"run__binned_at": None} if runs is None else {"run__in": runs}
    dropped = DroppedRollouts.objects.of(team).filter(rollouts__gt=0, **of_runs)
    return dropped.aggregate(rollouts=Sum("rollouts"), at=Max("dropped_at"))


def collect_undo_offers(request: LabRequest) -> dict[str, Any]:
    """What the person has just done and the page offers to undo, once: the offer goes with the page."""
    deleted = request.session.pop(DELETED_KEY, None) if DELETED_KEY in request.session else None
    tagged = request.session.get(TAGGED_KEY)
    if tagged and not tagged.get("shown"):
        request.session[TAGGED_KEY] = {**tagged, "shown": True}
        return {"deleted_view": deleted, "just_tagged": tagged}
    return {"deleted_view": deleted}


def table_of(request: LabRequest, address: Address, page: Page, runs: list[Run], chosen: list[Run]) -> dict[str, Any]:
    """``runs``: those for the picker, ``chosen`` those of them that the address names."""
    selection = address.selection
    in_view = chosen or runs
    components = components_of(in_view, page.rows)
    one_run = len(in_view) == 1
    offered, choice = columns.build_table_columns(components, one_run), address.choice
    shown, pins = choice.arrange(offered), choice.pins
    bar = filter_bar(address, runs, components, (*page.problems, *find_unknown_runs(selection.runs, chosen)), NEWEST_RUNS)
    listed = escape("?" + urlencode({"list": selection.query().removeprefix("?")}))  # what j and k walk through on the rollout's page
    start = escape(build_address_start(get_script_prefix(), "rollout", 1))
    said = summarize_annotations(rollout.pk for rollout in page.rows)
    further = columns.load_column_data(shown, request.team, page.rows)
    made = [TableRow(rollout, SafeString(f"{start}{rollout.pk:d}/{listed}"), said[rollout.pk], further[rollout.pk]) for rollout in page.rows]
    collapsed = COLLAPSED in choice.switches and any(column.name == "completion" for column in shown)
    together = group_equal_rows(request.team, made) if collapsed else [[row] for row in made]
    return {
        "bar": bar,
        "chosen": chosen,
        "any_rollouts": any(run.last_rollout for run in page.runs or runs),
        "newest": max((run.last_rollout for run in page.runs), default=0),
        "growing": any(run.is_active for run in (*in_view, *page.runs)),
        "head_cells": render_column_heads(build_column_heads(shown, address), pins),
        "rows": render_table_body(together, shown, pins),
        "pins": pins,
        "columns_shown": str(choice),
        "columns_action": reverse("rollouts-columns") + address.url(),
        "columns_key": f"rollouts {choice} {one_run} {components}",
        "column_choices": choice.describe_choices(offered),
        "column_switches": [("same", "Collapse identical completions of a group", COLLAPSED in choice.switches)],
        "operators": OPERATORS,
        "formats": FORMATS.values(),
        "saved": views_of(request.team, request.user, address),
        "writable": has_team_permission(request, "rollouts.annotate"),
        "leads": has_team_permission(request, "label.lead"),
        "sorted_by": sorted_by(selection.sort),
        **build_table_links(address, page),
    }


def build_table_links(address: Address, page: Page) -> dict[str, str]:
    """Where the page's links lead. ``distribution`` names what the histograms depend on, so that they stay where only the order changes."""
    selection = address.selection
    return {
        "older": address.url(after=page.next) if page.next else "",
        "newer": address.url(after=page.previous) if page.previous else "",
        "unsorted": address.url(sort=""),
        "cleared": address.url(filters=(), words="", pattern="", tries=False),
        "all_runs": address.url(runs=()),
        "with_tokens": address.url_with("tokens"),
        "examined_on": address.url(after=page.examined.cursor) if page.examined else "",
        "distribution": hashlib.md5(selection.query(sort="", pattern="").encode(), usedforsecurity=False).hexdigest()[:12],
    }


def find_unknown_runs(asked: Sequence[int], chosen: Sequence[Run]) -> list[Problem]:
    """Numbers in the address that are no run of the team."""
    known = {run.number for run in chosen}
    return [Problem("run", str(number), f"your team has no run #{number}", "choose one from the list") for number in asked if number not in known]


def sorted_by(sort: str) -> str:
    """The order in words; empty for newest first."""
    known = field_named(sort.removeprefix("-")) if sort else None
    return f"{escape_invisible_text(known.label).lower()}, {'largest' if sort.startswith('-') else 'smallest'} first" if known else ""


@require_safe
@limit_costly_requests()
def show_rollout_histograms(request: LabRequest) -> HttpResponse:
    """How reward, length and mean entropy are distributed; asked for by the page once its table stands."""
    address = address_of(request)
    histograms = compute_field_histograms(request.team, address.selection, ("reward", "length", "mean_entropy"))
    shown = [build_histogram_bars(one, address) for one in histograms.values()]
    return TemplateResponse(request, "browse/histograms.html", {"histograms": [one for one in shown if one]})


@require_safe
def show_newest_rollout_id(request: LabRequest) -> JsonResponse:
    """The id of the newest rollout of the runs in view: how an open page learns that there are more."""
    runs = Run.objects.of(request.team)
    if numbers := address_of(request).selection.runs:
        runs = runs.filter(number__in=numbers)
    return JsonResponse({"newest": runs.aggregate(newest=Max("last_rollout"))["newest"] or 0}, headers={"Cache-Control": "no-store"})


@require_safe
def list_completion_ends(request: LabRequest) -> JsonResponse:
    """How the completions end of which the table has only the beginning: asked for by the page once its table stands."""
    ids = parse_ids(request.GET.get("ids", "").split(",")[:ENDS])
    rows = Rollout.objects.of(request.team).filter(pk__in=ids).annotate(ending=Right("completion", 2 * END_AT_MOST))
    ends = {str(pk): flatten_end(ending) for pk, ending in rows.values_list("pk", "ending")}
    return JsonResponse({"ends": ends}, headers={"Cache-Control": "no-store"})


@require_safe
def preview_rollout(request: LabRequest, rollout_id: int) -> HttpResponse:
    """A look into one rollout beside the table: the start of its texts, cut by the database."""
    rows = Rollout.objects.of(request.team).select_related("run", "prompt").defer("completion", "run__spec", "prompt__messages")
    rollout: Any = get_object_or_404(rows.annotate(head=Left("completion", PREVIEWED + 1)), pk=rollout_id)
    context = {
        "rollout": rollout,
        "prompt": list(iterate_text_pieces(rollout.prompt.text[:PREVIEWED])),
        "completion": list(iterate_text_pieces(rollout.head[:PREVIEWED])),
        "is_cut": len(rollout.head) > PREVIEWED,
        "rewards": [
            (escape_invisible_text(name), render_signed_cell(value)) for name, value in rollout.rewards.items() if isinstance(value, int | float)
        ],
        "listed": urlencode({"list": request.GET.get("list", "")}),
        "summary": summarize_annotations([rollout.pk])[rollout.pk],
    }
    return TemplateResponse(request, "browse/preview.html", context)


@require_safe
def run_choices(request: LabRequest) -> HttpResponse:
    """The picker's runs that ``find`` fits, after those that are chosen."""
    address = address_of(request)
    runs = runs_to_choose(request.team, address.selection.runs, request.GET.get("find", "").replace("\0", "").strip()[:100])
    return TemplateResponse(request, "browse/browser.html#run-choices", {"bar": filter_bar(address, runs, ()), "address": address})


@require_safe
def list_tag_names(request: LabRequest) -> HttpResponse:
    """The team's tags as the options of an input: asked for by the first look at a control, because most pages are only read."""
    tags = Tag.objects.filter(team=request.team).values_list("name", flat=True)[:OFFERED_TAGS]
    return TemplateResponse(request, "browse/browser.html#tag-names", {"tags": tags})


@require_POST
def choose_columns(request: LabRequest) -> HttpResponse:
    """Remembers which columns the person wants to see, and shows the same address with them."""
    address = Address.read(request.GET)
    names = request.POST.getlist("offered")[: columns.MOST_COMPONENTS + 40]
    runs = Run.objects.of(request.team)
    one_run = len(set(address.selection.runs)) == 1 or (not address.selection.runs and runs.count() == 1)
    offered = columns.build_table_columns([name.removeprefix("component.") for name in names if name.startswith("component.")], one_run)
    switches = {COLLAPSED} if "same" in request.POST else set()
    chosen = ColumnChoice.of(offered, request.POST.getlist("column"), request.POST.getlist("pin"), switches)
    choice = "" if "usual" in request.POST else str(chosen)
    remember_columns(request, TABLE, choice)
    return redirect(reverse("rollouts") + address.with_columns(choice).url(after=address.selection.after))
