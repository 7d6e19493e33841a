"""What the API does not know it refuses: fields, parameters, types, numbers no database holds. A new operation is covered by being there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.test import Client

from lab.data.datasets.models import Dataset, Version
from lab.edges.api.openapi import build_openapi_document
from lab.teams.accounts.models import Team, User
from lab.training.ablations.models import Ablation
from tests.lab.api.bodies import bodies
from tests.lab.api.conftest import ApiClient, note_first_use
from tests.lab.cast import OBJECTS, PLAIN, Cast, make_cast

pytestmark = pytest.mark.django_db

METHODS = ("get", "post", "put", "patch", "delete")
DIGITS = "9" * 5000
HOSTILE = (DIGITS, "9" * 20, "-1", "٣٣", "9" * 19, "1.5", "")


@pytest.fixture
def api(api: ApiClient) -> ApiClient:
    return note_first_use(api)


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "strict")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in build_openapi_document()["paths"].items():
        for method, one in methods.items():
            yield method, path, one


def filled(path: str, cast: Cast, one: dict[str, Any]) -> str:
    kinds = {parameter["name"]: parameter["schema"] for parameter in one.get("parameters", []) if parameter["in"] == "path"}

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name in OBJECTS:
            return str(cast.value("", name))
        usual = UUID(int=0) if kinds.get(name, {}).get("format", "").startswith("uuid") else 1
        return str(PLAIN.get(name, usual))

    return re.sub(r"\{(\w+)\}", value, path)


def tried(api: Client, method: str, url: str, body: Any = None) -> Any:
    """What was done is taken back."""
    with transaction.atomic():
        given = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        response = getattr(api, method)(url, **given)
        if response.streaming:
            list(response.streaming_content)
        transaction.set_rollback(True)
    return response


def fields_of(response: Any) -> list[str]:
    return [one["field"] for one in response.json().get("errors", [])] if response.status_code == 422 else []


def test_every_body_refuses_a_field_it_does_not_know_at_any_depth(api: ApiClient, cast: Cast) -> None:
    wrong, asked = [], 0
    for method, path, one in operations():
        for place, body in bodies(build_openapi_document(), one, {"surprise": 1}):
            asked += 1
            response = tried(api, method, filled(path, cast, one), body)
            if not any(field.endswith("surprise") for field in fields_of(response)):
                wrong.append(f"{method} {path} at {place or 'the top'}: {response.status_code} {response.content[:200]!r}")
    assert not wrong, "\n".join(wrong)
    assert asked > 30


def test_every_operation_refuses_a_parameter_it_does_not_know(api: ApiClient, cast: Cast) -> None:
    wrong = []
    for method, path, one in operations():
        response = tried(api, method, f"{filled(path, cast, one)}?surprise=1", {} if method != "get" else None)
        if fields_of(response) != ["surprise"]:
            wrong.append(f"{method} {path}: {response.status_code}")
    assert not wrong, "\n".join(wrong)


def test_no_number_takes_true_or_text_and_no_truth_value_a_number(api: ApiClient, cast: Cast) -> None:
    wrong, asked = [], 0
    for method, path, one in operations():
        for place, kinds, value in (found for found in typed_fields(one)):
            for bad in refused_values(kinds):
                asked += 1
                response = tried(api, method, filled(path, cast, one), {**value, place: bad})
                if not any(field == place or field.startswith(f"{place}.") for field in fields_of(response)):
                    wrong.append(f"{method} {path}: {place} = {bad!r} got {response.status_code} {response.content[:160]!r}")
    assert not wrong, "\n".join(wrong)
    assert asked > 60


def typed_fields(one: dict[str, Any]) -> Iterator[tuple[str, set[str], dict[str, Any]]]:
    """Each number and truth value at the top of the operation's body: its name, the types it takes, and the rest of a body."""
    for _, example in bodies(build_openapi_document(), one, {}):
        schema = top(one)
        for name, inner in schema.get("properties", {}).items():
            kinds = {branch.get("type") for branch in inner.get("anyOf", [inner])} - {"null", None}
            if kinds and kinds <= {"integer", "number", "boolean"}:
                yield name, kinds, {key: value for key, value in example.items() if key != name}
        return


def top(one: dict[str, Any]) -> dict[str, Any]:
    [content] = one["requestBody"]["content"].values()
    schema = content["schema"]
    return build_openapi_document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema


def refused_values(kinds: set[str]) -> tuple[Any, ...]:
    return (1, "true", 0) if kinds == {"boolean"} else (True, False, "3", 10**30)


def test_hostile_numbers_in_addresses_and_bodies_are_never_the_labs_mistake(api: ApiClient, cast: Cast) -> None:
    wrong = []
    api.raise_request_exception = False
    for method, path, one in operations():
        url = filled(path, cast, one)
        parameters = [parameter["name"] for parameter in one.get("parameters", []) if parameter["in"] == "query"]
        places = [f"{url}?{name}={value}" for name in parameters for value in HOSTILE]
        places += [filled(path.replace(f"{{{name}}}", value or "0"), cast, one) for name in re.findall(r"\{(\w+)\}", path) for value in HOSTILE]
        for address in places:
            response = tried(api, method, address, {} if method != "get" else None)
            if response.status_code >= 500 or (response.status_code >= 400 and response["Content-Type"] != "application/problem+json"):
                wrong.append(f"{method} {address[:120]}: {response.status_code} {response['Content-Type']}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("body", [f'{{"x": {DIGITS}}}', f'{{"rule": {{"queues": [{DIGITS}]}}}}', '{"rule": {"queues": [99999999999999999999]}}'])
def test_a_body_with_a_number_that_nothing_holds_is_refused(api: ApiClient, cast: Cast, team: Team, body: str) -> None:
    dataset = Dataset.objects.create(team=team, name="d", form="preference")
    response = api.post(f"/api/v1/datasets/{dataset.pk}/freeze", body, content_type="application/json")
    assert response.status_code in (400, 422), response.content
    assert not Version.objects.filter(dataset=dataset).exists()


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"min_labelz": 2}, "rule.min_labelz"),
        ({"cleaning": {"bye": ["speed"]}}, "rule.cleaning.bye"),
        ({"cleaning": {"by": ["magic"]}}, "rule.cleaning.by"),
        ({"min_labels": True}, "rule.min_labels"),
        ({"min_labels": "2"}, "rule.min_labels"),
        ({"queues": ["3"]}, "rule.queues"),
        ({"test_share": True}, "rule.test_share"),
        ({"dedupe": 1}, "rule.dedupe"),
        ({"salt": 3}, "rule.salt"),
        ({"cleaning": 3}, "rule.cleaning"),
    ],
)
def test_freezing_refuses_what_no_rule_has(api: ApiClient, team: Team, rule: dict[str, Any], field: str) -> None:
    dataset = Dataset.objects.create(team=team, name="d", form="preference")
    response = api.send(f"datasets/{dataset.pk}/freeze", {"rule": rule})
    assert fields_of(response) == [field], response.content
    assert not Version.objects.filter(dataset=dataset).exists()


def test_a_limit_of_false_runs_is_no_limit_of_none(api: ApiClient) -> None:
    response = api.send("usage/limits", {"concurrent_runs": False}, method="patch")
    assert fields_of(response) == ["concurrent_runs"]
    assert api.ask("usage").json()["limits"]["concurrent_runs"] is None


def test_a_key_counts_for_one_address(api: ApiClient, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (Ablation.objects.create(team=team, name=name, spec={}, seeds=1) for name in ("one", "two"))
    added: list[UUID] = []
    monkeypatch.setattr("lab.training.ablations.launch.add_seeds", lambda found, user, seeds: added.append(found.pk) or found)
    monkeypatch.setattr("lab.edges.api.operations.ablations.whole_of", lambda found: {"id": found.pk})
    key = {"Idempotency-Key": "the-same"}
    api.raise_request_exception = False
    for ablation in (one, one, two):
        api.send(f"ablations/{ablation.pk}/seeds", {"seeds": 1}, **key)
    assert added == [one.pk, two.pk]


@pytest.mark.parametrize("path", ["/api/v1/runs%0a", "/api/v1/no%0Asuch", "/api/other", "/api/v2/runs", "/api/%0a", "/t/reasoning/api/other"])
def test_every_answer_below_the_api_is_problem_json(api: ApiClient, path: str) -> None:
    response = api.get(path)
    assert response.status_code == 404
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["type"] == "/api/#missing"
