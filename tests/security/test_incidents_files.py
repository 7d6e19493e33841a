"""Incidents of files: paths and names that a client gives. Named after what happened elsewhere (docs/security.md)."""

from __future__ import annotations

import gzip
import pickle
import uuid
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import get_resolver

from lab.data.datasets import uploads
from lab.teams.accounts.models import Team, User
from lab.training.runs import references
from tests.lab.cast import PLAIN, Cast, make_cast
from tests.lab.query_names import ask_while_read
from tests.security.people import Route, routes
from trainers.contract.spec import SpecError

READABLE: list[Route] = []  # the same for every cast
SECRET = "zq-what-no-page-may-show"
TRAVERSALS = [
    "../../secret.txt",
    "..%2f..%2fsecret.txt",
    "%2e%2e/%2e%2e/secret.txt",
    "%252e%252e%252fsecret.txt",
    "..\\..\\secret.txt",
    "....//....//secret.txt",
    "/etc/passwd",
    "file:///etc/passwd",
    "C:\\secret.txt",
    "secret.txt\0.jsonl",
    "..;/secret.txt",
    "~/secret.txt",
]
NAMING = (
    "upload",
    "path",
    "file",
    "name",
    "recipe",
    "run",
    "dataset",
    "version",
    "checkpoint",
    "policy",
    "tab",
    "part",
    "form",
    "kind",
    "method",
    "split",
    "next",
    "list",
)


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "files")


@pytest.fixture
def secret(cast: Cast) -> str:
    """Files that a traversal from any folder of the lab would reach."""
    for folder in (
        cast.run.folder,
        cast.run.folder.parent,
        cast.run.folder.parent.parent,
        uploads.folder_of(cast.team),
        Path(settings.DATASETS_ROOT),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "secret.txt").write_text(SECRET)
    return SECRET


def shows(response: Any) -> str:
    """What is wrong with an answer; empty when nothing is."""
    return find_trouble(response, b"".join(response.streaming_content) if response.streaming else response.content)


def find_trouble(response: Any, body: bytes) -> str:
    """What is wrong with an answer; empty when nothing is."""
    if SECRET.encode() in body or b"root:x:0:0" in body:
        return "shows a file"
    return f"status {response.status_code}" if response.status_code >= 500 else ""


def test_mlflow_cve_2023_1177_no_part_of_an_address_is_a_path(cast: Cast, secret: str, owner: User) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    wrong = []
    for route in routes():
        for parameter in route.parameters:
            if parameter not in PLAIN or not isinstance(PLAIN[parameter], str) or not (path := route.path(cast)):
                continue
            for value in TRAVERSALS:
                for written in (value, quote(value, safe="")):
                    said = shows(client.get(path.replace(f"/{PLAIN[parameter]}/", f"/{written}/", 1)))
                    wrong += [f"{route.name} with {parameter}={value!r}: {said}"] if said else []
    assert not wrong, "\n".join(wrong)


def test_mlflow_cve_2024_1560_no_query_parameter_is_a_path(cast: Cast, secret: str, owner: User) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    wrong, walked = [], 0
    for route in readable(cast, client):
        queries = [dict.fromkeys(NAMING, value) for value in (TRAVERSALS[0], TRAVERSALS[4], TRAVERSALS[6])]
        for query, response, body in ask_while_read(client, route.path(cast), queries):
            walked += 1
            said = find_trouble(response, body)
            wrong += [f"{route.name} with {query[NAMING[0]]!r}: {said}"] if said else []
    assert not wrong, "\n".join(wrong)
    assert walked > 100


def readable(cast: Cast, client: Client) -> list[Route]:
    """Addresses that look at their query: those that an owner reads by GET, without the packages'."""
    if not READABLE:
        found = [route for route in routes() if not route.name.startswith(("admin:", "api-", "account_", "mfa_", "socialaccount_", "openid_"))]
        READABLE.extend(
            route
            for route in found
            if (path := route.path(cast)) and client.options(path).status_code != 404 and client.head(path).status_code == 200
        )
    return READABLE


def test_aim_cve_2021_43775_an_id_is_an_id(cast: Cast) -> None:
    """Routes take ids as numbers or UUIDs, so that nothing else reaches a view as one."""
    loose = [
        f"{route.name}: {parameter}"
        for route in routes()
        if not route.name.startswith(("admin:", "account_", "socialaccount_", "openid_", "mfa_"))
        for parameter in route.parameters
        if parameter.endswith("_id") and converter(route, parameter) not in ("IdConverter", "IntConverter", "UUIDConverter")
    ]
    assert loose == []
    run = cast.run
    assert run.folder == Path(settings.RUNS_ROOT) / str(uuid.UUID(str(run.pk)))


def converter(route: Route, parameter: str) -> str:
    found = get_resolver().reverse_dict.getlist(route.name.rpartition(":")[2]) if ":" not in route.name else []
    return next((type(one[3][parameter]).__name__ for one in found if parameter in one[3]), "IntConverter")


@pytest.mark.parametrize(
    "path",
    [
        "/static../lab/settings.py",
        "/static/../lab/settings.py",
        "/static/..%2flab/settings.py",
        "/static/%2e%2e/lab/settings.py",
        "/static//etc/passwd",
        "/static/vendor/../../../../../etc/passwd",
        "/static/vendor/plotly-cartesian-4.1.1.min.js/../../__init__.py",
        "/static/base/lab.css\0.py",
        "/t/../static/../lab/settings.py",
    ],
)
def test_label_studio_ghsa_cpmr_mw4j_99r7_static_files_are_those_of_static(path: str, client: Client, db: None) -> None:
    client.raise_request_exception = False
    response = client.get(path)
    body = b"".join(response.streaming_content) if response.streaming else response.content
    assert response.status_code in (302, 400, 404), response.status_code
    assert b"SECRET_KEY" not in body
    assert b"root:" not in body


@pytest.mark.parametrize(
    "name", ["../../../evil.jsonl", "/etc/cron.d/evil", "..\\..\\evil.jsonl", "evil\0.jsonl", "a" * 5000, "<img src=x onerror=1>.jsonl", "."]
)
def test_mlflow_ghsa_5q6c_ffvg_xcm9_an_uploads_name_is_for_people_only(name: str, as_owner: Client, team: Team) -> None:
    before = set(Path(settings.DATASETS_ROOT).rglob("*")) if Path(settings.DATASETS_ROOT).exists() else set()
    file = SimpleUploadedFile("x", b'{"prompt": "a", "completion": "b"}\n')
    file._name = name  # past the class's own basename()
    response = as_owner.post("/datasets/import/", {"file": file})
    assert response.status_code in (302, 400, 422)
    made = {path for path in Path(settings.DATASETS_ROOT).rglob("*") if path.is_file()} - before
    assert all(path.parent == uploads.folder_of(team) and path.stem.isalnum() and len(path.stem) == 32 for path in made), made
    assert b"<img src=x onerror" not in as_owner.get(response["Location"]).content if response.status_code == 302 else True


def zipped() -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("../../evil.jsonl", "{}")
    return out.getvalue()


REFUSED = {
    "zip": zipped(),
    "gzip": gzip.compress(b'{"prompt": "a"}\n' * 1000),
    "pickle": pickle.dumps({"prompt": "a"}),
    "html": b"<!doctype html><script>alert(1)</script>",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
    "png": b"\x89PNG\r\n\x1a\n" + b"\0" * 100,
    "elf": b"\x7fELF" + b"\0" * 100,
    "parquet that is none": b"PAR1" + b"\xff" * 200 + b"PAR1",
    "nothing": b"",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_clearml_cve_2024_39272_only_rows_are_kept(kind: str, as_owner: Client, team: Team) -> None:
    """By content; the name says the right thing."""
    response = as_owner.post("/datasets/import/", {"file": SimpleUploadedFile("rows.jsonl", REFUSED[kind], "application/json")})
    assert response.status_code == 422
    folder = uploads.folder_of(team)
    assert not folder.exists() or not list(folder.iterdir())


def test_more_files_or_fields_than_a_form_has_are_refused(as_owner: Client) -> None:
    two = [SimpleUploadedFile(f"{number}.jsonl", b"{}") for number in range(2)]
    assert as_owner.post("/datasets/import/", {"file": two}).status_code == 400
    assert as_owner.post("/datasets/import/", {f"f{number}": "x" for number in range(1500)}).status_code == 400


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["../secrets", "/etc", "a/../../b", "a/b", "..", ".", "", "\0", "~root", "file:///etc", ".uploads"])
def test_llama_factory_cve_2025_53002_a_policy_or_dataset_is_named_not_pathed(path: str, team: Team) -> None:
    for part in ({"policy": {"kind": "folder", "folder": path}}, {"policy": {"kind": "folder", "path": path}}, {"dataset": {"file": path}}):
        with pytest.raises(SpecError):
            references.resolve_references(team, part)
