"""Every operation of the OpenAPI document, asked with generated input by a token of each role: no mistake of the lab, every answer as described."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import requests
import schemathesis
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from ninja import Schema
from schemathesis import Case, GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from lab.edges.api import openapi
from lab.teams.accounts.models import Role, Team, User
from lab.teams.accounts.permissions import is_role_allowed
from tests.conftest import make_member
from tests.lab.api.conftest import ApiClient, client_of, note_first_use
from tests.lab.cast import Cast, make_cast

load_all_checks()
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
DOCUMENT = openapi.build_openapi_document()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
NAMES = sorted(one["operationId"] for methods in DOCUMENT["paths"].values() for one in methods.values())
OF_AUTHORS = {"delete_comment"}  # only who wrote it may
OBJECTS = ("run", "rollout", "prompt", "comment", "tag", "queue", "item", "judgement", "user", "dataset", "version", "recall")
OBJECTS += ("ablation", "sweep", "project", "checkpoint", "alias", "proposal", "notice", "rule", "team_rule", "webhook", "delivery")
OBJECTS += ("task", "task_version", "fetch")
OBJECTS += ("reward", "backtest")
OUTSIDE = {"send_events"}  # takes lines of a spool, not JSON: tests of lab.supervision.outside


def test_every_operation_names_its_permission() -> None:
    silent = [f"{one.methods} {path}" for path, one in openapi.iterate_operations() if openapi.permission_of(one) is None]
    assert silent == [], "Give these operations auth=needs(…) with a line of lab/teams/accounts/permissions.py (or any_token)."


def test_names_are_told_apart_and_everything_is_described() -> None:
    assert len(NAMES) == len(set(NAMES))
    poor = [one.view_func.__name__ for _, one in openapi.iterate_operations() if not one.summary or not one.tags]
    assert poor == []


def test_no_two_shapes_share_a_name() -> None:
    """The document holds them by name: of two the second would stand for both."""

    def below(kind: type) -> set[type]:
        return {found for one in kind.__subclasses__() for found in {one, *below(one)}}

    names = sorted(one.__name__ for one in below(Schema) if one.__module__.startswith("lab.edges.api") and "[" not in one.__name__)
    assert len(names) > 50
    assert sorted({name for name in names if names.count(name) > 1}) == []


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "mark")


@pytest.fixture
def clients(team: Team, owner: User, cast: Cast) -> dict[str, ApiClient]:
    people = {role: make_member(f"{role}@schema.example.org", team, role) for role in Role if role != Role.OWNER}
    return {role.value: note_first_use(client_of(team, person)) for role, person in {**people, Role.OWNER: owner}.items()}


def ids_of(cast: Cast) -> dict[str, Any]:
    """Something real for each parameter of a path."""
    known = {"name": "grpo", "start": 0}
    for name in OBJECTS:
        key = cast.find_key(name)
        known[f"{name}_id"] = str(key) if isinstance(key, UUID) else key
    return known


def ask(client: ApiClient, case: Case) -> Response:
    """Sends it, looks at all of the answer, and takes back what it did."""
    prepared = requests.Request(**case.as_transport_kwargs(base_url="http://testserver")).prepare()
    body = prepared.body or b""
    data = body.encode() if isinstance(body, str) else body
    headers = {name: value for name, value in prepared.headers.items() if name.lower() in ("idempotency-key", "accept")}
    with transaction.atomic():
        kind = prepared.headers.get("Content-Type", "application/json")
        answer: Any = client.generic(prepared.method or "GET", prepared.path_url, data, content_type=kind, headers=headers)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        transaction.set_rollback(True)
    named = {name.lower(): [value] for name, value in answer.headers.items()}
    return Response(answer.status_code, named, content, prepared, 0.1, verify=False)


def test_answers_are_as_described_for_each_role(clients: dict[str, ApiClient], cast: Cast) -> None:
    wrong: list[str] = []
    for name in sorted(set(NAMES) - OUTSIDE):
        operation = SCHEMA.find_operation_by_id(name)
        permission = operation.definition.raw["x-permission"]
        for role, seen in examine(operation, clients, cast, GenerationMode.POSITIVE, 2, wrong).items():
            may = not permission or is_role_allowed(role, permission)
            refused = 403 in seen and seen <= {403, 404}  # an id that no address can hold is a 404 to everybody
            if not may and not refused:
                wrong.append(f"{role} must not {name}: {seen}")
            if may and refused and role != "annotator" and name not in OF_AUTHORS:
                wrong.append(f"{role} may {name}, and was refused")
    assert wrong == []


def test_nonsense_is_refused_in_words(clients: dict[str, ApiClient], cast: Cast) -> None:
    wrong: list[str] = []
    for number, name in enumerate(sorted(set(NAMES) - OUTSIDE)):
        operation = SCHEMA.find_operation_by_id(name)
        if operation.body or (number % 3 == 0 and any(True for _ in operation.iter_parameters())):
            examine(operation, {"owner": clients["owner"]}, cast, GenerationMode.NEGATIVE, 2, wrong)
    assert wrong == []


def examine(operation: Any, clients: dict[str, ApiClient], cast: Cast, mode: GenerationMode, examples: int, wrong: list[str]) -> dict[str, set[int]]:
    """Each role asks the same examples, every other one about something that exists. The statuses of each; what fails is added to ``wrong``."""
    seen: dict[str, set[int]] = {role: set() for role in clients}
    known = ids_of(cast)
    asked: list[Case] = []

    @settings(max_examples=examples, derandomize=True, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(mode))
    def run(case: Case) -> None:
        if len(asked) % 2 == 0:
            case.path_parameters = {key: known.get(key, value) for key, value in (case.path_parameters or {}).items()}
        if isinstance(case.body, dict) and "check" in case.body:
            case.body["check"] = False  # the trainers' check takes seconds
        asked.append(case)
        for role, client in clients.items():
            response = ask(client, case)
            seen[role].add(response.status_code)
            case.validate_response(response, checks=CHECKS)

    try:
        run()
    except (Exception, BaseExceptionGroup) as error:
        wrong.append(f"{operation.label}: {str(error)[:900]}")
    return seen
