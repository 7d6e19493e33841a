"""A job in a worker: the sample is drawn, what has no vector gets one, and of a clustering the vectors are grouped and described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from django.db import transaction
from django.db.models.functions import Left
from django.http import QueryDict

from lab.lib.refusals import Refusal
from lab.models.embeddings.distinctive_words import MOST_CHARACTERS, find_distinctive_words
from lab.models.embeddings.embedders import find_newest_policy, locate_embedder_files
from lab.models.embeddings.grouping import VectorGroups, group_vectors
from lab.models.embeddings.models import FORMAT, ClusterMember, Embedder, EmbeddingJob, JobKind
from lab.models.embeddings.sample import DrawnSample, draw_around, draw_sample
from lab.models.embeddings.vectors import EmbeddingError, embed_missing, list_missing, load_vectors, lock_rollouts
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout

LEAST_CLUSTERED = 10  # rollouts
INSERTED = 1000  # rows of a statement


class JobStopped(Exception):
    """Somebody stopped or deleted it."""


def run_embedding_job(job_id: int) -> None:
    job = EmbeddingJob.across_teams.filter(pk=job_id).select_related("team", "embedder__team", "embedder__checkpoint__run", "rollout__run").first()
    if job is None or not job.claim():
        return
    try:
        embed_and_group(job)
    except JobStopped:
        return
    except (Refusal, EmbeddingError) as error:
        job.fail(str(error))
    except Exception as error:  # nobody waits for ever for an answer that will not come
        job.fail(f"Embedding failed: {type(error).__name__}.")
        raise


def embed_and_group(job: EmbeddingJob) -> None:
    """Raises JobStopped, Refusal, EmbeddingError."""
    drawn = draw_job_sample(job)
    if job.kind == JobKind.CLUSTERS and len(drawn.ids) < LEAST_CLUSTERED:
        few = f"The selection has {len(drawn.ids)} rollout{'' if len(drawn.ids) == 1 else 's'}; clusters need at least {LEAST_CLUSTERED}."
        raise Refusal(few, "Widen the selection.")
    embedder = job.embedder or choose_policy(job, drawn.ids)
    missing = list_missing(job.team, embedder, drawn.ids)
    progress = Progress(job, len(drawn.ids) - len(missing))
    progress.note(embedder=embedder, selected=drawn.selected, sampled=len(drawn.ids))
    if missing:
        embed_missing(job.team, embedder, locate_embedder_files(embedder), missing, progress.add)
    if job.kind == JobKind.SIMILAR:
        job.finish()
        return
    ids, vectors = load_vectors(job.team, embedder, drawn.ids)
    if len(ids) < LEAST_CLUSTERED:
        raise Refusal("Too few of the rollouts are left: others have been deleted meanwhile.", "Start a new clustering.")
    groups = group_vectors(vectors, job.wanted, job.seed)
    progress.note()
    store_groups(job, ids, groups)


class Progress:
    """What the page of a job that runs shows, and where the job hears that it was stopped."""

    def __init__(self, job: EmbeddingJob, done: int) -> None:
        self.job, self.done, self.cut = job, done, 0

    def add(self, done: int, cut: int) -> None:
        self.done, self.cut = self.done + done, self.cut + cut
        self.note()

    def note(self, **fields: object) -> None:
        """Raises JobStopped."""
        if not self.job.beats(done=self.done, cut=self.cut, **fields):
            raise JobStopped


def draw_job_sample(job: EmbeddingJob) -> DrawnSample:
    """Raises Refusal."""
    if job.kind == JobKind.CLUSTERS:
        return draw_sample(job.team, Selection.read(QueryDict(job.query)), job.most)
    assert job.rollout is not None
    return draw_around(job.team, job.rollout, job.most)


def choose_policy(job: EmbeddingJob, ids: Sequence[int]) -> Embedder:
    """The newest policy of the run that most of the rollouts are of; of the next one where that has none on disk. Raises Refusal."""
    runs = Counter(Rollout.objects.of(job.team).filter(pk__in=list(ids)).values_list("run_id", flat=True))
    return find_newest_policy(job.team, [run for run, _ in runs.most_common()])


def store_groups(job: EmbeddingJob, ids: Sequence[int], groups: VectorGroups) -> None:
    """Raises JobStopped."""
    labels = groups.labels.tolist()
    begun = Rollout.objects.of(job.team).filter(pk__in=list(ids)).annotate(head=Left("completion", MOST_CHARACTERS))
    texts: dict[int, str] = dict(begun.values_list("pk", "head"))
    words = find_distinctive_words((texts.get(pk, "") for pk in ids), labels)
    result = {
        "format": FORMAT,
        "silhouettes": [[count, value] for count, value in groups.silhouettes.items()],
        "words": words,
        "explained": groups.explained,
    }
    with transaction.atomic():
        if not job.finish(result=result):
            raise JobStopped
        there = lock_rollouts(ids)
        places = zip(ids, labels, groups.distances.tolist(), groups.points.tolist(), strict=True)
        rows = [
            ClusterMember(job=job, rollout_id=pk, cluster=label + 1, distance=distance, x=x, y=y)
            for pk, label, distance, (x, y) in places
            if pk in there
        ]
        ClusterMember.objects.bulk_create(rows, batch_size=INSERTED)
