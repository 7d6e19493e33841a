"""Clusters of a selection: asking, the list of the team's, waiting, reading them and their map, deleting them and vectors."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.lib.costly import limit_costly_requests
from lab.lib.refusals import Refusal
from lab.models.embeddings.embedders import CHECKPOINT, ENCODER, list_encoders
from lab.models.embeddings.figures import build_map, describe_clusters, read_members
from lab.models.embeddings.models import Embedder, EmbeddingJob, JobKind
from lab.models.embeddings.requests import ClusterForm, delete_clustering, delete_vectors, name_clustering, retry_job
from lab.models.embeddings.similar import list_embedders
from lab.models.playground.requests import list_sampleable_checkpoints
from lab.models.policies.checkpoint_paths import format_checkpoint_label
from lab.rollouts.browse.pages import Count, read_page
from lab.rollouts.browse.selection import Selection
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.workers.models import ANALYSIS, Worker

LISTED = 100  # clusterings
TOKEN_LENGTH = 64
FLOAT16 = 2  # bytes


@require_http_methods(["GET", "HEAD", "POST"])
@limit_costly_requests(lambda request: request.method == "GET" and bool(request.GET.get("re")))
def show_clusterings(request: LabRequest) -> HttpResponse:
    """The team's clusterings, and the form for another of the selection in the address. POST asks."""
    if request.method == "POST":
        return submit_clustering(request)
    return render_clusterings(request, ClusterForm(request.team), Selection.read(request.GET))


def submit_clustering(request: LabRequest) -> HttpResponse:
    selection = Selection.read(QueryDict(request.POST.get("selection", "")[:8000]))
    form = ClusterForm(request.team, request.POST)
    if not form.is_valid():
        return render_clusterings(request, form, selection, status=422)
    token = request.POST.get("token", "")[:TOKEN_LENGTH] or secrets.token_urlsafe(16)
    try:
        return redirect(act_once_per_token(request, f"clusters/{token}", lambda: reverse("clustering", args=[form.ask(request.user, selection).pk])))
    except Refusal as error:
        form.add_error(None, str(error))
        return render_clusterings(request, form, selection, status=error.status)


def render_clusterings(request: LabRequest, form: ClusterForm, selection: Selection, status: int = 200) -> HttpResponse:
    jobs = EmbeddingJob.objects.of(request.team).filter(kind=JobKind.CLUSTERS).select_related("user", "embedder")
    jobs.lose()
    embedders = list_embedders(request.team)
    context = {
        "room": "rollouts",
        "form": form,
        "values": {name: form[name].value() for name in form.fields},
        "selection": selection,
        "selection_words": name_clustering(selection),
        "query": selection.query(sort=""),
        "count": count_selected(request.team, selection),
        "checkpoints": [(f"{CHECKPOINT}{one.pk}", format_checkpoint_label(one)) for one in list_sampleable_checkpoints(request.team)],
        "encoders": [(f"{ENCODER}{name}", name) for name in list_encoders()],
        "clusterings": jobs.order_by("-created_at", "-pk")[:LISTED],
        "embedders": [(one, one.vectors * one.dimension * FLOAT16) for one in embedders],  # type: ignore[attr-defined]
        "token": secrets.token_urlsafe(16),
        "served": is_served(),
    }
    return render(request, "clusters/clusters.html", context, status=status)


def count_selected(team: Team, selection: Selection) -> Count | None:
    """None where a regular expression has to be tried first."""
    return None if selection.pattern else read_page(team, selection, 1).count


def is_served() -> bool:
    return Worker.objects.serving(ANALYSIS).exists()


def find_job(request: LabRequest, key: int, **conditions: Any) -> EmbeddingJob:
    """The team's job, or 404. One that compares a rollout in the bin is none."""
    rows = EmbeddingJob.objects.of(request.team).filter(rollout__run__binned_at=None, **conditions)
    rows.filter(pk=key).lose()
    job: EmbeddingJob = get_object_or_404(rows.select_related("user", "embedder", "team", "rollout"), pk=key)
    return job


@require_safe
def show_clustering(request: LabRequest, clustering_id: int) -> HttpResponse:
    """The clusters, or how far the job is; ``?part=state`` what changes while one waits."""
    job = find_job(request, clustering_id, kind=JobKind.CLUSTERS)
    if request.GET.get("part") == "state":
        return render_job_state(request, job)
    selection = Selection.read(QueryDict(job.query))
    context = {"room": "rollouts", **build_job_progress(job), "query": selection.query(), "selection_words": name_clustering(selection)}
    if job.readable:
        assert job.result is not None
        members = read_members(job)
        scores = [(count, value) for count, value in job.result["silhouettes"]]
        context |= {
            "clusters": describe_clusters(job, members),
            "left": len(members),
            "scores": scores,
            "best": max((value for _, value in scores), default=None),
            "explained": [round(100 * share) for share in job.result["explained"]],
        }
    return render(request, "clusters/clustering.html", context)


def render_job_state(request: LabRequest, job: EmbeddingJob) -> HttpResponse:
    if not job.is_open:
        return HttpResponse(headers={"HX-Refresh": "true"})
    return render(request, "clusters/state.html", build_job_progress(job))


def build_job_progress(job: EmbeddingJob) -> dict[str, Any]:
    since = job.started_at or job.created_at
    state = reverse("clustering", args=[job.pk]) if job.kind == JobKind.CLUSTERS else reverse("similar", args=[job.rollout_id])
    return {"job": job, "seconds": (timezone.now() - since).total_seconds(), "served": not job.is_open or is_served(), "state_url": state}


@require_safe
def show_cluster_map(request: LabRequest, clustering_id: int) -> JsonResponse:
    job = find_job(request, clustering_id, kind=JobKind.CLUSTERS)
    return JsonResponse(build_map(read_members(job) if job.readable else []), headers={"Cache-Control": "no-store"})


@require_POST
def stop_job(request: LabRequest, clustering_id: int) -> HttpResponse:
    job = find_job(request, clustering_id)
    if job.stop():
        messages.success(request, "Stopped. Vectors so far are kept.")
    return redirect_to_job(job)


@require_POST
def retry_embedding(request: LabRequest, clustering_id: int) -> HttpResponse:
    """Runs a failed or stopped job once more."""
    job = find_job(request, clustering_id)
    retry_job(job)
    return redirect_to_job(job)


def redirect_to_job(job: EmbeddingJob) -> HttpResponse:
    return redirect("clustering", job.pk) if job.kind == JobKind.CLUSTERS else redirect("similar", job.rollout_id)


@require_POST
def delete_clusters(request: LabRequest, clustering_id: int) -> HttpResponse:
    job = find_job(request, clustering_id, kind=JobKind.CLUSTERS)
    name = job.name
    delete_clustering(job)
    messages.success(request, f"Deleted “{name}”. Its rollouts and their vectors are kept.")
    return redirect("clusters")


@require_POST
def delete_embedder_vectors(request: LabRequest, embedder_id: int) -> HttpResponse:
    embedder = Embedder.objects.of(request.team).filter(pk=embedder_id).first()
    if embedder is None:
        raise Http404
    count = delete_vectors(embedder)
    messages.success(request, f"Deleted {count:,} vector{'' if count == 1 else 's'} of {embedder}.")
    return redirect("clusters")
