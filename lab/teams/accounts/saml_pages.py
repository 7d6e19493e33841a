"""The addresses of SAML single sign-on: to the provider, its answer, and what the provider has to know of this lab.

The answer is a form that a page of the provider sends here, so the browser leaves the session's cookie (SameSite=Lax) out. As allauth does it, it
is put into a session of its own and read at the next address, where the cookie comes. Only answers to a question of this browser's session are
taken, each once. The packages for XML are imported where they are used: without SAML no process pays for them.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import Any

from allauth.socialaccount.helpers import complete_social_login
from django.contrib.auth.decorators import login_not_required
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from lab.lib.saml_sign_on import SLUG
from lab.teams.accounts.throttling import count_limited_attempt

log = logging.getLogger(__name__)

LONGEST_ANSWER = 256 << 10  # characters of base64
LONGEST_STATE = 2000  # characters
REMEMBERED_SECONDS = 24 * 3600  # for which a used answer is known; providers give them minutes
TRANSIENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"
UNREACHABLE = "The identity provider’s metadata could not be read. Try again; an operator can find the reason in the log of the web process."
UNASKED = (
    "This response does not belong to a sign-in that was started here in this browser, or it was used before. Start again from the sign-in page."
)
INVALID = "The identity provider’s response is not valid: {}. Try again; if the problem persists, ask an operator to check the settings for SAML."
LOGGED = "an operator can find the reason in the log of the web process"
REASONS = {  # a word of python3-saml's reason → what people read
    "ignature": "it is not signed by the identity provider, or was changed",
    "audience": "it was made for another application",
    "timestamp": "it has expired, or the clock of one of the servers is wrong",
    "received at": "it was made for another address",
    "issuer": "it comes from another identity provider",
}
NAMELESS = "The identity provider sends no lasting name of yours (a transient NameID). An operator can set uid in LAB_SAML_ATTRIBUTES."
CANCELLED = "The identity provider did not sign you in."


def find_provider(request: HttpRequest, organization_slug: str) -> Any:
    """Raises Http404 where SAML is not set up."""
    from allauth.socialaccount.providers.saml.utils import get_app_or_404

    if organization_slug != SLUG:
        raise Http404
    request.META.setdefault("HTTP_HOST", request.get_host())  # allauth reads it
    return get_app_or_404(request, organization_slug).get_provider(request)


@login_not_required
def redirect_to_identity_provider(request: HttpRequest, organization_slug: str) -> HttpResponseBase:
    find_provider(request, organization_slug)
    from allauth.socialaccount.providers.saml import views

    try:
        return views.login(request, organization_slug=organization_slug)  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError) as error:  # away (URLError is an OSError), or it answers with something else
        return refuse_sign_in(request, UNREACHABLE, error)
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("onelogin", "lxml"):
            raise
        return refuse_sign_in(request, UNREACHABLE, error)


@csrf_exempt
@login_not_required
@require_POST
def receive_response(request: HttpRequest, organization_slug: str) -> HttpResponseBase:
    """The provider's form. What it holds is checked at the next address, with the session of whoever asked."""
    find_provider(request, organization_slug)
    if len(request.POST.get("SAMLResponse", "")) > LONGEST_ANSWER:
        return refuse_sign_in(request, INVALID.format("it is too large"), status=413)
    if count_limited_attempt(request, ("saml", "")) is None:
        return refuse_sign_in(request, "Too many attempts from this network address. Wait a minute.", status=429)
    from allauth.socialaccount.providers.saml import views

    keep_what_is_read(request)
    return views.acs(request, organization_slug=organization_slug)  # type: ignore[no-any-return]


def keep_what_is_read(request: HttpRequest) -> None:
    """allauth puts the whole request into the session: what nobody reads of a form that anybody can send stays out."""
    sent, kept = request.POST, QueryDict(mutable=True)
    for name, longest in (("SAMLResponse", LONGEST_ANSWER), ("RelayState", LONGEST_STATE)):
        kept[name] = sent.get(name, "")[:longest]
    request.POST = kept  # type: ignore[assignment]


@login_not_required
@require_safe
def finish_sign_in(request: HttpRequest, organization_slug: str) -> HttpResponseBase:
    provider = find_provider(request, organization_slug)
    from allauth.core.internal import httpkit
    from allauth.socialaccount.providers.saml.utils import build_auth
    from allauth.socialaccount.sessions import LoginSession

    kept = LoginSession(request, "saml_acs_session", "saml-acs-session")
    answer = kept.store.get("request")
    kept.delete()
    if not answer:
        return refuse_sign_in(request, UNASKED)
    try:
        auth = build_auth(httpkit.deserialize_request(answer, HttpRequest()), provider)
    except Exception as error:  # the provider's metadata, over the network
        return refuse_sign_in(request, UNREACHABLE, error)
    try:
        auth.process_response()
        problem = auth.get_last_error_reason() or ", ".join(auth.get_errors())
    except Exception as error:  # what strangers send as XML breaks parsers in many ways; all of them are "no"
        return refuse_sign_in(request, INVALID.format("it cannot be read"), error)
    if problem:
        return refuse_sign_in(request, INVALID.format(next((why for word, why in REASONS.items() if word in problem), LOGGED)), problem)
    if not auth.is_authenticated():
        return refuse_sign_in(request, CANCELLED)
    return take_response(request, provider, auth)


def take_response(request: HttpRequest, provider: Any, auth: Any) -> HttpResponseBase:
    """A valid response: taken if this session asked for it, and nobody has used it."""
    asked = auth.get_last_response_in_response_to()
    used = f"saml-assertion-{sha256(str(auth.get_last_assertion_id()).encode()).hexdigest()}"
    try:
        state = provider.unstash_redirect_state(request, asked) if asked else None
    except PermissionDenied:
        state = None
    if state is None or not cache.add(used, 1, REMEMBERED_SECONDS):
        return refuse_sign_in(request, UNASKED)
    if auth.get_nameid_format() == TRANSIENT and "uid" not in provider._extract(auth):
        return refuse_sign_in(request, NAMELESS)
    try:
        login = provider.sociallogin_from_response(request, auth)
    except ValueError as error:  # without a name
        return refuse_sign_in(request, NAMELESS, error)
    login.state = state
    return complete_social_login(request, login)  # type: ignore[no-any-return]


def refuse_sign_in(request: HttpRequest, why: str, error: object = None, status: int = 403) -> HttpResponse:
    if error is not None:
        log.error("SAML sign-in failed: %s", error)
    return render(request, "socialaccount/saml_refused.html", {"why": why}, status=status)


@login_not_required
@require_safe
def show_metadata(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """Of this lab, for the provider: its name and where responses go. Signing out at the provider is not part of it."""
    provider = find_provider(request, organization_slug)
    from allauth.socialaccount.providers.saml.utils import build_sp_config
    from onelogin.saml2.metadata import OneLogin_Saml2_Metadata

    config = build_sp_config(request, provider.app.settings, organization_slug)
    config.pop("singleLogoutService")
    config |= {"NameIDFormat": "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified"}
    config["attributeConsumingService"] = {}
    return HttpResponse(OneLogin_Saml2_Metadata.builder(config, wsign=False), content_type="text/xml")


@login_not_required
def refuse_single_logout(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """allauth's settings name an address for it; there is none: an unsigned request could sign anybody out."""
    raise Http404("Single logout is not supported.")
