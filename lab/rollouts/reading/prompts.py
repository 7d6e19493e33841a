"""Pages over prompts: one prompt's history over steps and runs, and the prompts of a run or of the team."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Max
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, render
from django.urls import get_script_prefix
from django.views.decorators.http import require_safe

from lab.lib.addresses import build_address_start, build_numbered_address
from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.rollouts.browse.words import has_words, prompt_matches
from lab.rollouts.reading import history
from lab.rollouts.reading.answers import select_notable_answers
from lab.rollouts.reading.groups import build_bar_strip
from lab.rollouts.reading.history import OutcomeChange, PromptLoss, PromptSeries, PromptVisit
from lab.rollouts.reading.series_rows import render_series_rows
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.rollouts.trajectories.steps import PHASE_LABELS, list_offered_phases, resolve_phase_and_step
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces
from lab.teams.accounts.roles import has_team_permission
from lab.training.runs.models import Run

NEWEST_RUNS = 10  # runs whose series a prompt's page shows
POINTS = 1500  # of a series that are drawn
ROWS = 200  # visits of a series that are listed
PAGE = 50
STRIP = 20  # visits drawn in a list
OFFERED = 100  # runs to choose from
STATES = {"": "All", "solved": "Solved", "once": "Passed last time", "unlearned": "Unlearned", "never": "Never solved"}
LONGEST_SEARCH = 200
SORTS = ("last", "visits", "first", "now", "reward", "lost")


def team_of(request: HttpRequest) -> Any:
    return request.team  # type: ignore[attr-defined]


@require_safe
def show_prompt_page(request: HttpRequest, prompt_id: int) -> HttpResponse:
    """Of the newest NEWEST_RUNS runs, and of those that ``?run=3&run=5`` names; ``?runs=all`` of every run. ``?part=visits`` only the tables of
    visits, which nobody sees before asking for them.
    """
    team = team_of(request)
    prompt = get_object_or_404(Prompt.objects.filter(team=team), pk=prompt_id)
    asked_in = Rollout.objects.filter(prompt=prompt).values("run")
    every = list(Run.objects.of(team).filter(pk__in=asked_in).only("number", "name", "task").order_by("-number"))
    runs = {run.pk: run for run in choose_shown_runs(every, request.GET)}
    answers = Rollout.objects.filter(prompt=prompt, run__in=list(runs.values())).current()
    series = history.of_prompt(prompt.pk, runs) if runs else []
    rows = [build_series_row(number, run_series) for number, run_series in enumerate(series)]
    if request.GET.get("part") == "visits":
        return render(request, "reading/prompt.html#visits", {"series": rows})
    context = {
        "room": "prompts",
        "prompt": prompt,
        "leads": has_team_permission(request, "label.lead"),
        "asked_messages": [(escape_invisible_text(str(role)), list(iterate_text_pieces(str(content)))) for role, content in prompt.messages],
        "reference": list(iterate_text_pieces(prompt.reference)),
        "title": escape_invisible_text(prompt.text[:80]),
        "series": rows,
        "series_rows": render_series_rows(rows),
        "runs": len(runs),
        "every_run": len(every),
        "most_runs": NEWEST_RUNS,
        "answers": sum(run_series.answers for run_series in series),
        "accuracies": sorted(set(history.name_accuracies(runs.values()).values())),
        "data": [build_series_chart(run_series) for run_series in series],
        **select_notable_answers(answers, runs),
    }
    return render(request, "reading/prompt.html", context)


def choose_shown_runs(newest_first: list[Run], parameters: QueryDict) -> list[Run]:
    """The runs that a prompt's page shows, of those that asked the prompt."""
    if parameters.get("runs") == "all":
        return newest_first
    named = {parse_whole_number(number, MAX_INTEGER) for number in parameters.getlist("run")}
    return [run for index, run in enumerate(newest_first) if index < NEWEST_RUNS or run.number in named]


def build_series_row(number: int, series: PromptSeries) -> dict[str, Any]:
    """A row of the table of runs, and the rows of its visits, newest first."""
    return {
        "series": series,
        "index": number,
        "color": number % 8 + 1,
        "first": series.visits[0],
        "last": series.visits[-1],
        "last_url": build_numbered_address("group", (series.visits[-1].step, series.visits[-1].group), series.run.pk, series.phase),
        "visits": series.visits[: -ROWS - 1 : -1],
        "hidden": max(0, len(series.visits) - ROWS),
    }


def build_series_chart(series: PromptSeries) -> dict[str, Any]:
    """A series for the charts. Of more than POINTS visits every n-th is drawn, and the last."""
    every = -(-len(series.visits) // POINTS)
    visits = [visit for index, visit in enumerate(reversed(series.visits)) if index % every == 0][::-1]
    columns: dict[str, list[Any]] = {name: [getattr(visit, name) for visit in visits] for name in PromptVisit.__dataclass_fields__}
    where = build_address_start(get_script_prefix(), "group", 2, series.run.pk, series.phase)
    return {
        "key": f"{series.run.number}-{series.phase}",
        "label": f"#{series.run.number} {series.phase_label}",
        "heldout": series.phase == "heldout",
        "url": where,
        "turns": [{"step": turn.step, "solved": turn.solved, "confirmed": turn.confirmed} for turn in series.turns],
        **columns,
    }


@dataclass
class PromptRow:
    """A prompt in the list of a run."""

    prompt: int
    visits: list[PromptVisit]
    turns: list[OutcomeChange]
    state: str
    loss: PromptLoss | None
    text: list[Piece] | None = None

    @property
    def first(self) -> PromptVisit:
        return self.visits[0]

    @property
    def last(self) -> PromptVisit:
        return self.visits[-1]

    @property
    def ever_passed(self) -> bool:
        return any(visit.solved for visit in self.visits)

    @property
    def bars(self) -> list[tuple[int, float, float]]:
        """Pass rates of the newest visits."""
        return build_bar_strip([visit.passed for visit in self.visits[-STRIP:]])


@require_safe
def show_prompt_list(request: HttpRequest) -> HttpResponse:
    """``?run=2&phase=&state=&since=50&sort=&page=`` the prompts of a run; without ``run`` those of the team, ``?after=`` for older ones.

    ``?find=`` leaves those with these words.
    """
    team = team_of(request)
    parameters = request.GET
    problem = ""
    number = parse_whole_number(parameters.get("run"), MAX_INTEGER)
    run = Run.objects.of(team).filter(number=number).first() if number is not None else None
    if parameters.get("run") and run is None:
        problem = f"There is no run #{parameters['run'][:20]} in this team. Choose one from the list."
    words = parameters.get("find", "").replace("\0", "").strip()[:LONGEST_SEARCH]
    if words and not has_words(words):
        problem, words = f"Find: “{words[:20]}” contains no word. Enter a word or a number of the prompt.", ""
    offered = Run.objects.of(team).listed().filter(rollouts__gt=0).order_by("-number").only("number", "name")[:OFFERED]
    context: dict[str, Any] = {"room": "prompts", "run": run, "offered": offered, "problem": problem, "find": words}
    context |= build_run_prompt_list(run, parameters, words) if run else of_team(team, parameters, words)
    return render(request, "reading/prompts.html", context)


def of_team(team: Any, parameters: Any, words: str) -> dict[str, Any]:
    """The newest prompts with how often they were asked, from the indexes alone."""
    after = parameters.get("after", "")
    start = parse_whole_number(after)
    mine = Prompt.objects.filter(team=team).order_by("-pk").defer("messages", "reference", "digest")
    if words:
        mine = mine.filter(pk__in=prompt_matches(words, team.pk))
    page = list((mine.filter(pk__lt=start) if start is not None else mine)[: PAGE + 1])
    counted = Rollout.objects.filter(prompt__in=page[:PAGE]).values("prompt")
    counts = {row["prompt"]: row for row in counted.annotate(answers=Count("pk"), runs=Count("run", distinct=True), last=Max("step"))}
    rows = [{"prompt": prompt.pk, "text": list(iterate_text_pieces(prompt.text[:200])), **counts.get(prompt.pk, {})} for prompt in page[:PAGE]]
    kept = urlencode({"find": words}) + "&" if words else ""
    return {"rows": rows, "more": f"?{kept}after={page[PAGE - 1].pk}" if len(page) > PAGE else "", "is_first": start is None}


def build_run_prompt_list(run: Run, parameters: Any, words: str) -> dict[str, Any]:
    phase, steps = resolve_phase_and_step(run, parameters.get("phase", "") if parameters.get("phase") in PHASE_LABELS else "", None)
    since, problem = parse_whole_number(parameters.get("since"), MAX_INTEGER), ""
    if parameters.get("since") and since is None:
        problem = f"Lost since: “{parameters['since'][:20]}” is not a step. Enter a whole number, for example {(steps.last or 100) // 2}."
    chosen_state = parameters.get("state", "") if parameters.get("state") in STATES else ""
    sort = parameters.get("sort", "")
    sort = sort if sort.removeprefix("-") in SORTS else ("-lost" if since is not None else "-last")
    floor = history.floor_of(run, steps.last or 0)
    visited = history.load_run_visits(run, phase, floor)
    if words:
        having = set(Prompt.objects.filter(team=run.team_id, pk__in=prompt_matches(words, run.team_id)).values_list("pk", flat=True))
        visited = {prompt: visits for prompt, visits in visited.items() if prompt in having}
    rows = rows_of(visited, since)
    counts = {name: sum(row.state == name for row in rows) for name in STATES if name} | {"": len(rows)}
    kept = sort_prompt_rows([row for row in rows if is_prompt_selected(row, chosen_state, since)], sort)
    page = min(parse_whole_number(parameters.get("page"), MAX_INTEGER) or 1, max(1, -(-len(kept) // PAGE)))
    chosen = kept[(page - 1) * PAGE : page * PAGE]
    texts = Prompt.objects.of(run.team_id).in_bulk([row.prompt for row in chosen])
    for row in chosen:
        row.text = list(iterate_text_pieces(texts[row.prompt].text[:200]))

    def query(**changes: Any) -> str:
        now = {
            "run": run.number,
            "phase": phase,
            "state": chosen_state,
            "since": since,
            "find": words,
            "sort": parameters.get("sort", ""),
            "page": "",
            **changes,
        }
        return "?" + urlencode({name: value for name, value in now.items() if value not in ("", None)})

    heads = [("first", "First"), ("now", "Now"), ("reward", "Reward"), ("visits", "Asked"), ("last", "Last step")]
    return {
        "rows": chosen,
        "matching": len(kept),
        "total": len(rows),
        "phase": phase,
        "phase_links": [(PHASE_LABELS[name], query(phase=name), name == phase) for name in list_offered_phases(run, phase)],
        "states": [(label, counts[name], query(state=name), name == chosen_state, name) for name, label in STATES.items()],
        "since": since,
        "without_since": query(since=None, sort=""),
        "without_find": query(find=""),
        "without_state": query(state=""),
        "last_step": steps.last,
        "floor": floor,
        "accuracy": history.accuracy_of(run),
        "run_problem": problem,
        "heads": [build_prompt_heading(name, label, sort, query) for name, label in ([("lost", "Lost")] if since is not None else []) + heads],
        "page": page,
        "pages": -(-len(kept) // PAGE),
        "before": query(page=page - 1) if page > 1 else "",
        "after": query(page=page + 1) if page * PAGE < len(kept) else "",
    }


def rows_of(visits_by_prompt: dict[int, list[PromptVisit]], since: int | None) -> list[PromptRow]:
    rows = []
    for prompt, visits in visits_by_prompt.items():
        turns = history.find_turns(visits)
        rows.append(
            PromptRow(
                prompt,
                visits,
                turns,
                history.classify_prompt_state(turns),
                history.measure_pass_rate_loss(visits, since) if since is not None else None,
            )
        )
    return rows


def is_prompt_selected(row: PromptRow, state: str, since: int | None) -> bool:
    return (not state or row.state == state) and (since is None or (row.loss is not None and row.loss.is_lost))


def sort_prompt_rows(rows: list[PromptRow], sort: str) -> list[PromptRow]:
    """By the sort's number, then by when the prompt was asked last; stable, so that pages do not overlap."""

    def key(row: PromptRow) -> float:
        numbers = {"last": row.last.step, "visits": len(row.visits), "first": row.first.passed, "now": row.last.passed}
        name = sort.removeprefix("-")
        if name == "reward":
            return row.last.mean if row.last.mean is not None else float("-inf")
        return row.loss.amount if name == "lost" and row.loss else float(numbers.get(name, 0))

    return sorted(sorted(rows, key=lambda row: (-row.last.step, row.prompt)), key=key, reverse=sort.startswith("-"))


def build_prompt_heading(name: str, label: str, sort: str, query: Any) -> dict[str, Any]:
    now = sort.removeprefix("-") == name
    state = ("descending" if sort.startswith("-") else "ascending") if now else ""
    return {"label": label, "query": query(sort=name if sort == f"-{name}" else f"-{name}"), "state": state}
