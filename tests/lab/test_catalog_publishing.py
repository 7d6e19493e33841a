"""A worker publishes the tasks of installed packages; a process that never sees the package offers them."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now
from pytest_django import Settings

from lab.training.catalog import published
from lab.training.catalog.catalog import load_catalog
from lab.training.catalog.models import PublishedCatalog
from tests.conftest import environment
from tests.trainers.test_tasks_registry import PLUGIN, ROOT

ADDED = {"tasks": [{"name": "echo", "title": "Echo"}], "methods": []}


@pytest.fixture(autouse=True)
def fresh_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "LOOK", published.AdditionsReader())


@pytest.mark.django_db(transaction=True)
def test_a_worker_with_an_installed_package_publishes_its_task(tmp_path: Path, run_folders: Path) -> None:
    (tmp_path / "echo_task.py").write_text(PLUGIN)
    info = tmp_path / "echo_task-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-task\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[policy_lab.tasks]\necho = echo_task:Echo\n")
    assert "echo" not in {task["name"] for task in load_catalog().tasks}
    code = "import django; django.setup(); from lab.training.catalog.published import publish_catalog; publish_catalog(); publish_catalog()"
    started = {**environment(run_folders), "PYTHONPATH": f"{ROOT}:{tmp_path}", "LAB_WORKER": "box:1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=started, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    [row] = PublishedCatalog.objects.all()
    assert (row.worker, [task["name"] for task in row.additions["tasks"]], row.additions["methods"]) == ("box:1", ["echo"], [])
    published.LOOK.again = 0.0
    assert load_catalog().task("echo")["difficulties"] == {"easy": "one word"}
    assert load_catalog().task("mini_gsm")


@pytest.mark.django_db
def test_what_workers_publish_is_put_together_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, title in enumerate(("Old", "New")):
        echo = {"name": "echo", "title": title}
        PublishedCatalog.objects.create(digest=str(number), worker="w", additions={"tasks": [echo, {"name": f"own{number}"}], "methods": []})
    found = load_catalog()
    assert (found.task("echo")["title"], found.task("own0")["name"], found.task("own1")["name"]) == ("New", "own0", "own1")
    assert load_catalog() is found, "put together once"
    published.LOOK.again = 0.0

    def away(*args: object) -> None:
        raise OSError("the database is away")

    monkeypatch.setattr(PublishedCatalog.objects, "order_by", away)
    assert load_catalog().task("echo")["title"] == "New", "the last known"


def test_without_a_database_there_is_what_comes_with_the_code() -> None:
    assert load_catalog().task("mini_gsm")


@pytest.mark.django_db
def test_what_no_worker_has_confirmed_for_a_day_is_forgotten(settings: Settings) -> None:
    PublishedCatalog.objects.create(digest="new", worker="w", additions=ADDED)
    PublishedCatalog.objects.create(digest="old", worker="w", additions=ADDED, confirmed_at=Now() - timedelta(days=2))
    published.CatalogPublisher().publish("w")  # nothing is installed here
    assert [row.digest for row in PublishedCatalog.objects.all()] == ["new"]


def test_every_worker_publishes(settings: Settings) -> None:
    assert "lab.training.catalog.published.publish_catalog" in settings.WORKER_CHORES["upkeep"]
