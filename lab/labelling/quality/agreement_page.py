"""How far the labels of a queue can be trusted: coefficients, labellers, drift; pausing a labeller and letting them go on."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.labelling.labels.models import Queue
from lab.labelling.quality import labeller_pauses
from lab.labelling.quality.access import find_quality_queue, queue_context, sees_numbers
from lab.labelling.quality.agreement import compute_agreement_measures, compute_pairwise_kappas, interpret_alpha
from lab.labelling.quality.drift import over_steps, over_time
from lab.labelling.quality.labellers import gold_answers, summarize_labellers
from lab.labelling.quality.ratings import ratings_of
from lab.labelling.quality.repeat_drift import compute_repeat_drift, list_repeated_answers
from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.models import User
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission


@require_safe
def show_queue_quality(request: LabRequest, queue_id: int) -> HttpResponse:
    """Leads see everything, viewers the coefficients, annotators their own line. ``?labeller=`` narrows the drift to one person."""
    queue = find_quality_queue(request, queue_id)
    leads, numbers = has_team_permission(request, "label.lead"), sees_numbers(request)
    only = None if leads else request.user.pk
    ratings = ratings_of(queue)
    gold = gold_answers(queue, only)
    lines = summarize_labellers(queue, ratings, gold, only) if has_team_permission(request, "label.work") else []
    chosen = next((line.user for line in lines if str(line.user.pk) == request.GET.get("labeller", "")), None)
    context: dict[str, Any] = {**queue_context(request, queue, "quality"), "lines": lines, "numbers": numbers, "chosen": chosen}
    if numbers:
        measures = compute_agreement_measures(queue, ratings)
        alpha = next(measure.coefficient for measure in measures if measure.coefficient.name.endswith("nominal"))
        context |= {"measures": measures, "reading": interpret_alpha(alpha), "resamples": max(measure.coefficient.resamples for measure in measures)}
    if leads:
        context["pairwise"] = compute_pairwise_kappas(ratings, User.objects.in_bulk(ratings.people))
    answers = [answer for answer in gold if chosen is None or answer.user == chosen.pk]
    context |= {"gold": len(answers), "time": over_time(answers), "steps": over_steps(queue.team, answers)} if lines else {}
    repeated = list_repeated_answers(queue, chosen.pk if chosen else only)
    context["repeated"] = compute_repeat_drift(queue.team, repeated, answers)
    return render(request, "quality/quality.html", context)


@require_POST
def change_labeller_status(request: LabRequest, queue_id: int) -> HttpResponse:
    """Pauses somebody in the queue (``act`` pause, with a reason) or lets them go on (resume)."""
    queue = find_quality_queue(request, queue_id)
    back = f"{reverse('queue-quality', args=[queue.pk])}#labellers"
    if not request.POST.get("user"):
        messages.error(request, "No labeller selected: choose one in the table.")
        return redirect(back)
    user = labeller_of(queue, request.POST["user"])
    if request.POST.get("act") == "resume":
        labeller_pauses.resume_queue_labeller(queue, user)
        messages.success(request, f"{user} can label here again.")
    else:
        labeller_pauses.pause_queue_labeller(queue, user, request.POST.get("reason", ""))
        messages.success(request, f"{user} is paused in this queue. Their labels are kept.")
    return redirect(back)


def labeller_of(queue: Queue, key: str) -> User:
    """Somebody of the team, or who labelled in the queue; else 404."""
    users = User.objects.filter(pk=parse_whole_number(key) or 0)
    user = (users.filter(memberships__team=queue.team) | users.filter(judgements__queue=queue)).distinct().first()
    if user is None:
        raise Http404
    return user
