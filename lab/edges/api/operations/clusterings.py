"""Clusters of a selection of rollouts, and the rollouts most similar to one, by vectors of a policy or a sentence encoder."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest, QueryDict
from ninja import Field, Schema, Status

from lab.edges.api.base import Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.rollouts import make_selection_problem
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import ApiProblem, make_validation_problem
from lab.edges.api.queue_bodies import of_form
from lab.lib.costly import under_way
from lab.lib.numbers import MAX_ID, MAX_INTEGER
from lab.models.embeddings import requests
from lab.models.embeddings.browser_fields import format_cluster_filter
from lab.models.embeddings.figures import ClusterFigures, describe_clusters, read_members
from lab.models.embeddings.models import Embedder, EmbeddingJob, JobKind
from lab.models.embeddings.similar import NEAREST, find_similar, list_embedders
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.addresses import build_absolute_url, team_path

router = make_router("Rollouts")
SOURCE = "`auto` (the newest policy of the run with the most rollouts drawn), `checkpoint:<id of a policy>` or `encoder:<folder in LAB_POLICIES>`."


class ClusteringIn(RequestBody):
    selection: str = Field(
        "", max_length=requests.LONGEST_QUERY, description="The query string of the rollout browser.", examples=["run=2&f=step:ge:50"]
    )
    source: str = Field("auto", max_length=300, description=SOURCE)
    clusters: int | None = Field(None, ge=2, le=requests.MOST_CLUSTERS, description="null: the number from 2 to 12 with the highest mean silhouette.")
    most: int = Field(
        2000, ge=requests.LEAST_ROLLOUTS, le=requests.MOST_ROLLOUTS, description="Of a larger selection, so many rollouts at even distances."
    )
    seed: int = Field(0, ge=0, le=MAX_INTEGER)
    name: str = Field("", max_length=120)


class ClusterMeanOut(Schema):
    mean: float
    half: float | None = Field(description="Half the width of its 95 % t interval.")
    count: int


class WordOut(Schema):
    word: str
    share: float = Field(description="Of the cluster's rollouts that have it.")
    rest: float = Field(description="Of the other rollouts.")
    z: float = Field(description="Log-odds ratio with a Dirichlet prior, over its standard deviation.")


class ClusterOut(Schema):
    number: int
    count: int
    share: float
    reward: ClusterMeanOut | None
    passed: float = Field(description="Share that passed.")
    passed_low: float = Field(description="Wilson's 95 % interval.")
    passed_high: float
    length: ClusterMeanOut | None = Field(description="Tokens.")
    first_step: int
    last_step: int
    words: list[WordOut]
    nearest: list[int] = Field(description="Ids of the rollouts nearest to the centre.")
    filter: str = Field(examples=["cluster:is:17.2"], description="A filter `f` of rollouts: those of this cluster.")


class SilhouetteOut(Schema):
    clusters: int
    silhouette: float = Field(description="Mean over rollouts.")


class ClusteringHead(Schema):
    id: int
    url: str
    name: str
    selection: str
    status: str = Field(examples=["finished"], description="queued, running, finished, failed or stopped.")
    error: str
    embedder: int | None
    selected: int | None = Field(description="Rollouts of the selection; null until they are counted.")
    sampled: int | None = Field(description="Of those, drawn.")
    done: int = Field(description="Of those, with a vector.")
    cut: int = Field(description="Of those embedded for it, longer than the embedder reads.")
    created_at: datetime
    finished_at: datetime | None


class ClusteringOut(ClusteringHead):
    silhouettes: list[SilhouetteOut]
    clusters: list[ClusterOut] = Field(description="The largest first; empty until it is finished.")


class EmbedderOut(Schema):
    id: int
    name: str
    kind: str = Field(description="policy or encoder.")
    dimension: int
    vectors: int


class NeighbourOut(Schema):
    id: int = Field(description="Id of the rollout.")
    run: int = Field(description="Number of the run.")
    step: int
    group: int
    sample: int
    reward: float | None
    similarity: float = Field(description="Cosine.")
    shared: int = Field(description="Characters that both completions begin with.")
    same: bool = Field(description="Both completions are equal.")


class SimilarOut(Schema):
    embedder: int | None = Field(description="Whose vectors were compared; null where the team has none.")
    compared: int = Field(description="Other rollouts with a vector.")
    centred: bool = Field(description="The mean of the compared vectors was subtracted first.")
    neighbours: list[NeighbourOut] = Field(description="The most similar first; empty until the rollout is embedded.")
    job: int | None = Field(description="The newest job that embeds it.")
    status: str = Field(description="Of that job; empty without one.")
    error: str


class SimilarIn(RequestBody):
    source: str = Field("auto", max_length=300, description=f"{SOURCE} `embedder:<id>` is one the team has vectors of.")


def find_clustering(request: HttpRequest, clustering_id: int) -> EmbeddingJob:
    rows = EmbeddingJob.objects.of(caller_of(request).team).filter(kind=JobKind.CLUSTERS)
    rows.lose()
    job: EmbeddingJob = one_of(rows.select_related("team"), clustering_id)
    return job


def serialize_clustering_head(job: EmbeddingJob) -> dict[str, Any]:
    names = ("id", "name", "status", "error", "selected", "sampled", "done", "cut", "created_at", "finished_at")
    url = build_absolute_url(team_path(job.team, "clustering", job.pk))
    return {**{name: getattr(job, name) for name in names}, "selection": job.query, "embedder": job.embedder_id, "url": url}


def serialize_clustering(job: EmbeddingJob) -> dict[str, Any]:
    result = job.result if job.readable and job.result else {}
    clusters = [serialize_cluster(job, one) for one in describe_clusters(job, read_members(job))] if result else []
    silhouettes = [{"clusters": count, "silhouette": value} for count, value in result.get("silhouettes", [])]
    return {**serialize_clustering_head(job), "silhouettes": silhouettes, "clusters": clusters}


def serialize_cluster(job: EmbeddingJob, one: ClusterFigures) -> dict[str, Any]:
    share, low, high = one.passed
    names = ("number", "count", "share", "reward", "length", "words", "nearest")
    return {
        **{name: getattr(one, name) for name in names},
        **{"passed": share, "passed_low": low, "passed_high": high, "first_step": one.first, "last_step": one.last},
        "filter": format_cluster_filter(job.pk, one.number),
    }


@router.get("/clusterings", auth=require_permission("runs.read"), response=Page[ClusteringHead], summary="List clusterings")
def list_clusterings(request: HttpRequest, after: After, limit: Limit) -> object:
    """Newest first, without their clusters."""
    jobs = EmbeddingJob.objects.of(caller_of(request).team).filter(kind=JobKind.CLUSTERS, pk__lt=parse_after_id(after))
    rows = list(jobs.select_related("team").defer("result").order_by("-pk")[: limit + 1])
    return paginate_rows(rows, limit, lambda job: job.pk, serialize_clustering_head)


@router.post(
    "/clusterings", auth=require_permission("rollouts.embed"), response={201: ClusteringOut, 200: ClusteringOut}, summary="Cluster a selection"
)
def create_clustering(request: HttpRequest, given: ClusteringIn, key: Key) -> object:
    """Queues it for a worker; read it until it is finished. What has a vector already is not embedded again."""
    caller = caller_of(request)
    selection = Selection.read(QueryDict(given.selection))
    if selection.problems:
        raise make_selection_problem(selection.problems)
    form = requests.ClusterForm(caller.team, given.model_dump(exclude_none=True))
    if not form.is_valid():
        raise make_validation_problem(of_form(form))
    [made], fresh = run_idempotent_action(request, caller, key, lambda: [form.ask(caller.user, selection).pk])
    return Status(201 if fresh else 200, serialize_clustering(find_clustering(request, int(made))))


@router.get("/clusterings/{int:clustering_id}", auth=require_permission("runs.read"), response=ClusteringOut, summary="One clustering")
def get_clustering(request: HttpRequest, clustering_id: int) -> object:
    """How far it is, or its clusters, by the rollouts that still exist."""
    return serialize_clustering(find_clustering(request, clustering_id))


@router.post("/clusterings/{int:clustering_id}/stop", auth=require_permission("rollouts.embed"), response=ClusteringOut, summary="Stop a clustering")
def stop_clustering(request: HttpRequest, clustering_id: int) -> object:
    """Vectors so far are kept; one that has ended stays as it is."""
    job = find_clustering(request, clustering_id)
    job.stop()
    return serialize_clustering(find_clustering(request, clustering_id))


@router.post(
    "/clusterings/{int:clustering_id}/retry", auth=require_permission("rollouts.embed"), response=ClusteringOut, summary="Run a clustering again"
)
def retry_clustering(request: HttpRequest, clustering_id: int) -> object:
    """One that failed or was stopped."""
    job = find_clustering(request, clustering_id)
    if not requests.retry_job(job):
        raise ApiProblem("conflict", "Only a failed or stopped clustering can be run again.")
    return serialize_clustering(find_clustering(request, clustering_id))


@router.delete("/clusterings/{int:clustering_id}", auth=require_permission("rollouts.embed"), response={204: None}, summary="Delete a clustering")
def remove_clustering(request: HttpRequest, clustering_id: int) -> object:
    """Its rollouts and their vectors are kept."""
    requests.delete_clustering(find_clustering(request, clustering_id))
    return Status(204, None)


@router.get("/embedders", auth=require_permission("runs.read"), response=list[EmbedderOut], summary="List embedders")
def get_embedders(request: HttpRequest) -> object:
    """Those that the team has vectors of, the most first."""
    return list_embedders(caller_of(request).team)


@router.delete("/embedders/{int:embedder_id}/vectors", auth=require_permission("rollouts.embed"), response={204: None}, summary="Delete vectors")
def remove_vectors(request: HttpRequest, embedder_id: int) -> object:
    """All of an embedder. Rollouts and clusterings are kept."""
    requests.delete_vectors(one_of(Embedder.objects.of(caller_of(request).team), embedder_id))
    return Status(204, None)


def find_rollout(request: HttpRequest, rollout_id: int) -> Rollout:
    rollout: Rollout = one_of(Rollout.objects.of(caller_of(request).team).select_related("run__team"), rollout_id)
    return rollout


@router.get("/rollouts/{int:rollout_id}/similar", auth=require_permission("runs.read"), response=SimilarOut, summary="Similar rollouts")
def get_similar(
    request: HttpRequest,
    rollout_id: int,
    embedder: int | None = Query(
        None, ge=1, le=MAX_ID, description="Id of an embedder; default: the one that knows the rollout and the most others."
    ),
    limit: int = Query(NEAREST, ge=1, le=100),
) -> object:
    """The nearest among the team's rollouts that have a vector by the same embedder."""
    team, rollout = caller_of(request).team, find_rollout(request, rollout_id)
    embedders = list_embedders(team, rollout)
    chosen = next((one for one in embedders if embedder in (None, one.pk)), None)
    if embedder is not None and chosen is None:
        raise Http404
    with under_way(request):
        answer = find_similar(team, rollout, chosen, limit) if chosen else None
    jobs = EmbeddingJob.objects.of(team).filter(rollout=rollout, kind=JobKind.SIMILAR)
    jobs.lose()
    job = jobs.order_by("-pk").first()
    return {
        "embedder": chosen.pk if chosen else None,
        "compared": answer.compared if answer else 0,
        "centred": answer.centred if answer else False,
        "neighbours": [
            {
                "id": one.rollout.pk,
                "run": one.rollout.run.number,
                **{name: getattr(one.rollout, name) for name in ("step", "group", "sample", "reward")},
                **{name: getattr(one, name) for name in ("similarity", "shared", "same")},
            }
            for one in (answer.neighbours if answer else ())
        ],
        "job": job.pk if job else None,
        "status": job.status if job else "",
        "error": job.error if job else "",
    }


@router.post(
    "/rollouts/{int:rollout_id}/similar", auth=require_permission("rollouts.embed"), response={202: SimilarOut}, summary="Embed for similar rollouts"
)
def embed_similar(request: HttpRequest, rollout_id: int, given: SimilarIn) -> object:
    """Has a worker embed the rollout and up to 500 of its run; then read the similar ones. A job that is open for it already is the answer."""
    requests.ask_similar(find_rollout(request, rollout_id), caller_of(request).user, given.source)
    return Status(202, get_similar(request, rollout_id, None, NEAREST))
