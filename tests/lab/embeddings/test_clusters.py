"""Clusters of a selection: drawn, embedded by the real command, grouped, read, filtered by, deleted; of one team only."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.http import QueryDict
from django.test import Client
from django.utils import timezone

from lab.lib.refusals import Refusal
from lab.models.embeddings import chores, jobs, requests, vectors
from lab.models.embeddings.distinctive_words import find_distinctive_words
from lab.models.embeddings.embedders import locate_embedder_files
from lab.models.embeddings.figures import describe_clusters, read_members
from lab.models.embeddings.grouping import group_vectors, measure_silhouette
from lab.models.embeddings.models import ClusterMember, Embedder, Embedding, EmbeddingJob, JobStatus
from lab.models.embeddings.sample import draw_sample, take_evenly
from lab.models.embeddings.vectors import EmbeddingError
from lab.rollouts.browse.pages import filter_matching_rollouts
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from lab.teams.people.departures import HOLDERS, HOOKS
from lab.training.runs.models import Checkpoint, Run, Status
from lab.watching.usage.storage_use import bytes_of_a_rollout
from tests.conftest import make_member
from tests.lab.api.conftest import client_of
from tests.lab.embeddings.planted import PLANTED, checkpoint, place_encoder, plant
from tests.lab.supervisor.spools import make_run


@pytest.fixture
def run(team: Team) -> Run:
    return plant(make_run(team, status=Status.FINISHED))


@pytest.fixture
def policies(tmp_path: Path, settings: Any) -> Path:
    settings.POLICIES_ROOT = tmp_path / "policies"
    return tmp_path / "policies"


@pytest.fixture
def encoder(policies: Path) -> str:
    return place_encoder(policies / "words")


def ask(team: Team, user: User | None, query: str = "", **fields: Any) -> EmbeddingJob:
    form = requests.ClusterForm(team, {"most": 100, "seed": 0, **fields})
    assert form.is_valid(), form.errors
    return form.ask(user, Selection.read(QueryDict(query)))


def clustered(team: Team, user: User | None, query: str = "", **fields: Any) -> EmbeddingJob:
    job = ask(team, user, query, **fields)
    jobs.run_embedding_job(job.pk)
    job.refresh_from_db()
    return job


def selected(team: Team, query: str) -> set[int]:
    return set(filter_matching_rollouts(team, Selection.read(QueryDict(query))).values_list("pk", flat=True))


@pytest.mark.feature(53)
def test_planted_groups_are_found_described_and_filtered_by(team: Team, owner: User, as_owner: Client, run: Run, encoder: str) -> None:
    job = clustered(team, owner, f"run={run.number}", source=f"encoder:{encoder}")
    assert (job.status, job.error, job.selected, job.sampled, job.done, job.cut) == (JobStatus.FINISHED, "", 36, 36, 36, 0)
    clusters = describe_clusters(job, read_members(job))
    assert [one.count for one in clusters] == [18, 12, 6]
    kinds = dict(Rollout.objects.filter(run=run).values_list("pk", "group"))
    members = [(row.cluster, kinds[row.rollout]) for row in read_members(job)]
    assert len(set(members)) == 3  # each cluster holds one planted group whole
    for figures, (group, plan) in zip(clusters, sorted(PLANTED.items(), key=lambda one: -one[1].count), strict=True):
        assert {kinds[pk] for pk in figures.nearest} == {group}
        assert figures.reward is not None
        assert figures.length is not None
        rewards = [plan.reward + 0.1 * (place % 2) for place in range(plan.count)]
        assert figures.reward.mean == pytest.approx(np.mean(rewards))
        assert figures.reward.half is not None
        assert figures.reward.half == pytest.approx(float(np.std(rewards, ddof=1)) / plan.count**0.5 * 2, rel=0.3)
        assert (figures.passed[0], figures.share) == (float(plan.reward > 0.5), plan.count / 36)
        assert figures.length.mean == 4
        assert set(plan.words[:1]) <= {one["word"] for one in figures.words}
        assert figures.first >= 1
        assert sum(int(bar.label.split(" ")[0]) for bar in figures.bars) == plan.count
        assert selected(team, figures.query) == {pk for pk, kind in kinds.items() if kind == group}
    assert selected(team, f"f=cluster:not:{job.pk}.1") == {pk for pk, kind in kinds.items() if kind != 0}
    page = as_owner.get(f"/rollouts/clusters/{job.pk}/").content.decode()
    assert page.count('class="card cluster series-') == 3
    assert f"?f=cluster%3Ais%3A{job.pk}.2" in page
    assert "by the highest mean silhouette" in page
    table = as_owner.get(f"/rollouts/?f=cluster:is:{job.pk}.2").content.decode()
    assert f"Cluster is {job.pk}.2" in table
    assert "<strong>12</strong> rollouts" in table
    points = as_owner.get(f"/rollouts/clusters/{job.pk}/map.json").json()
    assert Counter(points["clusters"]) == {1: 18, 2: 12, 3: 6}
    assert len(points["ids"]) == len(points["x"]) == len(points["y"]) == len(points["rewards"]) == 36


@pytest.mark.feature(53)
def test_the_policy_of_the_run_embeds_and_its_vectors_are_used_again(
    team: Team, owner: User, run: Run, policies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = plant(make_run(team, status=Status.FINISHED), times=1)
    for one in (run, other):
        checkpoint(one, 1)
    final = checkpoint(run, 2, final=True)
    job = clustered(team, owner)
    assert (job.status, job.error, job.sampled) == (JobStatus.FINISHED, "", 48)
    assert job.embedder is not None
    assert job.embedder.checkpoint == final, "the newest of the run with the most rollouts"
    assert (job.embedder.kind, job.embedder.dimension) == ("policy", 128)
    stored = Embedding.objects.filter(embedder=job.embedder)
    assert stored.count() == 48
    assert {len(bytes(row.vector)) for row in stored} == {256}
    assert bytes_of_a_rollout() > 0
    monkeypatch.setattr(vectors, "embed_missing", lambda *given: pytest.fail("embedded twice"))
    again = clustered(team, owner, clusters=3)
    assert (again.status, again.embedder, Embedding.objects.filter(embedder=job.embedder).count()) == (JobStatus.FINISHED, job.embedder, 48)
    assert len(set(again.members.values_list("cluster", flat=True))) == 3
    same = clustered(team, owner, clusters=3)
    assert list(same.members.order_by("rollout").values_list("rollout", "cluster", "x")) == list(
        again.members.order_by("rollout").values_list("rollout", "cluster", "x")
    )


def test_deleted_rollouts_vanish_with_their_vectors(team: Team, owner: User, as_owner: Client, run: Run, encoder: str) -> None:
    job = clustered(team, owner, source=f"encoder:{encoder}")
    gone = list(Rollout.objects.filter(run=run, group=1).values_list("pk", flat=True))
    Rollout.objects.filter(run=run, pk__in=gone).delete()
    assert not Embedding.across_teams.filter(rollout__in=gone).exists()
    assert [one.number for one in describe_clusters(job, read_members(job))] == [1, 3]
    assert "24 of 36 rollouts are left" in as_owner.get(f"/rollouts/clusters/{job.pk}/").content.decode().replace("\u202f", " ")
    Run.objects.filter(team=team, pk=run.pk).update(binned_at=timezone.now())
    assert read_members(job) == []
    assert "No rollout is left" in as_owner.get(f"/rollouts/clusters/{job.pk}/").content.decode()
    assert as_owner.get(f"/rollouts/clusters/{job.pk}/map.json").json()["ids"] == []


def test_another_team_finds_neither_clusters_nor_their_filter(team: Team, owner: User, stranger: User, run: Run, encoder: str) -> None:
    job = clustered(team, owner, source=f"encoder:{encoder}")
    theirs = stranger.memberships.get().team
    plant(make_run(theirs, status=Status.FINISHED), times=1)
    assert selected(theirs, f"f=cluster:is:{job.pk}.1") == set()
    assert client_of(theirs, stranger).ask(f"clusterings/{job.pk}").status_code == 404
    checkpoint(run, 1)
    with pytest.raises(Refusal, match="no such checkpoint"):
        requests.find_embedder(theirs, f"checkpoint:{Checkpoint.objects.get(run=run).pk}")
    mine = clustered(theirs, stranger, source=f"encoder:{encoder}")
    assert mine.sampled == 12
    assert Embedder.across_teams.count() == 2  # a team's vectors are its own


@pytest.mark.parametrize(
    ("query", "fields", "words"),
    [
        ("f=step:ge:99", {}, "The selection has 0 rollouts; clusters need at least 10."),
        ("", {}, "None of these runs has a checkpoint on disk."),
        ("re=(", {"source": "auto"}, "None of these runs"),  # a pattern that PostgreSQL cannot use counts as none
    ],
)
def test_what_cannot_be_clustered_says_why(team: Team, owner: User, run: Run, policies: Path, query: str, fields: dict[str, Any], words: str) -> None:
    job = clustered(team, owner, query, **fields)
    assert job.status == JobStatus.FAILED
    assert words in job.error


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"source": "checkpoint:12"}, "source", "no such checkpoint"),
        ({"source": "encoder:../words"}, "source", "no sentence encoder"),
        ({"source": "hub:x"}, "source", "cannot embed"),
        ({"clusters": 1}, "clusters", "greater than or equal to 2"),
        ({"most": 6000}, "most", "less than or equal to 5000"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
    ],
)
def test_the_form_names_the_field_and_the_fix(
    team: Team, as_owner: Client, run: Run, encoder: str, fields: dict[str, Any], field: str, words: str
) -> None:
    response = as_owner.post("/rollouts/clusters/", {"most": 100, "seed": 0, "selection": f"run={run.number}", **fields})
    assert response.status_code == 422
    form = response.context["form"]
    assert words in form.errors[field][0]
    assert not EmbeddingJob.across_teams.exists()


def test_a_team_has_so_many_jobs_open_and_a_form_sent_twice_asks_once(team: Team, owner: User, as_owner: Client, run: Run) -> None:
    form = {"most": "100", "seed": "0", "token": "t", "selection": f"run={run.number}"}
    first, again = (as_owner.post("/rollouts/clusters/", form) for _ in range(2))
    assert first.status_code == 302
    assert first.headers["Location"] == again.headers["Location"]
    for _ in range(requests.MOST_OPEN - 1):
        ask(team, owner)
    refused = as_owner.post("/rollouts/clusters/", {**form, "token": "u"})
    assert refused.status_code == 409
    assert "are open already" in refused.content.decode()
    assert "Waiting for a worker" in as_owner.get(first.headers["Location"]).content.decode()
    assert as_owner.get(first.headers["Location"] + "?part=state").status_code == 200


def test_a_job_that_is_stopped_or_deleted_ends_and_keeps_its_vectors(
    team: Team, owner: User, as_owner: Client, run: Run, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "CHUNK", 5)
    store = vectors.store_vectors

    def stop_after_the_first(*given: Any) -> None:
        store(*given)
        as_owner.post(f"/rollouts/embeddings/{job.pk}/stop/")

    monkeypatch.setattr(vectors, "store_vectors", stop_after_the_first)
    job = ask(team, owner, source=f"encoder:{encoder}")
    jobs.run_embedding_job(job.pk)
    job.refresh_from_db()
    assert job.status == JobStatus.STOPPED
    assert Embedding.objects.of(team).count() == 5
    assert "Run again" in as_owner.get(f"/rollouts/clusters/{job.pk}/").content.decode()
    monkeypatch.setattr(vectors, "store_vectors", store)
    as_owner.post(f"/rollouts/embeddings/{job.pk}/again/")
    jobs.run_embedding_job(job.pk)
    job.refresh_from_db()
    assert (job.status, job.done, Embedding.objects.of(team).count()) == (JobStatus.FINISHED, 36, 36)
    assert as_owner.post(f"/rollouts/clusters/{job.pk}/delete/").status_code == 302
    assert not EmbeddingJob.across_teams.exists()
    assert not ClusterMember.across_teams.exists()
    assert Embedding.objects.of(team).count() == 36
    [embedder] = Embedder.objects.of(team)
    as_owner.post(f"/rollouts/embedders/{embedder.pk}/delete/")
    assert Embedding.objects.of(team).count() == 0
    deleted = ask(team, owner, source=f"encoder:{encoder}")
    monkeypatch.setattr(jobs, "list_missing", lambda *given: EmbeddingJob.objects.of(team).delete() and [])
    jobs.run_embedding_job(deleted.pk)
    assert not EmbeddingJob.across_teams.exists()


def test_jobs_without_a_worker_fail_and_those_of_who_leaves_are_stopped(team: Team, owner: User) -> None:
    lost, waiting = ask(team, owner), ask(team, owner)
    assert lost.claim()
    EmbeddingJob.objects.same_row(lost).update(beat=timezone.now() - timedelta(hours=1))
    chores.sweep_embedding_jobs()
    lost.refresh_from_db()
    assert (lost.status, lost.error) == (JobStatus.FAILED, "The worker was lost. Run it again: vectors so far are kept.")
    assert [one.words for one in HOLDERS["embeddings"](team, owner)] == ["1 waiting embedding job is stopped."]
    HOOKS["embeddings"](team, owner)
    waiting.refresh_from_db()
    assert waiting.status == JobStatus.STOPPED


def test_files_that_changed_are_another_embedder(team: Team, policies: Path) -> None:
    name = place_encoder(policies / "words")
    first = requests.find_embedder(team, f"encoder:{name}")
    assert first is not None
    assert requests.find_embedder(team, f"encoder:{name}") == first
    assert locate_embedder_files(first) == policies / "words"
    (policies / "words" / "model.safetensors").touch()
    assert requests.find_embedder(team, f"encoder:{name}") != first
    with pytest.raises(Refusal, match="have changed since"):
        locate_embedder_files(first)


@pytest.mark.parametrize(
    "answer",
    [
        {"vectors": "AAAA", "dimension": 2},
        {"vectors": "AAAAAA==", "dimension": 0},
        {"vectors": "AHwAfA==", "dimension": 2},  # infinities
    ],
)
def test_an_answer_that_is_no_vectors_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(EmbeddingError):
        vectors.decode_vectors(answer, 1)


def test_a_process_that_ends_is_told_with_its_last_words(team: Team, owner: User, run: Run, encoder: str, policies: Path) -> None:
    job = ask(team, owner, source=f"encoder:{encoder}")
    (policies / "words" / "tokenizer.json").write_text("{")
    jobs.run_embedding_job(job.pk)
    job.refresh_from_db()
    assert job.status == JobStatus.FAILED
    assert "the encoder cannot be loaded" in job.error


@pytest.mark.feature(53)
def test_a_program_clusters_reads_and_deletes(team: Team, owner: User, run: Run, encoder: str) -> None:
    api = client_of(team, owner)
    body = {"selection": f"run={run.number}&f=step:ge:1", "source": f"encoder:{encoder}", "clusters": 3, "name": "three"}
    made = api.send("clusterings", body, **{"Idempotency-Key": "k"})
    assert made.status_code == 201, made.content
    assert api.send("clusterings", body, **{"Idempotency-Key": "k"}).json()["id"] == made.json()["id"]
    number = made.json()["id"]
    jobs.run_embedding_job(number)
    found = api.ask(f"clusterings/{number}").json()
    assert (found["status"], found["name"], [one["count"] for one in found["clusters"]]) == ("finished", "three", [18, 12, 6])
    assert api.ask("rollouts", f=found["clusters"][2]["filter"], limit=10).json()["items"][0]["group"] == 2
    assert [one["id"] for one in api.ask("clusterings").json()["items"]] == [number]
    [embedder] = api.ask("embedders").json()
    assert (embedder["vectors"], embedder["kind"]) == (36, "encoder")
    assert api.send(f"clusterings/{number}/retry").status_code == 409
    wrong = api.send("clusterings", {"selection": "f=nothing:is:1", "source": "encoder:x"})
    assert wrong.status_code == 422
    assert api.send(f"clusterings/{number}", method="delete").status_code == 204
    assert api.send(f"embedders/{embedder['id']}/vectors", method="delete").status_code == 204
    assert api.ask("embedders").json() == []
    assert api.ask("rollouts", f="cluster:is:x").status_code == 422


def test_a_sample_is_drawn_at_even_distances_and_always_the_same(team: Team, run: Run) -> None:
    assert take_evenly(list(range(100)), 5) == [0, 25, 50, 74, 99]
    assert take_evenly([3, 4], 5) == [3, 4]
    everything = list(Rollout.objects.filter(run=run).order_by("pk").values_list("pk", flat=True))
    drawn = draw_sample(team, Selection.read(QueryDict(f"run={run.number}")), 10)
    assert (drawn.selected, drawn.ids) == (36, take_evenly(everything, 10))
    matched = draw_sample(team, Selection.read(QueryDict("re=^cat")), 100)
    assert set(matched.ids) == set(Rollout.objects.filter(run=run, completion__startswith="cat").values_list("pk", flat=True))


def test_planted_vectors_are_grouped_and_the_silhouette_is_that_of_the_definition() -> None:
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(4, 80))
    kinds = rng.integers(0, 4, 400)
    data = (centres[kinds] + 0.05 * rng.normal(size=(400, 80)) + 5).astype(np.float32)
    groups = group_vectors(data, None, 0)
    assert max(groups.silhouettes, key=groups.silhouettes.__getitem__) == 4
    assert len(set(zip(groups.labels.tolist(), kinds.tolist(), strict=True))) == 4
    assert Counter(groups.labels.tolist()).most_common(1)[0][0] == 0
    assert (groups.labels == group_vectors(data, None, 0).labels).all()
    assert set(group_vectors(data, 7, 0).labels.tolist()) == set(range(7))
    same = group_vectors(np.ones((12, 5), dtype=np.float32), None, 0)
    assert (set(same.labels.tolist()), same.silhouettes) == ({0}, {})
    points = np.array([0.0, 1.0, 10.0])
    apart = np.abs(points[:, None] - points[None]).astype(np.float32)
    assert measure_silhouette(apart, np.array([0, 0, 1])) == pytest.approx(((10 - 1) / 10 + (9 - 1) / 9 + 0) / 3)


def test_distinctive_words_are_those_of_one_cluster() -> None:
    texts = ["the cat sat on the mat"] * 30 + ["the sum is eleven"] * 30
    first, second = find_distinctive_words(texts, [0] * 30 + [1] * 30)
    assert {one["word"] for one in first} == {"cat", "sat", "on", "mat"}
    assert {one["word"] for one in second} == {"sum", "is", "eleven"}
    assert (first[0]["share"], first[0]["rest"]) == (1.0, 0.0)
    assert find_distinctive_words(["a b"] * 10, [0] * 10) == [[]]


def test_viewers_read_and_start_nothing(team: Team, client: Client, run: Run) -> None:
    viewer = client
    viewer.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    shown = viewer.get(f"/rollouts/clusters/?run={run.number}")
    assert shown.status_code == 200
    assert "Find clusters</button>" not in shown.content.decode()
    assert viewer.post("/rollouts/clusters/", {"most": 10}).status_code == 403
