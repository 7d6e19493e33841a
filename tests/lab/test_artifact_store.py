"""Folders in a store: below a path, and in a bucket of a server that speaks S3's protocol."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.lib import artifact_cache
from lab.lib.artifact_cache import ArtifactCache, link_folder
from lab.lib.artifact_store import (
    MANIFEST,
    PIECE,
    ArtifactStore,
    DamagedError,
    StoreError,
    Watch,
    decode_manifest,
    find_url_problem,
    list_plain_files,
)

NAME = "runs/8/final/attempt-1"


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    """A bucket of a server in a thread of this process. Its address and keys come from the environment, as an operator gives them."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    pytest.importorskip("s3fs")
    server.start()
    host, port = server.get_host_and_port()
    given = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "not a secret"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        store = ArtifactStore("s3://lab-files/team")
        store.filesystem.mkdir("lab-files")
        yield "s3://lab-files/team"
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.stop()


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ArtifactStore]:
    made = ArtifactStore(f"file://{tmp_path}/store" if request.param == "file" else request.getfixturevalue("s3_url"))
    yield made
    made.delete_folder("runs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Weights of more than one piece, a file in a folder, an empty one, and a link, which no store gets."""
    folder = tmp_path / "final"
    (folder / "inside").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(os.urandom(PIECE + 17))
    (folder / "inside/config.json").write_text("{}")
    (folder / "empty").touch()
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in list_plain_files(folder)}


def test_a_folder_comes_back_as_it_was_put(store: ArtifactStore, folder: Path, tmp_path: Path) -> None:
    sent: list[int] = []
    manifest = store.put_folder(folder, NAME, Watch(count=sent.append))
    assert (manifest.size, sum(sent)) == (PIECE + 19, PIECE + 19)
    assert store.read_manifest(NAME) == manifest
    store.fetch_folder(NAME, tmp_path / "back/final", manifest)
    assert contents(tmp_path / "back/final") == contents(folder)
    assert sorted(contents(folder)) == ["empty", "inside/config.json", "model.safetensors"]
    assert store.list_folders("runs") == [NAME]
    with store.open_file(NAME, "model.safetensors") as file:
        file.seek(PIECE)
        assert file.read() == (folder / "model.safetensors").read_bytes()[PIECE:]


def test_what_is_whole_is_not_sent_again(store: ArtifactStore, folder: Path) -> None:
    first = store.put_folder(folder, NAME)
    (folder / "empty").write_text("later")
    assert store.put_folder(folder, NAME, Watch(count=lambda size: pytest.fail("was sent"))) == first


def test_without_its_manifest_a_folder_is_not_there(store: ArtifactStore, folder: Path) -> None:
    def break_off(size: int) -> None:
        raise StoreError("the line is cut")

    with pytest.raises(StoreError, match="the line is cut"):
        store.put_folder(folder, NAME, Watch(count=break_off))
    assert store.read_manifest(NAME) is None
    assert store.list_folders("runs") == []
    assert store.put_folder(folder, NAME).size == PIECE + 19
    store.delete_folder(NAME)
    assert store.read_manifest(NAME) is None
    assert store.filesystem.find(store.locate("runs")) == []
    store.delete_folder(NAME)  # what is gone already is no error


def test_what_was_changed_in_the_store_is_noticed(store: ArtifactStore, folder: Path, tmp_path: Path) -> None:
    manifest = store.put_folder(folder, NAME)
    store.filesystem.pipe_file(store.locate(f"{NAME}/inside/config.json"), b"[]")
    with pytest.raises(DamagedError, match="is not what its manifest says"):
        store.fetch_folder(NAME, tmp_path / "back", manifest)
    assert not list(tmp_path.glob("*back*"))


def test_an_address_gives_the_file_where_the_store_has_addresses(store: ArtifactStore, folder: Path) -> None:
    import requests

    store.put_folder(folder, NAME)
    address = store.sign_file(NAME, "inside/config.json", 60)
    if store.url.startswith("file"):
        assert address == ""
    else:
        assert requests.get(address, timeout=10).text == "{}"


def test_names_that_lead_out_are_refused(tmp_path: Path) -> None:
    store = ArtifactStore(f"file://{tmp_path}/store")
    for name in ("../x", "a//b", "/etc", "a/./b", "a/..", "*", "a/b?", "x\0", "\u202ex", "", "a" * 300, "/".join("abcdefghijklm")):
        with pytest.raises(StoreError):
            store.locate(name)
    hostile = b'{"files":[{"name":"../../.ssh/authorized_keys","size":1,"sha256":""}]}'
    for data in (hostile, b"[]", b"{", b'{"files":[{"name":"a","size":-1,"sha256":""}]}', hostile.replace(b"../../.ssh/", b"/")):
        with pytest.raises(DamagedError):
            decode_manifest(data, NAME)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("/srv/store", "is no URL"),
        ("s3://", "is no URL"),
        ("memory://x", "names no store"),
        ("nowhere://x", "names no store"),
        ("abfs://container/x", "pip install adlfs"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_what_to_do(url: str, words: str) -> None:
    assert words in find_url_problem(url)
    assert find_url_problem("file:///srv/store") == ""


@pytest.fixture
def cached(tmp_path: Path) -> Callable[[int], ArtifactCache]:
    return lambda limit: ArtifactCache(tmp_path / "cache", limit)


def test_the_cache_keeps_within_its_size_and_never_takes_what_was_just_asked_for(
    tmp_path: Path, cached: Callable[[int], ArtifactCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, cache = ArtifactStore(f"file://{tmp_path}/store"), cached(250)
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights.safetensors").write_text(name * 100)
        (tmp_path / name / "optimizer.pt").write_bytes(bytes(1000))
        store.put_folder(tmp_path / name, name)
    weights = lambda name: name.endswith(".safetensors")  # noqa: E731
    first = cache.fetch(store, "a", weights)
    assert os.listdir(first) == ["weights.safetensors"]
    os.utime(first, (1, 1))
    assert cache.fetch(store, "b", weights) != first
    link_folder(first, tmp_path / "linked")
    with pytest.raises(StoreError, match="raise LAB_STORE_CACHE_GB"):
        cache.fetch(store, "a")  # larger than all of it
    third = cache.fetch(store, "c", weights)
    assert (first.exists(), third.is_dir(), (tmp_path / "linked/weights.safetensors").read_text()) == (False, True, "a" * 100)
    with pytest.raises(StoreError, match="is in use"):
        cache.fetch(store, "a", weights)
    monkeypatch.setattr(artifact_cache, "USED_SECONDS", -1.0)
    assert cache.fetch(store, "a", weights) == first
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreError, match="is not in the store"):
        cache.fetch(store, "a", weights)


def test_a_manifest_of_ones_own_is_no_file_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).touch()
    with pytest.raises(StoreError, match="rename it"):
        list_plain_files(tmp_path)
