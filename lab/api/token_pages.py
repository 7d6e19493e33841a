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

from lab.accounts.models import ApiToken
from lab.accounts.roles import may, role_of
from lab.api import tokens as access
from lab.api.token_form import TokenForm
from lab.browse.address import MAX_ID
from lab.lib.sealed import Unreadable, seal, unseal

SHOWN_ONCE = "new_token"  # in the session, sealed, until the page has shown it
PURPOSE = "new access token"
LISTED = 200


@require_safe
@sensitive_variables("secret")
def tokens(request: HttpRequest) -> HttpResponse:
    admin = may(request, "tokens.service")
    found = ApiToken.objects.filter(team=request.team).select_related("user", "created_by", "revoked_by").order_by("-pk")  # type: ignore[attr-defined]
    new, secret = just_made(request)
    context: dict[str, Any] = {
        "room": "tokens",
        "mine": usable(found.filter(user=request.user)),  # type: ignore[misc]
        "admin": admin,
        "service": usable(found.filter(user=None)) if admin else [],
        "others": usable(found.exclude(user=None).exclude(user=request.user)) if admin else [],  # type: ignore[misc]
        "ended": found.filter(ended() & (Q() if admin else Q(user=request.user)))[:LISTED],  # type: ignore[misc]
        "new": new,
        "secret": secret,
        "lab_url": settings.LAB_URL,
        "now": timezone.now(),
    }
    response = TemplateResponse(request, "api/tokens.html", context)
    response.headers["Cache-Control"] = "no-store"
    return response


def ended() -> Q:
    return Q(revoked_at__isnull=False) | Q(expires_at__lte=timezone.now())


def usable(found: QuerySet[ApiToken]) -> QuerySet[ApiToken]:
    return found.exclude(ended())[:LISTED]


def just_made(request: HttpRequest) -> tuple[ApiToken | None, str]:
    """The token that was made a moment ago, with its secret; the second time nothing."""
    kept = request.session.pop(SHOWN_ONCE, None)
    if not kept:
        return None, ""
    try:
        key, secret = unseal(PURPOSE, kept.encode()).split(" ")
    except Unreadable:
        return None, ""
    return ApiToken.objects.filter(pk=int(key), team=request.team).first(), secret  # type: ignore[attr-defined]


def create(request: HttpRequest) -> HttpResponse:
    """The form of a new token; with ``?service=1`` of a service token, for admins."""
    service = (request.POST if request.method == "POST" else request.GET).get("service") == "1"
    if service and not may(request, "tokens.service"):
        raise Http404
    if "tick" in request.POST:  # a button that ticks what a purpose needs and keeps the rest
        kept = {name: request.POST.get(name, "")[:200] for name in ("name", "days", "role")}
        form = TokenForm(role_of(request), service, preset=request.POST["tick"], initial=kept)
        return TemplateResponse(request, "api/token_new.html", {"room": "tokens", "form": form, "service": service})
    form = TokenForm(role_of(request), service, request.POST if request.method == "POST" else None, preset=request.GET.get("for", ""))
    if request.method != "POST" or not form.is_valid():
        context = {"room": "tokens", "form": form, "service": service}
        return TemplateResponse(request, "api/token_new.html", context, status=422 if form.is_bound else 200)
    return made(request, form, service)


@sensitive_variables("secret")
def made(request: HttpRequest, form: TokenForm, service: bool) -> HttpResponse:
    given = form.cleaned_data
    user: Any = request.user
    token, secret = access.create(
        request.team,  # type: ignore[attr-defined]
        None if service else user,
        given["name"],
        given["scopes"],
        form.expires_at(),
        role=given["role"] if service else "",
        by=user,
    )
    request.session[SHOWN_ONCE] = seal(PURPOSE, f"{token.pk} {secret}").decode()
    return redirect("tokens")


@require_POST
def revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    if token_id > MAX_ID:
        raise Http404
    mine = ApiToken.objects.filter(team=request.team)  # type: ignore[attr-defined]
    if not may(request, "tokens.service"):
        mine = mine.filter(user=request.user)  # type: ignore[misc]
    token = get_object_or_404(mine, pk=token_id)
    if access.revoke(token, request.user):  # type: ignore[arg-type]
        messages.success(request, f"{token.name} is revoked; the next request with it is refused.")
    else:
        messages.info(request, f"{token.name} was revoked already.")
    return redirect("tokens")
