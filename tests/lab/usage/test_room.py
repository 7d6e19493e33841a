"""The storage quota holds uploads and frozen datasets before they are written, and two at once do not pass it together."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client

from lab.data.datasets import storage_room, uploads
from lab.data.datasets.freezing import build_version, freeze_next_version
from lab.data.datasets.models import Dataset, Version, VersionState
from lab.data.datasets.rules import DatasetRule
from lab.lib.numbers import format_byte_size
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team, User
from lab.training.runs.references import datasets_of
from lab.watching.usage.models import Quota, Storage
from lab.watching.usage.storage_use import dataset_bytes
from tests.lab.datasets.labelled import dataset_of, groups_of, judge_all, queue_of, run_with

CONTENT = b"".join(json.dumps({"prompt": f"{n}+1?", "chosen": str(n + 1), "rejected": "?"}).encode() + b"\n" for n in range(20))
FIX = "Delete checkpoints you no longer need, on the Models page, or ask an admin for more."
MIB = 1 << 20


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, settings: Any) -> None:
    settings.DATASETS_ROOT = tmp_path / "datasets"


@pytest.fixture
def dataset(team: Team, owner: User) -> Dataset:
    queue = queue_of(team, owner, groups_of(run_with(team)))
    judge_all(queue, [owner])
    return dataset_of(team, owner, queue)


def send(client: Client) -> Any:
    return client.post("/datasets/import/", {"file": SimpleUploadedFile("pairs.jsonl", CONTENT)})


def limit(team: Team, count: float, checkpoints: int = 0) -> None:
    Quota.objects.update_or_create(team=team, defaults={"storage_bytes": int(count)})
    Storage.objects.update_or_create(team=team, defaults={"checkpoints": checkpoints})


def files_of(team: Team) -> list[Path]:
    return [path for folder in (datasets_of(team), uploads.folder_of(team)) if folder.is_dir() for path in folder.iterdir()]


def test_an_upload_that_does_not_fit_is_refused_with_the_quota_and_the_fix(as_owner: Client, team: Team) -> None:
    limit(team, 3 * MIB, checkpoints=3 * MIB - 500)
    response = send(as_owner)
    assert response.status_code == 422
    assert (
        f"The team&#x27;s storage quota has 500 B left of 3.0 MiB and this needs {format_byte_size(len(CONTENT))}. {FIX}" in response.content.decode()
    )
    assert files_of(team) == []
    limit(team, 3 * MIB)
    assert send(as_owner).status_code == 302


def test_a_dataset_of_an_upload_is_refused_at_its_form_and_nothing_typed_is_lost(as_owner: Client, team: Team) -> None:
    address = send(as_owner)["Location"]
    limit(team, 100)
    form = {"upload": address.split("upload=")[1], "act": "make", "name": "Theirs, renamed"}
    response = as_owner.post("/datasets/import/", form)
    assert response.status_code == 422
    page = response.content.decode()
    assert "Nothing was imported. The team&#x27;s storage quota has 0 B left of 100 B." in page
    assert "Theirs, renamed" in page
    assert not Dataset.across_teams.exists()
    limit(team, len(CONTENT) + 1000)  # the upload counts once: it gives its place to the version
    assert as_owner.post("/datasets/import/", form).status_code == 302
    version = Version.across_teams.get()
    limit(team, dataset_bytes(team) + 10)
    build_version(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.FAILED
    assert "this needs" in version.error
    limit(team, 5000)
    assert version.retry()
    build_version(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.READY, version.error


def test_freezing_is_refused_when_it_is_full(as_owner: Client, team: Team, dataset: Dataset) -> None:
    limit(team, 3 * MIB, checkpoints=3 * MIB)
    response = as_owner.post(f"/datasets/{dataset.pk}/freeze/", {})
    page = response.content.decode()
    assert "Not frozen." in page
    assert f"storage: The team&#x27;s storage quota has 0 B left of 3.0 MiB. {FIX}" in page
    assert not Version.across_teams.exists()


def test_a_version_that_grows_past_it_is_not_written(team: Team, dataset: Dataset) -> None:
    limit(team, 100)
    version = freeze_next_version(dataset, None, DatasetRule(test_share=0))
    build_version(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.FAILED
    assert version.error.startswith("The team's storage quota has 100 B left of 100 B and this needs ")
    assert files_of(team) == []


def test_without_a_quota_there_is_room(team: Team) -> None:
    Storage.objects.create(team=team, checkpoints=1 << 50)
    Quota.objects.create(team=team, gpu_hours=0)
    with storage_room.reserve_storage(team, 1 << 50):
        pass


@pytest.mark.django_db(transaction=True)
def test_two_at_once_do_not_pass_it_together(team: Team) -> None:
    limit(team, 150)
    start, kept, refused = threading.Barrier(4), list[int](), list[str]()

    def write(number: int) -> None:
        start.wait()
        try:
            with storage_room.reserve_storage(team, 100):
                uploads.save_upload(team, f"{number}.jsonl", [b"x" * 100])
                kept.append(number)
        except Refusal as error:
            refused.append(str(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(kept), len(refused)) == (1, 3)
    assert dataset_bytes(team) == 100
