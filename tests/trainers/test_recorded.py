"""What an attempt records of itself: the commit of its code, the packages, hashes of data and weights."""

import json
import random
import shutil
import subprocess
import sys

import pytest

from tests.trainers.conftest import ensure_cold_start
from trainers.attempt import inputs
from trainers.attempt.code_version import ROOT, STAMP, find_code_version
from trainers.attempt.environment import describe_environment, list_packages, strip_credentials
from trainers.contract.events import Code, Message
from trainers.data.identity import example_digest
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import MiniGsm
from trainers.tasks.registry import find_task_distribution


def git(folder, *words):
    names = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", str(folder), *names, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "clone"
    (folder / "trainers").mkdir(parents=True)
    git(folder, "init", "-q")
    for name in (".gitattributes", str(STAMP)):
        shutil.copy(ROOT / name, folder / name)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    return folder


@pytest.mark.feature(82)
def test_a_clone_says_its_commit_and_whether_anything_was_changed(clone):
    head = git(clone, "rev-parse", "HEAD")
    assert find_code_version(clone) == Code(head, False, "git")
    (clone / "task.py").write_text("new, not added")
    assert find_code_version(clone) == Code(head, True, "git")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "two")
    assert find_code_version(clone) == Code(git(clone, "rev-parse", "HEAD"), False, "git")
    assert find_code_version(clone / "trainers").changed is False  # a folder of it, whatever its other folders hold


def test_an_archive_of_the_commit_says_it_without_git(clone, tmp_path):
    """As ``make bundle`` packs it; the clone's own file is a placeholder."""
    (tmp_path / "unpacked").mkdir()
    packed = subprocess.run(["git", "-C", str(clone), "archive", "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tmp_path / "unpacked")], input=packed, check=True)
    assert find_code_version(tmp_path / "unpacked") == Code(git(clone, "rev-parse", "HEAD"), None, "release")


def test_where_nothing_says_the_commit_there_is_none(clone, tmp_path, monkeypatch):
    (clone / "var").mkdir()
    (clone / "var/notes.txt").write_text("in somebody's clone, but no part of it")
    assert find_code_version(clone / "var") == Code()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_code_version(clone) == Code()  # without git, and the placeholder is no commit
    assert find_code_version(tmp_path / "gone") == Code()


def test_another_repository_named_by_the_environment_is_not_asked(clone, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    assert find_code_version(clone).commit == git(clone, "-c", "core.bare=false", f"--git-dir={clone}/.git", "rev-parse", "HEAD")


def install(folder, name, version, **origin):
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: of nobody\n")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin))
    return info


@pytest.mark.feature(82)
def test_packages_are_listed_with_where_they_came_from_and_without_credentials(tmp_path, monkeypatch, clone):
    commit = "0123456789abcdef0123456789abcdef01234567"
    install(tmp_path, "AAA-first", "1.0")
    vcs = {"vcs": "git", "commit_id": commit, "requested_revision": "main"}
    install(tmp_path, "aaa-second", "2.0", url="https://ada:ghp_token@github.com/ada/second.git?token=x", vcs_info=vcs)
    install(tmp_path, "aaa-third", "3.0", url=clone.as_uri(), dir_info={"editable": True})
    (tmp_path / "aaa_broken-1.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {package.name: package for package in list_packages()}
    assert list(found)[:3] == ["AAA-first", "aaa-second", "aaa-third"]
    assert (found["AAA-first"].version, found["AAA-first"].url) == ("1.0", "")
    assert (found["aaa-second"].url, found["aaa-second"].commit) == ("https://github.com/ada/second.git", commit)
    third = found["aaa-third"]
    assert (third.editable, third.commit, third.changed) == (True, git(clone, "rev-parse", "HEAD"), False)
    listed = subprocess.run([sys.executable, "-m", "pip", "list", "--format=json"], capture_output=True, check=True, cwd=ROOT).stdout
    assert {package["name"]: package["version"] for package in json.loads(listed)}.items() <= {
        name: package.version for name, package in found.items()
    }.items()


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://ghp_token@github.com/a/b.git", "https://github.com/a/b.git"),
        ("git+ssh://git:secret@host/a.git", "git+ssh://git@host/a.git"),
        ("ssh://git@host:22/a.git", "ssh://git@host:22/a.git"),
        ("https://host/a.whl?sig=1#egg=a", "https://host/a.whl#egg=a"),
        ("file:///srv/tasks", "file:///srv/tasks"),
    ],
)
def test_addresses_keep_no_credentials(url, kept):
    assert strip_credentials(url) == kept


def test_the_package_of_a_task_is_named(tmp_path, monkeypatch):
    source = "from trainers.tasks.mini_gsm import MiniGsm\n\nclass Own(MiniGsm):\n    name = 'own'\n"
    (tmp_path / "own_task.py").write_text(source)
    (install(tmp_path, "own-task", "4.2") / "entry_points.txt").write_text("[policy_lab.tasks]\nown = own_task:Own\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from own_task import Own  # type: ignore[import-not-found]

    told = describe_environment(Code(), find_task_distribution(Own())).task
    assert (told.name, told.version) == ("own-task", "4.2")
    assert find_task_distribution(MiniGsm()) is None


def test_a_changed_example_changes_the_hash_of_the_data():
    examples = MiniGsm().examples("train", 20, 1, "easy")
    whole = inputs.digest_rows(map(example_digest, examples))
    assert whole == inputs.digest_rows(map(example_digest, MiniGsm().examples("train", 20, 1, "easy")))
    changed = [*examples[:19], Example(examples[19].prompt, examples[19].reference + "0", examples[19].data)]
    random.Random(0).shuffle(examples)
    others = {inputs.digest_rows(map(example_digest, other)) for other in (examples, changed, changed[:19])}
    assert whole not in others
    assert len(others) == 3


def test_rows_that_are_no_json_have_no_hash_and_end_nothing():
    assert inputs.digest_rows(map(example_digest, [Example([Message("user", "?")], "1", {"callable": print})])) == ""


def test_weights_are_hashed_as_sha256sum_does():
    folder = ensure_cold_start()
    command = ["sh", "-c", "LC_ALL=C sha256sum *.safetensors | sha256sum"]
    expected = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split()[0]
    assert inputs.digest_weights(folder) == expected
    assert inputs.digest_weights(folder, most=10) == ""


def test_a_policy_of_the_hub_is_known_by_its_commit(tmp_path):
    assert inputs.find_hub_revision(tmp_path / "models--a--b/snapshots/abc123") == "abc123"
    assert inputs.find_hub_revision(tmp_path / "run/start") == ""
