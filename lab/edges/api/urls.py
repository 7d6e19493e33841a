"""The API, its description, and the page of access tokens."""

from django.urls import URLPattern, URLResolver, path

from lab.edges.api import base, client_pages, docs_page, token_pages, v1

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/", docs_page.show_api_docs, name="api-docs"),
    path("api/v1/openapi.json", docs_page.openapi_json, name="api-openapi"),
    path("api/v1/", (v1.operations, v1.APP, v1.NAMESPACE)),
    path("api/v1/", base.guard_api_view(base.reject_unknown_address), name="api-index"),
    path("api/v1/<path:rest>", base.guard_api_view(base.reject_unknown_address), name="api-unknown"),
    path("client/", client_pages.show_client, name="client"),
    path("client/<str:name>", client_pages.download_client, name="client-wheel"),
    path("tokens/", token_pages.show_tokens, name="tokens"),
    path("tokens/new/", token_pages.create_token, name="token-new"),
    path("tokens/<id:token_id>/revoke/", token_pages.revoke_token, name="token-revoke"),
]
