"""Collected static files: hashed names that agree with each other, in templates, in imports between modules and in style sheets."""

import json
import os
import posixpath
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.staticfiles.storage import staticfiles_storage
from pytest_django import Settings

from lab.labelling.labels.models import Kind

ROOT = Path(__file__).resolve().parents[2]
FROM = r"""^(?:import|export)\b(?:[^"';(]*\bfrom)?\s*["']([^"']+)["'];"""
IMPORT = re.compile(FROM + r"""|\bimport\(["']([^"']+)["']\)|@import url\(["']([^"']+)["']\)""", re.M)
SCRIPT = re.compile(r"""<script([^>]*) src="\{% static '([^']+)' %\}"([^>]*)>""")
STATIC = re.compile(r"""\{% static '([^']+)'""")


@pytest.fixture(scope="module")
def static_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the line of the Dockerfile, run here, collects the static files: without services, and told where."""
    root = tmp_path_factory.mktemp("static")
    found = re.search(r"^ENV LAB_STATIC=(\S+)\nRUN (.*) python (manage\.py collectstatic .*)$", (ROOT / "Dockerfile").read_text(), re.M)
    assert found
    folder, environment, command = found.groups()
    assert folder.startswith("/")
    variables = dict(one.split("=", 1) for one in environment.split())
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    subprocess.run([sys.executable, *command.split()], cwd=ROOT, env=kept | variables | {"LAB_STATIC": str(root)}, check=True)
    return root


@pytest.fixture
def collected(static_root: Path, settings: Settings) -> dict[str, str]:
    """Name → hashed name, of files under the root of static files."""
    settings.STATIC_ROOT = static_root
    settings.STORAGES = {**settings.STORAGES, "staticfiles": {"BACKEND": "lab.lib.static_names.HashedStaticFiles"}}
    names: dict[str, str] = json.loads((static_root / "staticfiles.json").read_text())["paths"]
    return names


def imports_of(path: Path) -> list[str]:
    return [next(filter(None, found)) for found in IMPORT.findall(path.read_text())]


def test_what_files_import_of_each_other_is_there_under_the_one_hashed_name(collected: dict[str, str], static_root: Path) -> None:
    own = [name for name in collected if (ROOT / "static" / name).is_file() and name.endswith((".js", ".css"))]
    assert len(own) > 100
    wrong, count = [], 0
    for name in own:
        hashed = collected[name]
        written, shown = imports_of(ROOT / "static" / name), imports_of(static_root / hashed)
        count += len(written)
        for source, target in zip(written, shown, strict=True):
            wanted = collected.get(posixpath.normpath(posixpath.join(posixpath.dirname(name), source)))
            found = posixpath.normpath(posixpath.join(posixpath.dirname(hashed), target))
            if wanted != found or not (static_root / found).is_file():
                wrong.append(f"{name}: {source} became {target}")
    assert wrong == []
    assert count > 150


def test_templates_name_files_that_are_there(collected: dict[str, str]) -> None:
    named = {name for path in (ROOT / "templates").rglob("*.html") for name in STATIC.findall(path.read_text())}
    assert len(named) > 60
    assert named - set(collected) == set()
    assert staticfiles_storage.url("base/page.js") == f"/static/{collected['base/page.js']}" != "/static/base/page.js"


def test_pages_start_modules_and_every_script_is_used() -> None:
    started, plain = set(), set()
    for path in (ROOT / "templates").rglob("*.html"):
        for before, name, after in SCRIPT.findall(path.read_text()):
            (started if 'type="module"' in before + after else plain).add(name)
    scripts = {path.relative_to(ROOT / "static").as_posix() for path in (ROOT / "static").rglob("*.js")}
    assert plain & scripts == {"base/theme.js"}  # before anything is drawn
    waiting = [*started, *(f"labelling/{kind}.js" for kind in Kind)]
    used: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in used:
            continue
        used.add(name)
        waiting += [posixpath.normpath(posixpath.join(posixpath.dirname(name), one)) for one in imports_of(ROOT / "static" / name)]
    assert used == scripts - {"base/theme.js"}


def test_every_style_sheet_is_used() -> None:
    named = {name for path in (ROOT / "templates").rglob("*.html") for name in STATIC.findall(path.read_text())}
    sheets = {path.relative_to(ROOT / "static").as_posix() for path in (ROOT / "static").rglob("*.css")}
    assert sheets - named == {"team/operators.css"}  # the settings hand it to /admin/
