"""Embedding jobs of somebody who leaves the team and that no worker has begun: they are stopped."""

from __future__ import annotations

from django.db.models import QuerySet
from django.db.models.functions import Now

from lab.models.embeddings.models import EmbeddingJob, JobStatus
from lab.teams.accounts.models import Team, User
from lab.teams.people import departures
from lab.teams.people.departures import MemberHolding


def register_embedding_hooks() -> None:
    departures.register_leaving_hook("embeddings", stop_waiting_jobs, list_held_jobs)


def select_waiting_jobs(team: Team, user: User) -> QuerySet[EmbeddingJob]:
    return EmbeddingJob.objects.of(team).filter(user=user, status=JobStatus.QUEUED)


def stop_waiting_jobs(team: Team, user: User) -> None:
    select_waiting_jobs(team, user).update(
        status=JobStatus.STOPPED, error="The person who started it has left the team. Run it again.", finished_at=Now()
    )


def list_held_jobs(team: Team, user: User) -> list[MemberHolding]:
    count = select_waiting_jobs(team, user).count()
    return [MemberHolding(f"{count} waiting embedding job{'s are' if count > 1 else ' is'} stopped.")] if count else []
