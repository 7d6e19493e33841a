"""The two addresses of single sign-on: the way to the provider and the way back, for a provider that may be away."""

from __future__ import annotations

import logging

from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect import views
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from requests import RequestException

from lab.teams.accounts.single_sign_on import KnownPeopleAdapter

log = logging.getLogger(__name__)


@login_not_required
def redirect_to_provider(request: HttpRequest, provider_id: str) -> HttpResponse:
    try:
        return views.login(request, provider_id)
    except (RequestException, OAuth2Error) as error:
        return render_provider_error(request, provider_id, error)


@login_not_required
def come_back(request: HttpRequest, provider_id: str) -> HttpResponse:
    try:
        return views.callback(request, provider_id)
    except (RequestException, OAuth2Error) as error:
        return render_provider_error(request, provider_id, error)


def render_provider_error(request: HttpRequest, provider_id: str, error: Exception) -> HttpResponse:
    log.error("single sign-on failed: %s", error)
    return render_authentication_error(request, KnownPeopleAdapter(request).get_provider(request, provider_id), exception=error)
