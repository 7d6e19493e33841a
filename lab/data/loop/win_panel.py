"""The panel of a run: how often people prefer its answers to those of the starting policy, or to another run's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.data.loop import matches
from lab.data.loop.models import Match
from lab.data.loop.train_form import MATCH_PROMPTS, MOST_OVERLAP, MOST_PROMPTS
from lab.data.loop.win_rate import FEW, MatchTally, WinRate, WinRecord, tally_match
from lab.labelling.labels.models import QueueStatus
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import User
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.models import Run, Status
from lab.training.runs.views.page import find_team_run

MOST_MATCHES = 10
MOST_OTHERS = 60  # runs offered as the other side
NEVER = (Status.STOPPED, Status.FAILED)  # until somebody resumes the run


@dataclass(frozen=True)
class MatchSummary:
    """A match as the panel tells it. ``state``: waiting, stopped, problem, few, counted."""

    match: Match
    state: str
    tally: MatchTally | None = None
    people: tuple[tuple[str, WinRecord], ...] = ()

    @property
    def other(self) -> str:
        against = self.match.against
        return f"#{against.number} {against.name}" if against else "the starting policy"

    @property
    def share(self) -> float:
        return self.match.same / self.match.compared if self.match.compared else 0.0

    @property
    def all_prompts(self) -> WinRate | None:
        """With the prompts that both answered with the same text as ties."""
        return self.tally.rate.with_ties(self.share) if self.tally and self.tally.rate and self.match.same else None

    @property
    def open(self) -> bool:
        """Whether the panel looks again by itself."""
        return self.state == "waiting" or (self.tally is not None and not self.tally.complete)

    @property
    def labelling(self) -> bool:
        return self.match.queue is not None and self.match.queue.status == QueueStatus.OPEN


@require_safe
def run_wins(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """The panel, empty for a run that has nothing to compare."""
    run = find_team_run(request, run_id)
    stored = Match.objects.filter(child=run).select_related("against", "queue", "version__dataset").order_by("pk")
    summaries = [shown_of(match, run) for match in stored[:MOST_MATCHES]]
    context: dict[str, Any] = {"run": run, "matches": summaries, "few": FEW, "refreshes": any(summary.open for summary in summaries)}
    context["annotates"] = has_team_permission(request, "label.work")
    if has_team_permission(request, "label.lead") and run.status == Status.FINISHED:
        context |= build_match_offer(run, summaries)
    return render(request, "loop/wins.html", context)


def shown_of(match: Match, run: Run) -> MatchSummary:
    if match.queue is None:
        return MatchSummary(match, "problem" if match.problem else "stopped" if run.status in NEVER else "waiting")
    counted = tally_match(match)
    names = {user.pk: str(user) for user in User.objects.filter(pk__in=counted.by_labeller)}
    people = sorted(((names.get(pk, "somebody"), own) for pk, own in counted.by_labeller.items()), key=lambda entry: -entry[1].votes)
    return MatchSummary(match, "few" if counted.few else "counted", counted, tuple(people))


def build_match_offer(run: Run, summaries: list[MatchSummary]) -> dict[str, Any]:
    """What another match could be against: where the run started, unless that is asked already, and finished runs of the same task."""
    done = {summary.match.against_id for summary in summaries}
    start = None not in done and matches.last_measured(run) is not None and matches.select_heldout_rollouts(run).filter(step=0).exists()
    others = Run.objects.of(run.team_id).filter(task=run.task, status=Status.FINISHED).exclude(trainer="reward").exclude(pk=run.pk)
    others = others.exclude(pk__in=[pk for pk in done if pk]).order_by("-number").only("pk", "number", "name")[:MOST_OTHERS]
    measured = matches.last_measured(run) is not None
    return {"start": start, "others": list(others) if measured else [], "prompts": MATCH_PROMPTS, "most": (MOST_PROMPTS, MOST_OVERLAP)}


@require_POST
def run_match(request: LabRequest, run_id: UUID) -> HttpResponse:
    """Queues a blind match of a finished run: ``against`` another run's id, or nothing for where it started."""
    run = find_team_run(request, run_id)
    prompts, overlap = (parse_whole_number(request.POST.get(name)) or 0 for name in ("prompts", "overlap"))
    try:
        if not 1 <= prompts <= MOST_PROMPTS or not 1 <= overlap <= MOST_OVERLAP:
            raise Refusal(f"Enter 1 to {MOST_PROMPTS:,} prompts, with 1 to {MOST_OVERLAP} labels each.")
        against = other_side(request, request.POST.get("against", ""))

        def act() -> str:
            match = matches.request_match(request.team, request.user, run, against, prompts=prompts, overlap=overlap)
            return reverse("queue", args=[match.queue_id]) if match.queue_id else f"{reverse('run', args=[run.pk])}#wins"

        url = act_once_per_token(request, f"match/{run.pk}/{against.pk if against else 'start'}", act)
    except Refusal as error:
        messages.error(request, str(error))
        return redirect("run", run_id=run.pk)
    return redirect(url)


def other_side(request: LabRequest, text: str) -> Run | None:
    if not text:
        return None
    try:
        run = Run.objects.of(request.team).filter(pk=UUID(text)).first()
    except ValueError:
        run = None
    if run is None:
        raise Refusal("Your team has no such run to compare with.")
    return run
