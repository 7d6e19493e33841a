"""The OpenID Connect provider that the environment names, in the form django-allauth's settings want."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from environ import Env

PROVIDER = "sso"  # stands in the callback's address: /accounts/oidc/sso/login/callback/
WANTED = ("LAB_OIDC_URL", "LAB_OIDC_CLIENT", "LAB_OIDC_SECRET")


def build_sso_providers(env: Env) -> dict[str, Any]:
    """Empty without LAB_OIDC_*. Raises ImproperlyConfigured when some of them are set and others are not."""
    given = {name: env.str(name, default="") for name in WANTED}
    if not any(given.values()):
        return {}
    if missing := [name for name, value in given.items() if not value]:
        raise ImproperlyConfigured(f"single sign-on needs {', '.join(WANTED)}; not set: {', '.join(missing)}")
    app = {
        "provider_id": PROVIDER,
        "name": env.str("LAB_OIDC_NAME", default="single sign-on"),
        "client_id": given["LAB_OIDC_CLIENT"],
        "secret": given["LAB_OIDC_SECRET"],
        "settings": {"server_url": given["LAB_OIDC_URL"].rstrip("/"), "oauth_pkce_enabled": True, "email_authentication": True},
    }
    return {"openid_connect": {"APPS": [app]}}
