"""Files of npm packages: the locked archive and no other, one file of it, fetched once."""

import base64
import hashlib
import io
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.test import Client

from lab.lib import npm_packages
from lab.lib.npm_packages import FetchError, NpmPackage, extract_file, fetch_package, keep_archive, read_lock
from lab.lib.package_assets import LOCK


def pack(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


ARCHIVE = pack({"package/other.js": b"no", "../thing.min.js": b"no", "package/thing.min.js": b"yes"})
PACKAGE = NpmPackage("@scope/thing", "1.2.3", "thing.min.js", "sha512-" + base64.b64encode(hashlib.sha512(ARCHIVE).digest()).decode())


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    place = tmp_path / "registry" / "@scope" / "thing" / "-"
    place.mkdir(parents=True)
    (place / "thing-1.2.3.tgz").write_bytes(ARCHIVE)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "registry"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_one_file_is_fetched_once_under_a_name_with_its_version(registry: str, tmp_path: Path) -> None:
    assert fetch_package(PACKAGE, tmp_path / "files", registry) is True
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "files").iterdir()] == [("thing-1.2.3.min.js", b"yes")]
    assert fetch_package(PACKAGE, tmp_path / "files", "http://127.0.0.1:1") is False


def test_another_archive_is_refused(registry: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="the lock says sha512-AAAA"):
        fetch_package(replace(PACKAGE, integrity="sha512-AAAA"), tmp_path / "files", registry)
    assert not (tmp_path / "files").exists()


def test_a_file_that_is_not_in_the_package_is_named() -> None:
    with pytest.raises(FetchError, match=r"has no file absent\.js"):
        extract_file(ARCHIVE, replace(PACKAGE, file="absent.js"))


def test_a_registry_that_does_not_answer_is_said_to_have_another_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(npm_packages.time, "sleep", lambda seconds: None)
    with pytest.raises(FetchError, match="NPM_CONFIG_REGISTRY=https"):
        fetch_package(PACKAGE, tmp_path, "http://127.0.0.1:1")


def test_a_larger_archive_is_not_read_to_its_end(registry: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(npm_packages, "MOST_BYTES", 10)
    with pytest.raises(FetchError, match="more than"):
        fetch_package(PACKAGE, tmp_path, registry)


@pytest.mark.parametrize("line", ["name 1.0.0 file.js", "name 1.0.0 file.js md5-AAAA", "name 1.0.0 ../file.js sha512-AAAA"])
def test_a_line_that_locks_nothing_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "npm.lock").write_text(f"# of a test\n{line}\n")
    with pytest.raises(ValueError, match=r"npm\.lock, package 1"):
        read_lock(tmp_path / "npm.lock")


def test_browsers_keep_what_says_its_version_for_good(client: Client, db: None) -> None:
    for package in read_lock(LOCK):
        assert "immutable" in client.get(f"/static/vendor/{package.served_name}")["Cache-Control"]
    assert client.get("/static/base/lab.css")["Cache-Control"] == "max-age=60, public"


@pytest.mark.feature(88)
def test_archives_kept_in_a_folder_are_a_registry(registry: str, tmp_path: Path) -> None:
    keep_archive(PACKAGE, tmp_path / "bundle", registry)
    assert fetch_package(PACKAGE, tmp_path / "files", (tmp_path / "bundle").as_uri()) is True
    assert (tmp_path / "files" / "thing-1.2.3.min.js").read_bytes() == b"yes"
    with pytest.raises(FetchError, match="the lock says"):
        keep_archive(replace(PACKAGE, integrity="sha512-AAAA"), tmp_path / "other", registry)
    assert not (tmp_path / "other").exists()


@pytest.mark.feature(88)
def test_a_bundle_is_installed_without_an_index(tmp_path: Path) -> None:
    """What make would run, in a clone and in an unpacked bundle."""
    root = Path(LOCK).resolve().parent
    for name in ("Makefile", "requirements.in", "requirements.lock", "npm.lock"):
        shutil.copy(root / name, tmp_path)

    def planned() -> str:
        return subprocess.run(["make", "-n", "setup"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "--no-index" not in planned()
    (tmp_path / "bundle" / "wheels").mkdir(parents=True)
    installs = [line for line in planned().splitlines() if "pip install" in line]
    assert len(installs) == 2
    assert all("--no-index --find-links bundle/wheels" in line for line in installs)
