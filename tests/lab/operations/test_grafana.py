"""The dashboard and the alerts ask for what /metrics has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from prometheus_client import generate_latest

from lab.edges.operations import metrics
from lab.training.runs.models import Status

FOLDER = Path(settings.BASE) / "docs" / "grafana"
NAME = re.compile(r"\blab_\w+")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
LABELS = {"job", "instance"}  # of Prometheus itself


@pytest.fixture
def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "policy-lab.json").read_text())
    return loaded


@pytest.fixture
def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


@pytest.fixture
def names(db: None) -> set[str]:
    """Of the metrics there are, also those that have no number in an empty lab."""
    return set(re.findall(r"^# TYPE (\w+) gauge$", generate_latest(metrics.MetricsText().registry).decode(), re.M))


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_every_metric_they_name_is_there(dashboard: dict[str, Any], rules: list[dict[str, Any]], names: set[str]) -> None:
    asked = [*expressions(dashboard), *(rule["expr"] for rule in rules), *(one["query"]["query"] for one in dashboard["templating"]["list"][1:])]
    assert all(NAME.search(expression) for expression in asked)
    assert {name for expression in asked for name in NAME.findall(expression)} - names == set()


def test_the_dashboard_shows_every_metric(dashboard: dict[str, Any], names: set[str]) -> None:
    assert names - {name for expression in expressions(dashboard) for name in NAME.findall(expression)} == set()


def test_values_they_ask_labels_for_exist(dashboard: dict[str, Any], rules: list[dict[str, Any]]) -> None:
    known = {"state": set(metrics.WORKER_STATES), "status": set(Status.values)}
    for expression in [*expressions(dashboard), *(rule["expr"] for rule in rules)]:
        for label, value in MATCHER.findall(expression):
            assert label in LABELS or set(value.split("|")) <= known[label], expression


def test_the_dashboard_is_one_that_grafana_imports(dashboard: dict[str, Any]) -> None:
    assert (dashboard["uid"], dashboard["title"]) == ("policy-lab", "Policy Lab")
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] in ("stat", "timeseries")
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_alerts_say_what_to_do_about_what_was_asked_for(rules: list[dict[str, Any]]) -> None:
    named = {rule["alert"] for rule in rules}
    assert len(named) == len(rules)
    assert named >= {"LabNoWorker", "LabQueueWaits", "LabRunsFail", "LabDiskFills", "LabDatabaseConnections", "LabIngestLags"}
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        for opening, closing in ("()", "{}", "[]"):
            assert rule["expr"].count(opening) == rule["expr"].count(closing)
