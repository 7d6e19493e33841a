"""How far the labels of a queue can be trusted: coefficients, labellers, drift; pausing a labeller and letting them go on."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.accounts.models import User
from lab.accounts.roles import may
from lab.labels.models import Queue
from lab.quality import pausing
from lab.quality.access import queue_context, queue_of, sees_numbers
from lab.quality.agreement import measures, pairwise, reading
from lab.quality.drift import over_steps, over_time
from lab.quality.labellers import gold_answers, labellers
from lab.quality.ratings import ratings_of
from lab.runs.views.request import LabRequest


@require_safe
def quality(request: LabRequest, queue_id: int) -> HttpResponse:
    """Leads see everything, viewers the coefficients, annotators their own line. ``?labeller=`` narrows the drift to one person."""
    queue = queue_of(request, queue_id)
    leads, numbers = may(request, "label.lead"), sees_numbers(request)
    only = None if leads else request.user.pk
    ratings = ratings_of(queue)
    gold = gold_answers(queue, only)
    lines = labellers(queue, ratings, gold, only) if may(request, "label.work") else []
    chosen = next((line.user for line in lines if str(line.user.pk) == request.GET.get("labeller", "")), None)
    context: dict[str, Any] = {**queue_context(request, queue, "quality"), "lines": lines, "numbers": numbers, "chosen": chosen}
    if numbers:
        found = measures(queue, ratings)
        alpha = next(one.coefficient for one in found if one.coefficient.name.endswith("nominal"))
        context |= {"measures": found, "reading": reading(alpha), "resamples": max(one.coefficient.resamples for one in found)}
    if leads:
        context["pairwise"] = pairwise(ratings, User.objects.in_bulk(ratings.people))
    shown = [answer for answer in gold if chosen is None or answer.user == chosen.pk]
    context |= {"gold": len(shown), "time": over_time(shown), "steps": over_steps(queue.team, shown)} if lines else {}
    return render(request, "quality/quality.html", context)


@require_POST
def labeller(request: LabRequest, queue_id: int) -> HttpResponse:
    """Pauses somebody in the queue (``act`` pause, with a reason) or lets them go on (resume)."""
    queue = queue_of(request, queue_id)
    back = f"{reverse('queue-quality', args=[queue.pk])}#labellers"
    if not request.POST.get("user"):
        messages.error(request, "Nobody was named: choose a labeller in the table.")
        return redirect(back)
    user = labeller_of(queue, request.POST["user"])
    if request.POST.get("act") == "resume":
        pausing.resume(queue, user)
        messages.success(request, f"{user} may label here again.")
    else:
        pausing.pause(queue, user, request.POST.get("reason", ""))
        messages.success(request, f"{user} is paused in this queue. Their labels stay as they are.")
    return redirect(back)


def labeller_of(queue: Queue, key: str) -> User:
    """Somebody of the team, or who labelled in the queue; else 404."""
    if not key.isascii() or not key.isdigit() or len(key) > 18:
        raise Http404
    found = User.objects.filter(pk=int(key))
    user = (found.filter(memberships__team=queue.team) | found.filter(judgements__queue=queue)).distinct().first()
    if user is None:
        raise Http404
    return user
