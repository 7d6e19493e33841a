"""Asking for clusters of a selection, or for rollouts like one: what a person may ask, storing it and telling a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.db import transaction

from lab.lib.refusals import Refusal
from lab.models.embeddings.embedders import AUTOMATIC, find_embedder
from lab.models.embeddings.models import OPEN, Embedder, Embedding, EmbeddingJob, JobKind
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.workers.messages import send_task_message

MOST_ROLLOUTS, LEAST_ROLLOUTS = 5000, 10
MOST_CLUSTERS = 30
MOST_OPEN = 5  # jobs of a team that wait or run
COMPARED = 500  # rollouts of a run that one is compared with where none has a vector
LONGEST_QUERY = 8000


class ClusterForm(forms.Form):
    """The form of the page and the check behind the API: names the field and the fix. The selection is checked by who reads it."""

    name = forms.CharField(label="Name", max_length=120, required=False)
    source = forms.CharField(label="Embed with", max_length=300, required=False)
    clusters = forms.IntegerField(
        label="Clusters",
        min_value=2,
        max_value=MOST_CLUSTERS,
        required=False,
        help_text="Empty: 2 to 12, the number with the highest mean silhouette.",
    )
    most = forms.IntegerField(
        label="Max rollouts",
        min_value=LEAST_ROLLOUTS,
        max_value=MOST_ROLLOUTS,
        initial=2000,
        help_text=f"Of a larger selection, so many at even distances. At most {MOST_ROLLOUTS:,}.",
    )
    seed = forms.IntegerField(label="Seed", min_value=0, max_value=2**31 - 1, initial=0, help_text="The same seed gives the same clusters.")

    def __init__(self, team: Team, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        self.team = team
        self.embedder: Embedder | None = None

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if "source" not in self.errors:
            try:
                self.embedder = find_embedder(self.team, given.get("source") or AUTOMATIC)
            except Refusal as error:
                self.add_error("source", str(error))
        return given

    def ask(self, user: User | None, selection: Selection) -> EmbeddingJob:
        """Stores the question and tells a worker. The form must be valid. Raises Refusal."""
        given = self.cleaned_data
        query = selection.query(sort="").removeprefix("?")
        if len(query) > LONGEST_QUERY:
            raise Refusal("The selection has too many conditions.", "Remove some filters.")
        with transaction.atomic():
            job = create_job(
                self.team,
                user,
                kind=JobKind.CLUSTERS,
                name=given["name"].strip() or name_clustering(selection),
                query=query,
                embedder=self.embedder,
                wanted=given["clusters"],
                most=given["most"],
                seed=given["seed"],
            )
            record_audit_entry("clustering.create", job, selection=query[:500], rollouts=given["most"])
        return job


def name_clustering(selection: Selection) -> str:
    """The selection in words."""
    runs = ", ".join(f"#{number}" for number in selection.runs[:5]) + (" …" if len(selection.runs) > 5 else "")
    parts = [
        f"run{'s' if len(selection.runs) > 1 else ''} {runs}" if runs else "all runs",
        *(one.label for one in selection.filters),
        *(text for text in (selection.words, selection.pattern) if text),
    ]
    return " · ".join(parts)[:120]


def create_job(team: Team, user: User | None, **fields: Any) -> EmbeddingJob:
    """Raises Refusal when the team has as many open ones as it may."""
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        EmbeddingJob.objects.of(team).lose()
        if EmbeddingJob.objects.of(team).filter(status__in=OPEN).count() >= MOST_OPEN:
            raise Refusal(f"{MOST_OPEN} embedding jobs of the team are open already.", "Wait for one to finish, or stop one.", code="open")
        job = EmbeddingJob.objects.create(team=team, user=user, **fields)
        enqueue_embedding_job(job)
    return job


def ask_similar(rollout: Rollout, user: User | None, choice: str = AUTOMATIC) -> EmbeddingJob:
    """Embeds the rollout and a sample of its run; the job that is open for it already, if there is one. Raises Refusal."""
    team = rollout.run.team
    open_job = EmbeddingJob.objects.of(team).filter(rollout=rollout, kind=JobKind.SIMILAR, status__in=OPEN).first()
    return open_job or create_job(team, user, kind=JobKind.SIMILAR, rollout=rollout, embedder=find_similar_embedder(team, choice), most=COMPARED)


def find_similar_embedder(team: Team, choice: str) -> Embedder | None:
    """``embedder:<id>`` is one the team has already. Raises Refusal."""
    number = choice.removeprefix("embedder:")
    if number == choice:
        return find_embedder(team, choice)
    known = Embedder.objects.of(team).filter(pk=int(number)).first() if number.isdecimal() and len(number) < 19 else None
    if known is None:
        raise Refusal("Your team has no such embedder.", "Choose one from the list.", "source")
    return known


def retry_job(job: EmbeddingJob) -> bool:
    """Whether a failed or stopped job waits again."""
    with transaction.atomic():
        changed = job.retry()
        if changed:
            enqueue_embedding_job(job)
    return changed


def delete_clustering(job: EmbeddingJob) -> None:
    """A worker that is at it hears that nobody wants the answer."""
    with transaction.atomic():
        record_audit_entry("clustering.delete", job)
        job.delete()


def delete_vectors(embedder: Embedder) -> int:
    """How many there were. Clusters that were made from them stay."""
    with transaction.atomic():
        count = Embedding.objects.filter(embedder=embedder).delete()[0]
        record_audit_entry("embeddings.delete", embedder, vectors=count)
    return count


def enqueue_embedding_job(job: EmbeddingJob) -> None:
    """Tells the workers once the transaction is committed. A message that cannot be sent now is sent by the next worker's sweep."""
    transaction.on_commit(lambda: send_task_message("embedding", job.pk))
