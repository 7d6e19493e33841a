"""Imports go one way: trainers never sees the lab, the lab sees of trainers only what needs no torch, and its rooms import only downwards."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDER = ("lib", "accounts", "audit", "people", "catalog", "workers", "runs", "ablations", "trajectories", "annotations", "browse", "reading", "atlas")
ORDER += ("comparison", "replay", "doctor", "labels", "quality", "datasets", "loop", "projects", "usage", "alerts", "policies")
ORDER += ("supervisor", "playground", "outside", "operations", "api")  # each imports only what stands before it
BESIDE = {("catalog", "workers"), ("workers", "catalog")}
LIGHT = {"spec", "hyperparameters", "events", "spool", "arrays", "stacking", "policy_folder"}
TOP = {"lab.settings", "lab.celery", "lab.embedded"}  # belong to no room


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import anywhere in the file; ``from a import b`` counts as a.b."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno} imports relatively"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def files(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert len(found) > 5
    return found


def complaints(package: str, allowed: Callable[[tuple[str, ...], str], bool]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in files(package)
        for line, name in imports_of(path)
        if not allowed(path.relative_to(ROOT / package).parts, name)
    ]


def test_trainers_knows_neither_the_lab_nor_django_nor_celery() -> None:
    foreign = {"lab", "django", "celery", "channels", "kombu", "psycopg", "redis"}
    assert complaints("trainers", lambda parts, name: name.split(".")[0] not in foreign) == []


def test_the_lab_takes_from_trainers_only_what_needs_no_torch() -> None:
    def allowed(parts: tuple[str, ...], name: str) -> bool:
        words = name.split(".")
        return words[0] != "trainers" or words[1] in LIGHT

    assert complaints("lab", allowed) == []


def test_the_lab_imports_no_training_library() -> None:
    heavy = {"torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers", "plotly"}
    assert complaints("lab", lambda parts, name: name.split(".")[0] not in heavy) == []


def test_rooms_import_only_downwards() -> None:
    def allowed(parts: tuple[str, ...], name: str) -> bool:
        words = name.split(".")
        if words[0] != "lab" or len(parts) < 2 or parts[0] not in ORDER or ".".join(words[:2]) in TOP:
            return True
        if len(words) < 2 or words[1] not in ORDER:
            return False
        return ORDER.index(words[1]) <= ORDER.index(parts[0]) and (parts[0], words[1]) not in BESIDE

    assert complaints("lab", allowed) == []


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {path.parent.name for path in (ROOT / "lab").glob("*/__init__.py")}
    assert rooms == set(ORDER)


@pytest.mark.parametrize("module", ["lab.asgi", "lab.celery"])
def test_importing_the_web_process_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; from django.urls import get_resolver; get_resolver().url_patterns; print(sorted(HEAVY & set(sys.modules)))"
    code = "HEAVY = {'torch', 'transformers', 'trl', 'datasets', 'peft', 'pandas', 'plotly'}; import django; django.setup(); " + code
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "lab.settings"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
