"""Imports go one way: trainers never sees the lab, the lab sees of trainers only what needs no torch, and its rooms import only downwards."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Each wing imports only what stands before it, and so does each room of a wing.
WINGS = {
    "teams": ("accounts", "audit", "people"),
    "training": ("catalog", "workers", "runs", "ablations", "sweeps", "edits", "rewards"),
    "rollouts": ("trajectories", "annotations", "browse", "reading", "atlas", "comparison", "replay", "backtests", "doctor"),
    "labelling": ("labels", "quality"),
    "data": ("datasets", "tasks", "loop", "projects"),
    "watching": ("usage", "retention", "queue", "alerts", "reports"),
    "supervision": ("supervisor", "outside"),
    "models": ("policies", "playground", "branches", "embeddings", "bin"),
    "edges": ("operations", "api"),
}
ROOMS = [(wing, room) for wing, rooms in WINGS.items() for room in rooms]
BESIDE = {("catalog", "workers"), ("workers", "catalog")}
HEAVY = {"torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers"}
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


def test_the_lab_takes_from_trainers_only_the_contract() -> None:
    assert complaints("lab", lambda parts, name: name.split(".")[0] != "trainers" or name.startswith("trainers.contract.")) == []


def test_the_contract_knows_nothing_else_of_trainers_and_no_torch() -> None:
    def allowed(parts: tuple[str, ...], name: str) -> bool:
        return name.split(".")[0] not in HEAVY and (not name.startswith("trainers") or name.startswith("trainers.contract"))

    assert complaints("trainers/contract", allowed) == []


def test_the_lab_imports_no_training_library() -> None:
    assert complaints("lab", lambda parts, name: name.split(".")[0] not in HEAVY) == []


def test_rooms_import_only_what_stands_before_them() -> None:
    def allowed(parts: tuple[str, ...], name: str) -> bool:
        words = name.split(".")
        if words[0] != "lab" or parts[:2] not in ROOMS or ".".join(words[:2]) in TOP or words[1] == "lib":
            return True
        imported = tuple(words[1:3])
        return imported in ROOMS and ROOMS.index(imported) <= ROOMS.index(parts[:2]) and (parts[1], imported[1]) not in BESIDE

    assert complaints("lab", allowed) == []


def test_lib_imports_no_room() -> None:
    allowed = ("lab.lib.", *TOP)
    assert complaints("lab/lib", lambda parts, name: not name.startswith("lab.") or name.startswith(allowed)) == []


def test_every_room_has_its_place_in_a_wing() -> None:
    rooms = {(path.parts[-3], path.parts[-2]) for path in (ROOT / "lab").glob("*/*/__init__.py")}
    assert {(wing, room) for wing, room in rooms if wing != "lib"} == set(ROOMS)
    assert {path.parent.name for path in (ROOT / "lab").glob("*/__init__.py")} == {"lib", *WINGS}


@pytest.mark.parametrize("module", ["lab.asgi", "lab.celery"])
def test_importing_the_web_process_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; from django.urls import get_resolver; get_resolver().url_patterns; print(sorted(HEAVY & set(sys.modules)))"
    code = "HEAVY = {'torch', 'transformers', 'trl', 'datasets', 'peft', 'pandas'}; import django; django.setup(); " + code
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "lab.settings"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
