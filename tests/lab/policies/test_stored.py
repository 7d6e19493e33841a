"""Policies whose files only the store has: seen, downloaded, opened by a worker, and deleted for good."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.data.loop.checkpoints import list_policy_candidates
from lab.lib.artifact_store import QUIET, ArtifactStore
from lab.models.bin import chores as bin_chores
from lab.models.policies import checkpoint_paths, removal
from lab.models.policies.models import Removal
from lab.supervision.supervisor.uploads import LeftBehind, upload_run
from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.models import Checkpoint, Run
from lab.training.runs.store_deletions import delete_from_store
from lab.training.runs.stored_checkpoints import find_local_folder, is_policy_elsewhere
from tests.lab.policies.making import at, final_of, trained, write_policy

pytestmark = pytest.mark.django_db


@pytest.fixture
def store(settings: Any, tmp_path: Path) -> ArtifactStore:
    settings.STORE_URL = f"file://{tmp_path}/store"
    settings.STORE_CACHE = tmp_path / "cache"
    return ArtifactStore(settings.STORE_URL)


@pytest.fixture
def run(store: ArtifactStore, team: Team, owner: User) -> Run:
    """Trained and stored by a worker elsewhere; this machine has nothing of it."""
    run = trained(team, owner)
    Run.across_teams.filter(pk=run.pk).update(attempt=0)
    run.refresh_from_db()
    assert upload_run(run, QUIET)
    shutil.rmtree(run.folder)
    return run


def unpack(response: Any) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(response.streaming_content))) as archive:
        return {member.name.partition("/")[2]: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


@pytest.mark.parametrize("page", ["/policies/", "/playground/", "/policies/retention/"])
def test_checkpoints_that_are_nowhere_cost_no_query_each(as_owner: Client, run: Run, page: str) -> None:
    def count_queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert as_owner.get(page).status_code == 200
        return len(captured)

    def add_checkpoints(steps: range) -> None:
        row = {"run": run, "attempt": 1, "bytes": 1, "created_at": timezone.now()}
        Checkpoint.objects.bulk_create(Checkpoint(step=step, path=f"checkpoints/checkpoint-{step}", **row) for step in steps)

    add_checkpoints(range(1, 2))
    count_queries()
    before = count_queries()
    add_checkpoints(range(2, 30))
    assert count_queries() == before


def test_it_is_listed_offered_and_downloaded_from_the_store(as_owner: Client, run: Run) -> None:
    page = as_owner.get("/policies/").content.decode()
    assert "2 on disk" not in page or "step 100" in page
    assert [candidate.checkpoint for candidate in list_policy_candidates(run)] == ["start", 50, "final"]
    final = final_of(run)
    files = unpack(as_owner.get(f"/policies/{final.pk}/download/"))
    assert sorted(files) == ["SHA256SUMS", "chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    for line in files["SHA256SUMS"].decode().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(files[name]).hexdigest() == digest
    shown = as_owner.get(f"/policies/{final.pk}/files/").content.decode()
    assert hashlib.sha256(files["model.safetensors"]).hexdigest() in shown
    assert "no longer on disk" not in as_owner.get(f"/policies/{final.pk}/").content.decode()
    assert is_policy_elsewhere({"kind": "run", "folder": str(run.folder), "checkpoint": "final"})
    assert not is_policy_elsewhere({"kind": "run", "folder": str(run.folder), "checkpoint": 7})


def test_one_file_comes_by_an_address_of_the_store_or_streamed(as_owner: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    final = final_of(run)
    address = f"/policies/{final.pk}/download/?file=model.safetensors"
    assert address in as_owner.get(f"/policies/{final.pk}/files/").content.decode()
    streamed = as_owner.get(address)
    assert len(b"".join(streamed.streaming_content)) == int(streamed["Content-Length"]) > 0
    asked: list[tuple[str, str, int]] = []

    def sign(store: ArtifactStore, name: str, file: str, seconds: int) -> str:
        asked.append((name, file, seconds))
        return "https://bucket.example.org/signed"

    monkeypatch.setattr(ArtifactStore, "sign_file", sign)
    assert as_owner.get(address)["Location"] == "https://bucket.example.org/signed"
    assert asked == [(f"runs/{run.pk}/final/attempt-1", "model.safetensors", 600)]
    assert "It has no such file" in as_owner.get(address.replace("model", "../model"), follow=True).content.decode()
    assert Entry.across_teams.filter(action="policy.download", details__file="model.safetensors").count() == 2


def test_a_worker_opens_it_in_its_cache_without_what_only_training_needs(run: Run, store: ArtifactStore, settings: Any) -> None:
    folder = checkpoint_paths.open_checkpoint(at(run, 50))
    assert folder.is_relative_to(settings.STORE_CACHE)
    assert sorted(file.name for file in folder.iterdir()) == [
        "chat_template.jinja",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "trainer_state.json",
    ]
    assert checkpoint_paths.open_checkpoint(at(run, 50)) == folder
    shutil.rmtree(settings.STORE_CACHE)
    store.filesystem.pipe_file(store.locate(f"runs/{run.pk}/checkpoints/checkpoint-50/attempt-1/config.json"), b"{}")
    with pytest.raises(checkpoint_paths.FilesMissing, match="is not what its manifest says"):
        checkpoint_paths.open_checkpoint(at(run, 50))


def test_deleting_a_checkpoint_and_a_run_takes_them_from_the_store(run: Run, store: ArtifactStore, team: Team, owner: User) -> None:
    checkpoint = at(run, 50)
    removal.request_removal(team, owner, checkpoint)
    Removal.objects.filter(checkpoint=checkpoint).update(due_at=run.created_at)
    assert removal.carry_out() == 1
    assert not checkpoint_paths.has_checkpoint_files(at(run, 50))
    assert f"runs/{run.pk}/checkpoints/checkpoint-50/attempt-1" in store.list_folders("runs")  # until a worker comes by
    delete_from_store()
    assert store.list_folders("runs") == [f"runs/{run.pk}/checkpoints/checkpoint-100/attempt-1", f"runs/{run.pk}/final/attempt-1"]
    run.folder.mkdir(parents=True)  # what this machine has of the run goes too
    Run.across_teams.filter(pk=run.pk).update(purging=True, binned_at=run.created_at)
    assert bin_chores.purge_run(run.pk)
    run.folder.mkdir(parents=True, exist_ok=True)
    delete_from_store()
    assert (store.list_folders("runs"), run.folder.exists()) == ([], False)


def test_what_was_deleted_is_not_stored_again_by_a_machine_that_still_has_it(run: Run, store: ArtifactStore, team: Team, owner: User) -> None:
    write_policy(run.folder / "checkpoints/checkpoint-50")  # as the machine that trained has it
    checkpoint = at(run, 50)
    removal.forget_stored_files(checkpoint)
    delete_from_store()
    LeftBehind().upload()
    assert (at(run, 50).stored_at, find_local_folder(checkpoint)) == (None, None)
    assert f"runs/{run.pk}/checkpoints/checkpoint-50/attempt-1" not in store.list_folders("runs")
