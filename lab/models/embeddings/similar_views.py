"""The page of the rollouts nearest to one; where it has no vector yet, the button that has it embedded, and how far that is."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from lab.lib.costly import limit_costly_requests
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.models.embeddings.embedders import AUTOMATIC, ENCODER, list_encoders
from lab.models.embeddings.models import EmbeddingJob, JobKind
from lab.models.embeddings.requests import COMPARED, ask_similar
from lab.models.embeddings.similar import EXCERPT, find_similar, list_embedders
from lab.models.embeddings.views import build_job_progress, render_job_state
from lab.rollouts.reading.team_rollouts import get_team_rollout
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import iterate_text_pieces
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest


@require_http_methods(["GET", "HEAD", "POST"])
@limit_costly_requests(lambda request: request.method != "POST" and "part" not in request.GET)
def show_similar_rollouts(request: LabRequest, rollout_id: int) -> HttpResponse:
    """``?embedder=`` chooses by whose vectors. POST embeds the rollout and a sample of its run."""
    rollout = get_team_rollout(request, rollout_id)
    if request.method == "POST":
        return submit_similar(request, rollout)
    job = find_newest_job(request.team, rollout)
    if request.GET.get("part") == "state" and job is not None:
        return render_job_state(request, job)
    embedders = list_embedders(request.team, rollout)
    asked = parse_whole_number(request.GET.get("embedder", ""))
    chosen = next((one for one in embedders if one.pk == asked), embedders[0] if embedders else None)
    answer = find_similar(request.team, rollout, chosen) if chosen else None
    context: dict[str, Any] = {
        "room": "rollouts",
        "run": rollout.run,
        "rollout": rollout,
        "head": list(iterate_text_pieces(rollout.completion[:EXCERPT])),
        "is_cut": len(rollout.completion) > EXCERPT,
        "embedders": embedders,
        "chosen": chosen,
        "answer": answer,
        "encoders": [(f"{ENCODER}{name}", name) for name in list_encoders()],
        "most": COMPARED,
    }
    if job is not None and (job.is_open or answer is None):
        context |= build_job_progress(job)
    if answer is not None:
        ids = ",".join(str(one.rollout.pk) for one in answer.neighbours)
        context["table_query"] = urlencode({"f": f"rollout:in:{rollout.pk},{ids}"})
    return render(request, "clusters/similar.html", context)


def find_newest_job(team: Team, rollout: Rollout) -> EmbeddingJob | None:
    rows = EmbeddingJob.objects.of(team).filter(rollout=rollout, kind=JobKind.SIMILAR)
    rows.lose()
    return rows.select_related("embedder").order_by("-created_at", "-pk").first()


def submit_similar(request: LabRequest, rollout: Rollout) -> HttpResponse:
    choice = request.POST.get("source", "")[:300] or AUTOMATIC
    try:
        job = ask_similar(rollout, request.user, choice)
    except Refusal as error:
        messages.error(request, str(error))
        return redirect("similar", rollout.pk)
    where = reverse("similar", args=[rollout.pk])
    return redirect(f"{where}?{urlencode({'embedder': job.embedder_id})}" if job.embedder_id else where)
