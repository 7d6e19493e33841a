"""Rollouts like one: the nearest by the vectors there are, embedded on demand, across runs of a team and never across teams."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.utils import timezone

from lab.lib.refusals import Refusal
from lab.models.embeddings import jobs, similar
from lab.models.embeddings.models import Embedder, Embedding, EmbeddingJob, JobStatus
from lab.models.embeddings.requests import ask_similar
from lab.models.embeddings.similar import find_similar
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.hostile import MARK
from tests.lab.api.conftest import client_of
from tests.lab.embeddings.planted import checkpoint, plant
from tests.lab.supervisor.spools import make_run, rollout, started, store


@pytest.fixture
def run(team: Team) -> Run:
    return plant(make_run(team, status=Status.FINISHED), times=1)


def embedder_of(team: Team, kind: str = "encoder") -> Embedder:
    return Embedder.objects.create(team=team, kind=kind, name=f"by hand {kind}", key=f"{team.pk} {kind}", dimension=3)


def place(embedder: Embedder, rollout: Rollout, *vector: float) -> None:
    values = np.array(vector) / np.linalg.norm(vector)
    Embedding.objects.create(rollout=rollout, embedder=embedder, vector=values.astype("<f2").tobytes())


@pytest.mark.feature(53)
def test_planted_near_duplicates_of_another_run_come_first(team: Team, owner: User, as_owner: Client, run: Run) -> None:
    """From the button to the list: nothing is embedded before."""
    checkpoint(run, 1)
    text = "cat sat the cat sat the cat"
    store(run, started(), rollout(2, 5, 0, completion=text), rollout(2, 5, 1, completion=f"{text} no"))
    asked, near = Rollout.objects.filter(run=run, group=5).order_by("sample")
    shown = as_owner.get(f"/rollouts/{asked.pk}/similar/").content.decode()
    assert "Not embedded yet" in shown
    assert as_owner.post(f"/rollouts/{asked.pk}/similar/", {"source": "auto"}).status_code == 302
    assert "Waiting for a worker" in as_owner.get(f"/rollouts/{asked.pk}/similar/").content.decode()
    job = EmbeddingJob.objects.of(team).get()
    assert ask_similar(asked, owner) == job, "one at a time for a rollout"
    jobs.run_embedding_job(job.pk)
    job.refresh_from_db()
    assert (job.status, job.error, job.done) == (JobStatus.FINISHED, "", 14)
    assert job.embedder is not None
    answer = find_similar(team, asked, job.embedder)
    assert answer is not None
    assert (answer.neighbours[0].rollout, answer.compared, answer.centred) == (near, 13, True)
    assert answer.neighbours[0].similarity > answer.neighbours[1].similarity
    other = make_run(team, status=Status.FINISHED)
    store(other, started(), rollout(9, 0, 0, completion=text))
    twin = Rollout.objects.get(run=other)
    assert client_of(team, owner).ask(f"rollouts/{twin.pk}/similar").json()["neighbours"] == []
    again = ask_similar(twin, owner, f"embedder:{job.embedder.pk}")
    jobs.run_embedding_job(again.pk)
    found = client_of(team, owner).ask(f"rollouts/{asked.pk}/similar", limit=2).json()
    assert [(one["id"], one["same"]) for one in found["neighbours"]] == [(twin.pk, True), (near.pk, False)] or found["neighbours"][0]["id"] == near.pk
    page = as_owner.get(f"/rollouts/{asked.pk}/similar/").content.decode()
    assert f"/compare/rollouts/?a={asked.pk}&amp;b={near.pk}" in page
    assert f"at character {len(text)}</span>" in page
    assert "none: the same completion" in page
    assert f"rollout%3Ain%3A{asked.pk}%2C" in page


def test_similarity_is_the_cosine_and_that_of_centred_vectors_for_a_policy(team: Team, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three, four = Rollout.objects.filter(run=run).order_by("pk")[:4]
    encoder, policy = embedder_of(team), embedder_of(team, "policy")
    given = {one: (1, 0, 0), two: (1, 1, 0), three: (0, 1, 0), four: (-1, 0, 0)}
    for embedder in (encoder, policy):
        for row, vector in given.items():
            place(embedder, row, *vector)
    found = find_similar(team, one, encoder)
    assert found is not None
    assert [(near.rollout, round(near.similarity, 3)) for near in found.neighbours] == [(two, 0.707), (three, 0.0), (four, -1.0)]
    assert (found.compared, found.stored, found.centred) == (3, 3, False)
    centred = find_similar(team, one, policy)
    assert centred is not None
    unit = np.array([np.array(vector) / np.linalg.norm(vector) for vector in given.values()])
    rest = unit - unit.mean(0)
    expected = rest[1] @ rest[0] / np.linalg.norm(rest[1]) / np.linalg.norm(rest[0])
    assert centred.neighbours[0].similarity == pytest.approx(expected, abs=2e-3)
    monkeypatch.setattr(similar, "MOST_COMPARED", 2)
    few = find_similar(team, one, encoder)
    assert few is not None
    assert ([near.rollout for near in few.neighbours], few.compared, few.stored) == ([three, four], 2, 3)


def test_no_neighbour_is_of_another_team_of_the_bin_or_replayed(team: Team, stranger: User, owner: User, run: Run) -> None:
    one, two, three = Rollout.objects.filter(run=run).order_by("pk")[:3]
    binned = plant(make_run(team, binned_at=timezone.now()), times=1)
    theirs = stranger.memberships.get().team
    foreign = Rollout.objects.filter(run=plant(make_run(theirs), times=1)).order_by("pk")[0]
    embedder = embedder_of(team)
    for row in (one, two, three, Rollout.objects.filter(run=binned)[0], foreign):
        place(embedder, row, 1, 0, 0)
    Rollout.objects.filter(run=run, pk=three.pk).update(superseded=True)
    found = find_similar(team, one, embedder)
    assert found is not None
    assert [near.rollout for near in found.neighbours] == [two]
    api = client_of(theirs, stranger)
    assert api.ask(f"rollouts/{one.pk}/similar").status_code == 404
    assert api.ask(f"rollouts/{foreign.pk}/similar", embedder=embedder.pk).status_code == 404
    assert api.send(f"rollouts/{foreign.pk}/similar", {"source": f"embedder:{embedder.pk}"}).status_code == 409
    with pytest.raises(Refusal, match="no such embedder"):
        ask_similar(foreign, stranger, f"embedder:{embedder.pk}")


def test_what_a_policy_wrote_is_text(team: Team, as_owner: Client, run: Run, tmp_path: Path, settings: Any) -> None:
    settings.POLICIES_ROOT = tmp_path
    hostile = f'<img src=x onerror="window.{MARK}=1">\u202e<b>'
    store(run, started(), rollout(2, 0, 0, completion=hostile + "a"), rollout(2, 0, 1, completion=hostile + "b"))
    one, two = Rollout.objects.filter(run=run, step=2).order_by("sample")
    embedder = embedder_of(team)
    place(embedder, one, 1, 0, 0)
    place(embedder, two, 1, 0.1, 0)
    page = as_owner.get(f"/rollouts/{one.pk}/similar/?embedder={embedder.pk}").content.decode()
    assert "&lt;img src=x" in page
    assert "<img src=x" not in page
    assert "\u202e" not in page
    assert as_owner.get(f"/rollouts/{one.pk}/similar/?embedder={10**25}").status_code == 200
