"""The page of access tokens: one's own, and for admins the team's service tokens and everybody's. A secret is shown once, after it was made."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST, require_safe

from lab.edges.api import tokens as access
from lab.edges.api.client_pages import build_client_url
from lab.edges.api.token_form import TokenForm
from lab.lib.client_wheel import load_client_wheel
from lab.lib.sealed import UnsealError, seal_secret, unseal_secret
from lab.teams.accounts.models import ApiToken
from lab.teams.accounts.roles import has_team_permission, role_of

SHOWN_ONCE = "new_token"  # in the session, sealed, until the page has shown it
PURPOSE = "new access token"
LISTED = 200


@require_safe
@sensitive_variables("secret")
def show_tokens(request: HttpRequest) -> HttpResponse:
    admin = has_team_permission(request, "tokens.service")
    tokens = ApiToken.objects.filter(team=request.team).select_related("user", "created_by", "revoked_by").order_by("-pk")  # type: ignore[attr-defined]
    new, secret = just_made(request)
    context: dict[str, Any] = {
        "room": "tokens",
        "mine": list_usable_tokens(tokens.filter(user=request.user)),  # type: ignore[misc]
        "admin": admin,
        "service": list_usable_tokens(tokens.filter(user=None)) if admin else [],
        "others": list_usable_tokens(tokens.exclude(user=None).exclude(user=request.user)) if admin else [],  # type: ignore[misc]
        "ended": tokens.filter(build_ended_filter() & (Q() if admin else Q(user=request.user)))[:LISTED],  # type: ignore[misc]
        "new": new,
        "secret": secret,
        "lab_url": settings.LAB_URL,
        "client_url": build_client_url(load_client_wheel()),
        "now": timezone.now(),
    }
    response = TemplateResponse(request, "api/tokens.html", context)
    response.headers["Cache-Control"] = "no-store"
    return response


def build_ended_filter() -> Q:
    return Q(revoked_at__isnull=False) | Q(expires_at__lte=timezone.now())


def list_usable_tokens(tokens: QuerySet[ApiToken]) -> QuerySet[ApiToken]:
    return tokens.exclude(build_ended_filter())[:LISTED]


def just_made(request: HttpRequest) -> tuple[ApiToken | None, str]:
    """The token that was made a moment ago, with its secret; the second time nothing."""
    kept = request.session.pop(SHOWN_ONCE, None)
    if not kept:
        return None, ""
    try:
        key, secret = unseal_secret(PURPOSE, kept.encode()).split(" ")
    except UnsealError:
        return None, ""
    return ApiToken.objects.filter(pk=int(key), team=request.team).first(), secret  # type: ignore[attr-defined]


def create_token(request: HttpRequest) -> HttpResponse:
    """The form of a new token; with ``?service=1`` of a service token, for admins."""
    service = (request.POST if request.method == "POST" else request.GET).get("service") == "1"
    if service and not has_team_permission(request, "tokens.service"):
        raise Http404
    if "tick" in request.POST:  # a button that ticks what a purpose needs and keeps the rest
        kept = {name: request.POST.get(name, "")[:200] for name in ("name", "days", "role")}
        form = TokenForm(role_of(request), service, preset=request.POST["tick"], initial=kept)
        return TemplateResponse(request, "api/token_new.html", {"room": "tokens", "form": form, "service": service})
    form = TokenForm(role_of(request), service, request.POST if request.method == "POST" else None, preset=request.GET.get("for", ""))
    if request.method != "POST" or not form.is_valid():
        context = {"room": "tokens", "form": form, "service": service}
        return TemplateResponse(request, "api/token_new.html", context, status=422 if form.is_bound else 200)
    return save_new_token(request, form, service)


@sensitive_variables("secret")
def save_new_token(request: HttpRequest, form: TokenForm, service: bool) -> HttpResponse:
    given = form.cleaned_data
    user: Any = request.user
    token, secret = access.create_access_token(
        request.team,  # type: ignore[attr-defined]
        None if service else user,
        given["name"],
        given["scopes"],
        form.expires_at(),
        role=given["role"] if service else "",
        by=user,
    )
    request.session[SHOWN_ONCE] = seal_secret(PURPOSE, f"{token.pk} {secret}").decode()
    return redirect("tokens")


@require_POST
def revoke_token(request: HttpRequest, token_id: int) -> HttpResponse:
    mine = ApiToken.objects.filter(team=request.team)  # type: ignore[attr-defined]
    if not has_team_permission(request, "tokens.service"):
        mine = mine.filter(user=request.user)  # type: ignore[misc]
    token = get_object_or_404(mine, pk=token_id)
    if access.revoke_access_token(token, request.user):  # type: ignore[arg-type]
        messages.success(request, f"{token.name} was revoked. Requests with it are refused from now on.")
    else:
        messages.info(request, f"{token.name} was already revoked.")
    return redirect("tokens")
