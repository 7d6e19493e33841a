"""Pages over groups: the members of one side by side, with how their advantages came about, and all groups of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Avg, Count, F, Max, Min, Q, QuerySet, StdDev
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.rollouts.reading.advantage_steps import EPSILON, FORMULAS, SCALES, AdvantageInputs
from lab.rollouts.reading.group_links import Place, find_adjacent_groups
from lab.rollouts.reading.members import COLUMNS, RolloutGroup, best_first, load_group_members, mark_word_diffs, steps_rewards
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.rollouts.trajectories.steps import PHASE_LABELS, list_offered_phases, resolve_phase_and_step
from lab.rollouts.trajectories.text_pieces import escape_invisible_text, iterate_text_pieces
from lab.teams.accounts.roles import has_team_permission
from lab.training.catalog.formulas import convert_formula
from lab.training.runs.header import build_run_header
from lab.training.runs.models import Run
from lab.training.runs.stack import build_method_chips
from lab.training.runs.views.page import find_team_run

AHEAD = 50  # steps that are searched for the next group with variance
LISTED = 512  # groups in the list of a step
VIEWS = {"": "Plain", "diff": "Word diff", "entropy": "Entropy", "logprob": "Log-prob", "weight": "Token weight", "advantage": "Token advantage"}
OF_METHODS = ("weight", "advantage")  # views of what only methods give to tokens
SORTS = {"group": "group", "mean": "mean", "std": "std", "best": "high", "worst": "low"}


@dataclass(frozen=True)
class GroupQuery:
    """What the address says about how the group is shown; anything not on offer counts as absent."""

    view: str = ""
    target: int | None = None  # sample that the others are compared with; None is the best
    space: bool = False  # white space that differs is no difference
    attempt: int | None = None
    start: int = 0

    @classmethod
    def read(cls, query: Any) -> GroupQuery:
        view = query.get("view", "")
        return cls(
            view=view if view in VIEWS else "",
            target=parse_whole_number(query.get("with"), MAX_INTEGER),
            space=query.get("space") == "ignore",
            attempt=parse_whole_number(query.get("attempt"), MAX_INTEGER),
            start=(parse_whole_number(query.get("from"), MAX_INTEGER) or 0) // COLUMNS * COLUMNS,
        )

    def query(self, **changes: Any) -> str:
        now = {**self.__dict__, **changes}
        parameters = {
            "view": now["view"],
            "with": "" if now["target"] is None else now["target"],
            "space": "ignore" if now["space"] else "",
            "attempt": "" if now["attempt"] is None else now["attempt"],
            "from": now["start"] or "",
        }
        return "?" + urlencode({name: value for name, value in parameters.items() if value != ""})

    @property
    def kept(self) -> str:
        """What goes along to another group."""
        return self.query(target=None, attempt=None, start=0) if self.view or self.space else ""


@require_safe
def show_rollout_group(request: HttpRequest, run_id: Any, phase: str, step: int, group: int) -> HttpResponse:
    """``?part=columns`` only the members, for a change of what is shown of them."""
    run = find_team_run(request, run_id)
    if phase not in PHASE_LABELS or max(step, group) > MAX_INTEGER:
        raise Http404
    query = GroupQuery.read(request.GET)
    everything = list(Rollout.objects.filter(run=run, phase=phase, step=step, group=group).defer("completion", "turns", "nodes"))
    attempts = sorted({row.attempt for row in everything})
    chosen = (
        query.attempt
        if query.attempt in attempts
        else max((row.attempt for row in everything if not row.superseded), default=max(attempts, default=0))
    )
    rows = best_first([row for row in everything if row.attempt == chosen])
    if not rows:
        raise Http404
    prompt = Prompt.objects.of(run.team_id).get(pk=first_asked(rows))
    loaded = RolloutGroup(run, rows, prompt)
    given = loaded.inputs(batch_rewards(loaded, phase, step, rows[0].superseded) if loaded.scale == "batch" else ())
    start = query.start if query.start < len(rows) else 0
    load_group_members(loaded, start, given)
    target = next((row for row in rows if row.sample == query.target), rows[0])
    if query.view == "diff":
        mark_word_diffs(loaded.members, target, query.space)
    context = {
        "run": run,
        "group": loaded,
        "display": query,
        "target": target,
        "phase": phase,
        "views": list_group_views(query, loaded),
        "given": given,
    }
    if request.GET.get("part") == "columns":
        return render(request, "reading/group.html#columns", context)
    context |= build_group_navigation(loaded, phase, step, group, query) | explain_advantages(loaded, given)
    context |= {
        "room": "rollouts",
        "leads": has_team_permission(request, "label.lead"),
        "phase_label": PHASE_LABELS[phase],
        "step": step,
        "number": group,
        "chips": build_method_chips(loaded.stack),
        "asked_messages": [(escape_invisible_text(str(role)), list(iterate_text_pieces(str(content)))) for role, content in prompt.messages],
        "reference": list(iterate_text_pieces(prompt.reference)),
        "attempts": [(attempt, query.query(attempt=attempt)) for attempt in attempts if attempt != chosen],
        "attempt": chosen,
        "replayed": rows[0].superseded,
        "has_tree": Rollout.objects.filter(run=run, phase=phase, step=step, group=group).with_trees().exists(),
        "pages": [(offset, query.query(start=offset), offset == start) for offset in range(0, len(rows), COLUMNS)] if len(rows) > COLUMNS else [],
    }
    return render(request, "reading/group.html", context)


def first_asked(rows: list[Rollout]) -> int:
    """The prompt of the group's first member; a method may have asked others something else."""
    return min(rows, key=lambda row: (row.sample, row.pk)).prompt_id


def batch_rewards(loaded: RolloutGroup, phase: str, step: int, superseded: bool) -> list[float]:
    rows = Rollout.objects.filter(run=loaded.run, step=step, phase=phase, superseded=superseded)
    return steps_rewards(loaded, rows.values_list("reward", "shaped").iterator())


def list_group_views(query: GroupQuery, loaded: RolloutGroup) -> list[tuple[str, str, str, bool]]:
    offered = [name for name in VIEWS if loaded.stack.methods or name not in OF_METHODS or name == query.view]
    return [(VIEWS[name], name, query.query(view=name), name == query.view) for name in offered]


def explain_advantages(loaded: RolloutGroup, given: AdvantageInputs | None) -> dict[str, Any]:
    """What the page says about where the advantages come from."""
    entry_scale = loaded.scale
    differing = [member for member in loaded.members if member.account and not member.account.agrees]
    return {
        "scale": SCALES.get(entry_scale, ""),
        "formula": convert_formula(FORMULAS[entry_scale]) if entry_scale in FORMULAS else None,
        "epsilon": EPSILON,
        "differing": differing,
    }


def build_group_navigation(loaded: RolloutGroup, phase: str, step: int, number: int, query: GroupQuery) -> dict[str, Any]:
    """Where the keys lead, and where the same prompt was asked before and after."""
    near = find_adjacent_groups(loaded.run.pk, phase, step, number, loaded.prompt.pk)

    def url(at: Place | None) -> str:
        return reverse("group", args=[loaded.run.pk, phase, *at]) + query.kept if at else ""

    rows = Rollout.objects.filter(run=loaded.run, phase=phase, superseded=False)
    return {
        "ways": [
            ("k", "Previous group", "‹", url(near.group_before)),
            ("j", "Next group", "›", url(near.group_after)),
            ("[", "Previous step", "‹", url(near.step_before)),
            ("]", "Next step", "›", url(near.step_after)),
        ],
        "asked_before": near.asked_before,
        "asked_after": near.asked_after,
        "with_variance": url(next_with_variance(rows, step, number)) if loaded.zero_variance else "",
    }


def next_with_variance(rows: QuerySet[Rollout], step: int, number: int) -> tuple[int, int] | None:
    """The first group after this one whose members were told apart; only AHEAD steps are searched."""
    later = Q(step=step, group__gt=number) | Q(step__gt=step, step__lte=step + AHEAD)
    near = rows.filter(later).values("step", "group").annotate(low=Min("reward"), high=Max("reward"))
    return near.filter(low__lt=F("high")).order_by("step", "group").values_list("step", "group").first()


@require_safe
def list_step_groups(request: HttpRequest, run_id: Any) -> HttpResponse:
    """All groups of a step: ``?step=&phase=&zero=1&sort=-std``."""
    run = find_team_run(request, run_id)
    phase = request.GET.get("phase", "")
    phase, steps = resolve_phase_and_step(run, phase if phase in PHASE_LABELS else "", parse_whole_number(request.GET.get("step"), MAX_INTEGER))
    only_zero, sort = request.GET.get("zero") == "1", request.GET.get("sort", "")
    sort = sort if sort.removeprefix("-") in SORTS else "group"
    rows = summarize_step_groups(run, phase, steps.step) if steps.step is not None else []
    zero = sum(row["zero"] for row in rows)
    matching = sort_group_rows([row for row in rows if row["zero"] or not only_zero], sort)

    def query(**changes: Any) -> str:
        now = {"phase": phase, "step": steps.step, "zero": "1" if only_zero else "", "sort": "" if sort == "group" else sort, **changes}
        return "?" + urlencode({name: value for name, value in now.items() if value not in ("", None)})

    prompts = Prompt.objects.of(run.team_id).in_bulk([row["prompt"] for row in matching[:LISTED]])
    for row in matching[:LISTED]:
        row["text"] = list(iterate_text_pieces(prompts[row["prompt"]].text[:200]))
        row["bars"] = build_bar_strip(row["rewards"])
    context = {
        "steps": steps,
        "phase": phase,
        "phase_links": [(PHASE_LABELS[name], query(phase=name, step=""), name == phase) for name in list_offered_phases(run, phase)],
        "rows": matching[:LISTED],
        "total": len(rows),
        "matching": len(matching),
        "zero": zero,
        "only_zero": only_zero,
        "zero_query": query(zero="" if only_zero else "1"),
        "before": query(step=steps.before) if steps.before is not None else "",
        "after": query(step=steps.after) if steps.after is not None else "",
        "heads": [build_group_heading(name, sort, query) for name in ("group", "mean", "std", "best", "worst")],
    }
    return render(request, "reading/groups.html", {**build_run_header(run, "groups"), **context})


def summarize_step_groups(run: Run, phase: str, step: int) -> list[dict[str, Any]]:
    """One row a group of the step with its numbers over all its members, from the index alone."""
    rows = Rollout.objects.filter(run=run, step=step, phase=phase, superseded=False).values("group")
    groups = rows.annotate(
        count=Count("pk"),
        mean=Avg("reward"),
        std=StdDev("reward", sample=True),
        low=Min("reward"),
        high=Max("reward"),
        prompt=Min("prompt_id"),
        rewards=ArrayAgg("reward", order_by=F("reward").desc(nulls_last=True)),
        length=Avg("length"),
        entropy=Avg("mean_entropy"),
    )
    return [{**row, "zero": row["count"] > 1 and row["low"] is not None and row["low"] == row["high"]} for row in groups.order_by("group")]


def sort_group_rows(rows: list[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    key = SORTS[sort.removeprefix("-")]
    known = sorted((row for row in rows if row[key] is not None), key=lambda row: row[key], reverse=sort.startswith("-"))
    return [*known, *(row for row in rows if row[key] is None)]


def build_group_heading(name: str, sort: str, query: Any) -> dict[str, Any]:
    """A column's link: the largest first, then the other way round."""
    first, second = (name, f"-{name}") if name == "group" else (f"-{name}", name)
    now = sort.removeprefix("-") == name
    state = ("descending" if sort.startswith("-") else "ascending") if now else ""
    return {"name": name, "query": query(sort=second if sort == first else first), "state": state}


def build_bar_strip(rewards: list[float | None]) -> list[tuple[int, float, float]]:
    """(x, y, height) of a small bar for each reward, of 20 high; at most 32 of them."""
    known = [value for value in rewards if value is not None][:32]
    low, high = min([0.0, *known]), max([0.0, *known])
    span = (high - low) or 1.0
    zero = 20.0 * high / span if high > low else 20.0
    bars = []
    for index, value in enumerate(known):
        top, end = sorted((zero - 20.0 * value / span, zero))
        bars.append((index * 10, round(min(top, 19.0), 2), round(max(end - top, 1.0), 2)))
    return bars
