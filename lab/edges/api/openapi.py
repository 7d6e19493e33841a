"""The OpenAPI document of the API, with what django-ninja leaves out: problems, what each operation needs, limits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ninja.operation import Operation
from ninja.schema import NinjaGenerateJsonSchema

from lab.edges.api.base import AccessToken, api
from lab.edges.api.problems import MEDIA_TYPE, TITLES, Problem
from lab.teams.accounts.permissions import TABLE

ROOT = "/api/v1/"
ABOUT = """Everything the browser can do, for programs. An access token, created under Access tokens, determines the person (or service), the team
and the scopes of a request; URLs contain no team. Errors are problem JSON (RFC 9457) and name each invalid field. Lists are paginated: send `next`
as `after` to get the next page; it is null on the last page. Times are UTC in ISO 8601; numbers that are not finite are null."""


def iterate_operations() -> Iterator[tuple[str, Operation]]:
    """Every operation with its path below /api/v1."""
    for router in api._get_bound_routers():
        for path, view in router.path_operations.items():
            for operation in view.operations:
                yield f"{router.prefix}{path}", operation


def permission_of(operation: Operation) -> str | None:
    """The permission an operation asks for, "" for any token; None when it forgot to ask."""
    auth = next(iter(operation.auth_callbacks), None)
    return auth.permission if isinstance(auth, AccessToken) else None


@cache
def build_openapi_document() -> dict[str, Any]:
    document: dict[str, Any] = api.get_openapi_schema(path_prefix=ROOT)
    document["info"]["description"] = ABOUT
    permissions = {operation.view_func.__name__: permission_of(operation) or "" for _, operation in iterate_operations()}
    schemas = document["components"]["schemas"]
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}", schema_generator=NinjaGenerateJsonSchema)
    schemas.update(problem.pop("$defs"))
    schemas["Problem"] = problem
    document["components"]["securitySchemes"] = {
        "AccessToken": {"type": "http", "scheme": "bearer", "description": "lab_…, created under Access tokens."}
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            complete_operation(operation, permissions[operation["operationId"]], path, method)
    return document


NAME_RUNS = ("/runs/act", "/bin", "/bin/restore", "/bin/delete")  # their bodies name runs: none of the team's is 404


def complete_operation(operation: dict[str, Any], permission: str, path: str, method: str) -> None:
    operation["x-permission"] = permission
    needs = (
        f"Requires the scope `{permission}`: {TABLE[permission].words[0].lower()}{TABLE[permission].words[1:]}."
        if permission
        else "Accepts any token."
    )
    operation["description"] = "\n\n".join(part for part in (operation.get("description", "").strip(), needs) if part)
    kinds = ["malformed", "token", "permission", "validation", "rate", "size", "method"]
    kinds += ["missing"] if "{" in path or (method == "post" and path.endswith(NAME_RUNS)) else []
    kinds += ["conflict"] if method != "get" else []
    for status, title in sorted({TITLES[kind] for kind in kinds}):
        operation["responses"].setdefault(
            status, {"description": title, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
        )
