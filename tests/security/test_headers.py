"""Headers of every answer, whatever kind it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.http import HttpResponse
from django.test import Client, RequestFactory

from lab.lib import csp_reports
from lab.lib.content_policy import build_csp_directives
from lab.lib.headers import SecurityHeadersMiddleware
from lab.lib.npm_packages import packages_folder, read_lock
from lab.lib.package_assets import LOCK
from tests.lab.accounts.signing_in import give_app
from tests.lab.cast import Cast, make_cast
from tests.security.people import routes

PAGES = [
    "/accounts/login/",
    "/health/",
    "/health/ready",
    "/nothing-here/",
    "/runs/",
    "/static/base/lab.css",
    "/static/vendor/plotly-cartesian-4.1.1.min.js",
    "/static/base/favicon.svg",
    "/static/none.css",
]


def policy(response: Any) -> dict[str, list[str]]:
    parts = [part.split() for part in response["Content-Security-Policy"].split(";")]
    return {part[0]: part[1:] for part in parts if part}


@pytest.mark.django_db
@pytest.mark.parametrize("path", PAGES)
def test_every_answer_carries_them_also_static_files_and_errors(path: str, as_owner: Client) -> None:
    response = as_owner.get(path)
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Cross-Origin-Opener-Policy"] == response["Cross-Origin-Resource-Policy"] == response["Referrer-Policy"] == "same-origin"
    assert "camera=()" in response["Permissions-Policy"]
    assert "Access-Control-Allow-Origin" not in response
    found = policy(response)
    assert found["default-src"] == found["base-uri"] == found["frame-ancestors"] == found["object-src"] == ["'none'"]
    assert found["script-src"] == found["style-src"] == found["connect-src"] == ["'self'"]
    assert found["report-uri"] == ["/csp-report/"]
    assert "unsafe" not in response["Content-Security-Policy"]


class UnreadableSession:
    """Of a database that is away: whoever looks into it waits for a connection again."""

    accessed = True

    def __contains__(self, name: str) -> bool:
        raise AssertionError("the session was looked at")


def test_an_answer_without_the_database_does_not_ask_it_how_long_it_may_be_kept() -> None:
    request = RequestFactory().get("/runs/")
    request.session = UnreadableSession()  # type: ignore[assignment]
    answer = SecurityHeadersMiddleware(lambda _: HttpResponse(status=503))(request)
    assert answer["Cache-Control"] == "no-store, private"


@pytest.mark.django_db
def test_the_operators_pages_alone_may_evaluate_and_for_operators_alone(as_owner: Client, owner: Any) -> None:
    assert "unsafe" not in as_owner.get("/admin/")["Content-Security-Policy"]
    owner.is_staff = True
    owner.save()
    give_app(owner)
    assert "unsafe" not in as_owner.get("/runs/")["Content-Security-Policy"]
    found = policy(as_owner.get("/admin/"))
    assert found["script-src"] == ["'self'", "'unsafe-eval'"]
    assert found["default-src"] == ["'none'"]


def test_a_form_may_lead_to_the_sign_in_provider_and_nowhere_else() -> None:
    assert build_csp_directives([])["form-action"] == ["'self'"]
    assert build_csp_directives(["https://id.example.org/realms/lab"])["form-action"] == ["'self'", "https://id.example.org"]
    with pytest.raises(ValueError, match="not a web address"):
        build_csp_directives(["id.example.org; script-src *"])


@pytest.mark.django_db
def test_a_page_of_a_person_is_in_no_shared_cache_and_a_secret_in_none(as_owner: Client, team: Any) -> None:
    assert "private" in as_owner.get("/runs/")["Cache-Control"]
    assert "no-store" in as_owner.get("/accounts/password/change/")["Cache-Control"]
    assert "no-store" in Client().get("/accounts/login/")["Cache-Control"]


@pytest.fixture
def cast(team: Any, owner: Any) -> Cast:
    return make_cast(team, owner, "headers")


def test_every_download_is_an_attachment_under_a_name_the_lab_made(cast: Cast, as_owner: Client) -> None:
    """ClearML CVE-2024-39272: what people stored is not opened as a page. Whatever is no page, fragment or data is a download."""
    wrong, downloads = [], 0
    for route in routes():
        path = route.path(cast)
        if not path or route.name.startswith(("admin:", "api-")) or "logout" in route.name:
            continue
        response = as_owner.get(path)
        kind = response.headers.get("Content-Type", "").split(";")[0]
        if response.streaming:
            list(response.streaming_content)
        if response.status_code != 200 or kind in ("text/html", "application/json", ""):
            continue
        downloads += 1
        name = re.fullmatch(r'attachment; filename="([\w.-]{1,120})"', response.headers.get("Content-Disposition", ""))
        own_data = kind == "application/octet-stream" and "Content-Disposition" not in response.headers  # packed for the lab's own scripts
        if response["X-Content-Type-Options"] != "nosniff" or not (name or own_data):
            wrong.append(f"{route.name}: {kind} {response.headers.get('Content-Disposition')}")
    assert not wrong, "\n".join(wrong)
    assert downloads >= 3


@pytest.fixture
def fresh_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csp_reports, "budget", csp_reports.ReportBudget(clock=lambda: 0.0))  # no minute ends in the middle of a test


def report(body: str | bytes, **headers: str) -> Any:
    return Client(enforce_csrf_checks=True).post("/csp-report/", body, content_type="application/csp-report", **headers)


@pytest.mark.django_db
def test_a_report_is_a_line_of_the_log_without_what_people_looked_for(fresh_budget: None, caplog: pytest.LogCaptureFixture) -> None:
    body = {"csp-report": {"document-uri": "http://lab/rollouts/?q=secret", "blocked-uri": "inline\nforged line", "script-sample": "alert"}}
    assert report(json.dumps(body)).status_code == 204
    assert "secret" not in caplog.text
    assert "http://lab/rollouts/" in caplog.text
    assert "inline\\nforged line" in caplog.text


@pytest.mark.django_db
def test_reports_are_few_short_and_nothing_else(fresh_budget: None) -> None:
    assert [report(body).status_code for body in ("", "[]", "{", "[" * 5000, '{"csp-report": 1}', b"\xff")] == [400] * 6
    assert report("x" * (csp_reports.MOST_BYTES + 1)).status_code == 413
    assert Client().get("/csp-report/").status_code == 405
    codes = [report('{"csp-report": {}}').status_code for _ in range(csp_reports.MOST_A_MINUTE)]
    assert codes[-1] == 429


def test_plotlys_own_rules_are_those_of_the_bundle() -> None:
    """A new version of the package brings others: make static/charts/plotly.css from them, and name it in the template."""
    package = next(package for package in read_lock(LOCK) if package.name.startswith("plotly"))
    bundle = (packages_folder() / package.served_name).read_text()
    start = bundle.index('"X,X div":')
    rules = bundle[start : bundle.index("}", start)]
    found = (Path(settings.BASE) / "static" / "charts" / "plotly.css").read_text()
    declarations = re.findall(r""":("(?:[^"\\]|\\.)*"|'[^']*')(?:,|$)""", rules)
    assert len(declarations) > 50
    for one in declarations:
        assert one[1:-1].replace('\\"', '"') in found, one
    template = (Path(settings.BASE) / "templates" / "plotly.html").read_text()
    assert f"vendor/{package.served_name}'" in template
    assert "no-inline-styles" in bundle
    for placeholder in re.findall(r'<template id="([0-9a-f]+)"', template):
        assert f'getElementById("{placeholder}")' in bundle
