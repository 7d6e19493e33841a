"""The API, its description, and the page of access tokens."""

from django.urls import URLPattern, URLResolver, path

from lab.api import base, docs_page, token_pages, v1

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/", docs_page.docs, name="api-docs"),
    path("api/v1/openapi.json", docs_page.openapi_json, name="api-openapi"),
    path("api/v1/", (v1.operations, v1.APP, v1.NAMESPACE)),
    path("api/v1/", base.guarded(base.unknown), name="api-index"),
    path("api/v1/<path:rest>", base.guarded(base.unknown), name="api-unknown"),
    path("tokens/", token_pages.tokens, name="tokens"),
    path("tokens/new/", token_pages.create, name="token-new"),
    path("tokens/<int:token_id>/revoke/", token_pages.revoke, name="token-revoke"),
]
