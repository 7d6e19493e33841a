"""What a page may load and run. The browser keeps it, whatever got into a page: scripts and styles only from the lab's own files or with the nonce
of the answer, nothing evaluated, nothing framed, forms sent to the lab (and to the sign-in provider) only.

/admin/ is unfold's, whose menus are Alpine expressions and whose scripts write style elements: that part alone, for operators who are signed in,
may evaluate strings and hold styles. Inline scripts it may not hold either.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from csp.constants import NONCE, NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.middleware import CSPMiddleware, PolicyParts
from django.http import HttpRequest, HttpResponseBase

REPORTS = "/csp-report/"
ADMIN = "/admin/"


def build_csp_directives(providers: list[str]) -> dict[str, Any]:
    """``providers``: addresses of sign-in providers, to whose origins a sign-in form may lead. Raises ValueError for one that is no web address."""
    return {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "font-src": [SELF],
        "img-src": [SELF, "data:", "blob:"],  # pictures of charts: Plotly draws them through a data: or blob: address
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF, *sorted({parse_web_origin(provider) for provider in providers})],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "object-src": [NONE],
        "report-uri": [REPORTS],
    }


def parse_web_origin(address: str) -> str:
    """``https://id.example.org`` of any address there. Raises ValueError."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{address!r} is not a web address with http:// or https://")
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"


class ContentPolicyMiddleware(CSPMiddleware):
    def get_policy_parts(self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        user = getattr(request, "user", None)
        if not report_only and request.path_info.startswith(ADMIN) and getattr(user, "is_staff", False):
            parts.replace = {"script-src": [SELF, UNSAFE_EVAL], "style-src": [SELF, UNSAFE_INLINE], **(parts.replace or {})}
        return parts
