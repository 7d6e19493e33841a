"""Errors of the API as problem JSON (RFC 9457): one shape, whatever went wrong, with the path of each field that has to change."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import Field, NinjaAPI, Schema
from ninja.errors import HttpError, ValidationError

from lab.lib.costly import TooManyRequests
from lab.lib.database_limits import describe_database_trouble
from lab.lib.refusals import InputRefusal, Refusal
from lab.lib.refusals import Problem as RoomProblem
from lab.training.runs.problem_words import message_of
from trainers.contract.spec import Problem as SpecProblem
from trainers.contract.spec import SpecError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
INVALID = (400, 422)  # statuses of a refusal that names what has to change
PAGE = "/api/"  # the page that explains each type
TITLES = {
    "malformed": (400, "The request cannot be read"),
    "token": (401, "Access token required"),
    "permission": (403, "Not allowed"),
    "person": (403, "Personal token required"),
    "missing": (404, "Not found"),
    "method": (405, "Method not allowed"),
    "conflict": (409, "Conflict"),
    "size": (413, "The request is too large"),
    "validation": (422, "Invalid request"),
    "rate": (429, "Too many requests"),
    "broken": (500, "Internal server error"),
    "away": (503, "Service unavailable"),
}


class FieldProblem(Schema):
    field: str = Field(description="The invalid parameter, or the path of the invalid field in the body.", examples=["overrides.training.max_steps"])
    message: str = Field(description="What is wrong.", examples=["must be at least 1"])
    fix: str = Field(default="", description="How to fix it, if known.", examples=["give a whole number from 1"])


class Problem(Schema):
    """Details of an error (RFC 9457)."""

    type: str = Field(description="Type of the problem: a URL on the page that explains it.", examples=["/api/#validation"])
    title: str = Field(description="Short title, the same for all problems of this type.")
    status: int = Field(description="The HTTP status code.", examples=[422])
    detail: str = Field(description="What went wrong in this request.")
    errors: list[FieldProblem] = Field([], description="All invalid fields, not only the first.")
    request: str = Field("", description="Id of the request, also in the header X-Request-Id; include it when you report a problem.")


class ApiProblem(Exception):
    """Raised anywhere below an operation; ``kind`` is a key of ``TITLES``."""

    def __init__(self, kind: str, detail: str, errors: Sequence[FieldProblem] = (), headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.errors, self.headers = kind, detail, list(errors), headers or {}


def make_invalid_problem(field: str, message: str, fix: str = "") -> ApiProblem:
    return make_validation_problem([FieldProblem(field=field, message=message, fix=fix)])


def make_validation_problem(errors: Iterable[FieldProblem]) -> ApiProblem:
    problems = list(errors)
    detail = f"{problems[0].field}: {problems[0].message}" if len(problems) == 1 else f"{len(problems)} fields are invalid; see errors."
    return ApiProblem("validation", detail, problems)


def of_spec(error: SpecError, location: str = "") -> ApiProblem:
    """The problems of a spec, each with its path in the request's body."""
    return make_validation_problem(field_problem(problem, ".".join(part for part in (location, problem.field) if part)) for problem in error.problems)


def of_refusal(refusal: Refusal) -> ApiProblem:
    """What a room of the lab refuses; inputs at fault stand where the room says they are in a body."""
    location = refusal.location if isinstance(refusal, InputRefusal) else ""
    problems = refusal.problems or ([RoomProblem(refusal.field, refusal.message, refusal.fix)] if refusal.status in INVALID else [])
    errors = [
        FieldProblem(field=".".join(part for part in (location, problem.field) if part), message=problem.message, fix=problem.fix)
        for problem in problems
    ]
    if refusal.status in INVALID:
        return make_validation_problem(errors)
    return ApiProblem({401: "token", 403: "permission", 404: "missing"}.get(refusal.status, "conflict"), str(refusal), errors)


def field_problem(problem: SpecProblem, field: str, about: str = "") -> FieldProblem:
    """A problem of a spec at ``field`` of the body. A broken row of a dataset says its file and line; ``about`` stands before it."""
    return FieldProblem(field=field, message=f"{about}{message_of(problem)}", fix=problem.fix or "")


def render_problem(request: HttpRequest, problem: ApiProblem) -> HttpResponse:
    status, title = TITLES[problem.kind]
    body = {
        "type": f"{PAGE}#{problem.kind}",
        "title": title,
        "status": status,
        "detail": problem.detail,
        "errors": [entry.model_dump() for entry in problem.errors],
        "request": getattr(request, "api_id", ""),
    }
    return HttpResponse(json.dumps(body), status=status, content_type=MEDIA_TYPE, headers=problem.headers)


def of_validation(error: ValidationError) -> ApiProblem:
    return make_validation_problem(
        FieldProblem(field=format_field_path(entry["loc"]), message=format_validation_message(entry), fix=suggest_fix(entry))
        for entry in error.errors
    )


def format_field_path(location: Sequence[Any]) -> str:
    """``("body", "given", "overrides", "seed")`` as a person writes it: without where it stands and without the argument's name."""
    parts = [str(part) for part in location]
    if parts and parts[0] == "body":
        return ".".join(parts[2:]) or "the body"
    return ".".join(parts[1:]) or "the request"


def format_validation_message(error: dict[str, Any]) -> str:
    return str(error.get("msg", "")).removeprefix("Value error, ")


def suggest_fix(error: dict[str, Any]) -> str:
    kind = error.get("type", "")
    if kind == "missing":
        return "add it"
    if kind == "extra_forbidden":
        return "remove it, or check its name in the API documentation"
    return ""


def as_problem(api: NinjaAPI, kind: type[Exception], problem: Callable[[Any], ApiProblem]) -> None:
    """Exceptions of ``kind`` that come out of an operation are answered as what ``problem`` makes of them."""

    def answer(request: HttpRequest, error: Any) -> HttpResponse:
        return render_problem(request, problem(error))

    api.add_exception_handler(kind, answer)


def register_problem_handlers(api: NinjaAPI) -> None:
    """Every exception that can come out of an operation becomes a problem."""

    def give(kind: str, detail: str) -> Any:
        return lambda request, error: render_problem(request, ApiProblem(kind, str(error) or detail))

    def of_http(request: HttpRequest, error: Any) -> HttpResponse:
        if isinstance(error.__cause__, ApiProblem):  # what the parser refuses comes wrapped
            return render_problem(request, error.__cause__)
        kinds = {400: "malformed", 401: "token", 403: "permission", 404: "missing", 429: "rate"}
        return render_problem(request, ApiProblem(kinds.get(error.status_code, "malformed"), error.message))

    def broken(request: HttpRequest, error: Any) -> HttpResponse:
        log.exception("the API failed at %s %s, request %s", request.method, request.path, getattr(request, "api_id", ""), exc_info=error)
        detail = "This is not caused by your request. Try again, and report the request id if it happens again."
        return render_problem(request, ApiProblem("broken", detail))

    def of_database(request: HttpRequest, error: Any) -> HttpResponse:
        trouble = describe_database_trouble(error)
        if trouble is None:
            return broken(request, error)
        log.warning("the API could not answer %s %s: %s", request.method, request.path, str(error).strip())
        return render_problem(request, ApiProblem("away", trouble.words, headers=make_retry_headers(trouble.seconds)))

    as_problem(api, ApiProblem, lambda error: error)
    as_problem(
        api,
        TooManyRequests,
        lambda error: ApiProblem("rate" if error.status == 429 else "away", error.words, headers=make_retry_headers(error.seconds)),
    )
    api.add_exception_handler(DatabaseError, of_database)
    api.add_exception_handler(InterfaceError, of_database)
    as_problem(api, ValidationError, of_validation)
    as_problem(api, SpecError, of_spec)
    as_problem(api, Refusal, of_refusal)
    api.add_exception_handler(HttpError, of_http)
    as_problem(api, Http404, lambda error: ApiProblem("missing", describe_missing(error)))
    api.add_exception_handler(PermissionDenied, give("permission", "The token's role does not allow this."))
    api.add_exception_handler(RequestDataTooBig, give("size", "The request body is too large."))
    api.add_exception_handler(Exception, broken)


def make_retry_headers(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


def describe_missing(error: Http404) -> str:
    """The words of a 404; Django's own name models, which nobody outside has to know."""
    message = str(error)
    return "Not found in your team." if not message or "matches the given query" in message else message
