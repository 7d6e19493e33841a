"""The API at /api/v1: who asks (a bearer token, never a cookie), what they may, and how answers look. Operations live in ``operations/``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import ninja
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Router, Schema
from ninja.params.models import QueryModel
from ninja.parser import Parser
from ninja.renderers import JSONRenderer
from ninja.security.base import AuthBase
from ninja.utils import replace_path_param_notation
from pydantic import ConfigDict, StrictBool, StrictFloat, StrictInt, StrictStr

from lab.edges.api import limits, problems, tokens
from lab.edges.api.problems import ApiProblem
from lab.lib.log_context import choose_request_id, get_log_context
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import ApiToken, Membership, Team, User
from lab.teams.accounts.permissions import TABLE, explain_role_refusal, is_role_allowed

Query: Any = ninja.Query  # a parameter of the address; django-ninja types it as generic
BODY = 2_000_000  # bytes of a request's body
DEEPEST = 40  # levels of a body's objects and lists
LINES = re.compile(
    r"/api/v1/(outside/runs/[^/]+/events|datasets/import|tasks/uploads)"
)  # take lines and files instead of JSON, more than BODY (settings.BODY_LIMITS)
SCOPES: set[str] = {"runs.send"}  # the permissions that some operation asks for; what a token can be given


class RequestBody(Schema):
    """What a request may hold: a name that is not known is refused instead of ignored, and only a number is a number (not true, not "3")."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for field in cls.model_fields.values():
            field.annotation = make_annotation_strict(field.annotation)
        cls.model_rebuild(force=True)


STRICT: dict[Any, Any] = {int: StrictInt, float: StrictFloat, bool: StrictBool, str: StrictStr}


def make_annotation_strict(annotation: Any) -> Any:
    """The annotation with numbers, truth values and texts that take nothing else for themselves, inside lists, mappings and choices too."""
    if annotation in STRICT:
        return STRICT[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[(make_annotation_strict(arguments[0]), *arguments[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(make_annotation_strict(argument) for argument in arguments)]  # noqa: UP007
    return origin[tuple(make_annotation_strict(argument) for argument in arguments)] if origin in (list, dict, tuple, set) else annotation


@dataclass(frozen=True)
class Caller:
    """Whose request it is. ``user`` is None for a service token, which acts with ``role`` and for nobody."""

    token: ApiToken
    team: Team
    user: User | None
    role: str

    def may(self, permission: str) -> bool:
        return permission in self.token.scopes and is_role_allowed(self.role, permission)

    def person(self, why: str) -> User:
        """Raises ApiProblem for a service token; ``why`` ends the sentence."""
        if self.user is None:
            raise ApiProblem("person", f"Service tokens cannot do this: {why}. Use a personal token.")
        return self.user


class AccessToken(AuthBase):  # type: ignore[misc]
    """Admits requests with a token whose scopes and role hold ``permission`` (any usable token when it is empty)."""

    openapi_type = "http"
    openapi_scheme = "bearer"

    def __init__(self, permission: str = "") -> None:
        super().__init__()
        self.permission = permission

    def __call__(self, request: HttpRequest) -> Caller:
        caller = authenticate_caller(request)
        if self.permission:
            check_caller_permission(caller, self.permission)
        refuse_unknown_parameters(request)
        return caller


def refuse_unknown_parameters(request: HttpRequest) -> None:
    """Raises ApiProblem naming every parameter of the address that the operation does not have."""
    match = request.resolver_match
    known = collect_query_parameters().get((request.method or "", match.route if match else ""), frozenset())
    if unknown := [name for name in request.GET if name not in known]:
        fix = f"remove it; known parameters: {', '.join(sorted(known))}" if known else "remove it; this endpoint takes no parameters"
        raise problems.make_validation_problem(
            problems.FieldProblem(field=name[:100], message="is not a parameter of this endpoint", fix=fix) for name in unknown
        )


@cache
def collect_query_parameters() -> dict[tuple[str, str], frozenset[str]]:
    """(method, route as Django resolves it) -> names of the operation's parameters in the address."""
    parameters: dict[tuple[str, str], frozenset[str]] = {}
    for router in api._get_bound_routers():
        for path, view in router.path_operations.items():
            for operation in view.operations:
                names = [name for model in operation.models if issubclass(model, QueryModel) for name in model.__ninja_flatten_map__]
                route = "api/v1" + replace_path_param_notation(f"{router.prefix}{path}")
                parameters |= {(method, route): frozenset(names) for method in operation.methods}
    return parameters


def require_permission(permission: str) -> AccessToken:
    """For ``auth=`` of an operation: the line of the permission table it asks for. Raises KeyError for one that is not there."""
    SCOPES.add(TABLE[permission].name)
    return AccessToken(permission)


any_token = AccessToken()


def authenticate_caller(request: HttpRequest) -> Caller:
    """Raises ApiProblem 401 or 429."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    challenge = {"WWW-Authenticate": 'Bearer realm="Policy Lab"'}
    if scheme.lower() != "bearer" or not secret.strip():
        detail = "Send an access token in the header Authorization: Bearer lab_… Create one in the lab under Access tokens."
        raise ApiProblem("token", detail, headers=challenge)
    try:
        token, role = tokens.look_up(secret.strip())
    except Refusal as error:
        raise ApiProblem("token", str(error), headers={"WWW-Authenticate": f'{challenge["WWW-Authenticate"]}, error="invalid_token"'}) from None
    tokens.act_as(token)
    get_log_context().team = str(token.team_id)
    rate = limits.count_token_request(str(token.pk))
    request.api_rate = rate  # type: ignore[attr-defined]
    if rate is not None and not rate.passed:
        raise ApiProblem("rate", f"Rate limit of {rate.limit} requests per minute exceeded. Try again in {rate.seconds} s.")
    tokens.record_token_use(token)
    request.team = token.team  # type: ignore[attr-defined]
    request.membership = Membership(team=token.team, user=token.user, role=role)  # type: ignore[attr-defined]
    return Caller(token, token.team, token.user, role)


def check_caller_permission(caller: Caller, permission: str) -> None:
    """Raises ApiProblem 403 unless both the token's scopes and the role hold the permission."""
    if permission not in caller.token.scopes:
        raise ApiProblem("permission", f"This token lacks the scope {permission}; create one that has it.")
    if not is_role_allowed(caller.role, permission):
        raise ApiProblem("permission", explain_role_refusal(permission, caller.role, caller.team.name))


def caller_of(request: HttpRequest) -> Caller:
    return request.auth  # type: ignore[attr-defined, no-any-return]


def one_of(rows: Any, key: int) -> Any:
    """The row with that id. Raises Http404, also for an id that no database holds."""
    row = rows.filter(pk=key).first()
    if row is None:
        raise Http404
    return row


class CheckedParser(Parser):
    """What PostgreSQL cannot hold is refused at the border, with its place: NUL, half a surrogate pair, an integer of more than 64 bits, NaN."""

    def parse_body(self, request: HttpRequest) -> Any:
        try:
            body = json.loads(request.body)
        except RecursionError:
            raise ApiProblem("malformed", "The body is nested too deeply.") from None
        refuse_unstorable(body, "", 0)
        return body

    def parse_querydict(self, data: Any, list_fields: list[str], request: HttpRequest) -> Any:
        for key in data:
            for value in data.getlist(key):
                refuse_unstorable(value, key if key.isprintable() else "the query", 0)
        return super().parse_querydict(data, list_fields, request)


def refuse_unstorable(value: Any, path: str, depth: int) -> None:
    if depth > DEEPEST:
        raise ApiProblem("malformed", "The body is nested too deeply.")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise problems.make_invalid_problem(path or "the body", "is too large", "give a 64-bit number")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise problems.make_invalid_problem(path or "the body", "contains an invalid character (NUL or a lone surrogate)", "leave it out")
    elif isinstance(value, float) and not math.isfinite(value):
        raise problems.make_invalid_problem(
            path or "the body", "is NaN, infinite or too large for a JSON number", "give a finite number, or remove it"
        )
    elif isinstance(value, dict):
        for key, inner in value.items():
            refuse_unstorable(key, path, depth)
            refuse_unstorable(inner, f"{path}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            refuse_unstorable(inner, f"{path}.{number}".lstrip("."), depth + 1)


class StrictRenderer(JSONRenderer):
    """JSON has no NaN: a number that is none is null."""

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> Any:
        try:
            return json.dumps(data, cls=self.encoder_class, allow_nan=False)
        except ValueError:
            return json.dumps(replace_nonfinite(data), cls=self.encoder_class, allow_nan=False)


def replace_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: replace_nonfinite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(inner) for inner in value]
    return None if isinstance(value, float) and value - value != 0 else value


class LabApi(NinjaAPI):  # type: ignore[misc]
    def get_openapi_operation_id(self, operation: Any) -> str:
        return str(operation.view_func.__name__)


def lab_api() -> LabApi:
    api = LabApi(
        title="Policy Lab",
        version="v1",
        urls_namespace="api-v1",
        openapi_url=None,
        docs_url=None,
        parser=CheckedParser(),
        renderer=StrictRenderer(),
    )
    problems.register_problem_handlers(api)
    return api


api = lab_api()


def make_router(tag: str) -> Router:
    """The operations about one kind of thing; ``tag`` is their heading."""
    return Router(tags=[tag])


def guard_api_view(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """What holds for every answer below /api/v1/: its id, its size, problems instead of pages, and that no cookie counts."""

    @csrf_exempt
    @login_not_required
    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        request.api_id = get_log_context().request or choose_request_id(request.headers.get("X-Request-Id", ""))  # type: ignore[attr-defined]
        try:
            refuse_at_the_door(request)
            response = view(request, *args, **kwargs)
        except Exception as error:
            response = api.on_exception(request, error)
        if isinstance(response, HttpResponseNotAllowed):
            verbs = response.headers["Allow"]
            response = problems.render_problem(request, ApiProblem("method", f"This endpoint accepts {verbs}.", headers={"Allow": verbs}))
        return with_headers(request, response)

    return answer


def refuse_at_the_door(request: HttpRequest) -> None:
    if request.team_slug:  # type: ignore[attr-defined]
        raise Http404("API URLs contain no team: the token determines the team.")
    if LINES.fullmatch(request.path):
        return
    length = parse_whole_number(request.META.get("CONTENT_LENGTH") or "0", BODY)
    if length is None:
        raise ApiProblem("size", f"Requests are limited to {BODY // 1000:,} kB; send less at once.")
    if request.method in ("POST", "PUT", "PATCH") and length and request.content_type != "application/json":
        raise ApiProblem("malformed", "The body must be JSON: send the header Content-Type: application/json.")


def with_headers(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    response.headers["X-Request-Id"] = request.api_id  # type: ignore[attr-defined]
    response.headers.setdefault("Cache-Control", "no-store")
    rate = getattr(request, "api_rate", None)
    for name, value in rate.headers.items() if rate is not None else ():
        response.headers[name] = value
    return response


def reject_unknown_address(request: HttpRequest, rest: str = "") -> HttpResponse:
    """Every address below /api/v1/ that is no operation's."""
    raise Http404(f"The API has no endpoint /api/v1/{rest[:200]}; see {settings.LAB_URL}/api/v1/openapi.json")
