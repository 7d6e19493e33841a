"""Collected static files: hashed names that agree with each other, in templates, in imports between modules and in style sheets."""

import json
import posixpath
import re
from pathlib import Path

import pytest
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command
from pytest_django import Settings

from lab.labelling.labels.models import Kind

ROOT = Path(__file__).resolve().parents[2]
FROM = r"""^(?:import|export)\b(?:[^"';(]*\bfrom)?\s*["']([^"']+)["'];"""
IMPORT = re.compile(FROM + r"""|\bimport\(["']([^"']+)["']\)|@import url\(["']([^"']+)["']\)""", re.M)
SCRIPT = re.compile(r"""<script([^>]*) src="\{% static '([^']+)' %\}"([^>]*)>""")
STATIC = re.compile(r"""\{% static '([^']+)'""")


@pytest.fixture
def collected(settings: Settings, tmp_path: Path) -> dict[str, str]:
    """Name → hashed name, of files under the root of static files."""
    settings.STATIC_ROOT = tmp_path
    settings.STORAGES = {**settings.STORAGES, "staticfiles": {"BACKEND": "lab.lib.static_names.HashedStaticFiles"}}
    call_command("collectstatic", interactive=False, verbosity=0)
    names: dict[str, str] = json.loads((tmp_path / "staticfiles.json").read_text())["paths"]
    return names


def imports_of(path: Path) -> list[str]:
    return [next(filter(None, found)) for found in IMPORT.findall(path.read_text())]


def test_what_files_import_of_each_other_is_there_under_the_one_hashed_name(collected: dict[str, str], tmp_path: Path) -> None:
    own = [name for name in collected if (ROOT / "static" / name).is_file() and name.endswith((".js", ".css"))]
    assert len(own) > 100
    wrong, count = [], 0
    for name in own:
        hashed = collected[name]
        written, shown = imports_of(ROOT / "static" / name), imports_of(tmp_path / hashed)
        count += len(written)
        for source, target in zip(written, shown, strict=True):
            wanted = collected.get(posixpath.normpath(posixpath.join(posixpath.dirname(name), source)))
            found = posixpath.normpath(posixpath.join(posixpath.dirname(hashed), target))
            if wanted != found or not (tmp_path / found).is_file():
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
