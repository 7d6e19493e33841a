"""/admin/: the whole installation, for its operators. Signing in, out and changing the password are the lab's own pages, second factor included."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from unfold.sites import UnfoldAdminSite

from lab.edges.operations.base import is_operator_request
from lab.edges.operations.dashboard import build_dashboard

NAVIGATION = (  # (words, icon of unfold's font, name of the address)
    ("Now", "monitoring", "index"),
    ("People", "person", "accounts_user_changelist"),
    ("Teams", "groups", "accounts_team_changelist"),
    ("Memberships", "badge", "accounts_membership_changelist"),
    ("Access tokens", "key", "accounts_apitoken_changelist"),
    ("Runs", "model_training", "runs_run_changelist"),
    ("Workers", "memory", "workers_worker_changelist"),
    ("Worker starts", "rocket_launch", "workers_workerstart_changelist"),
    ("Queues", "rate_review", "labels_queue_changelist"),
    ("Quotas", "data_usage", "usage_quota_changelist"),
    ("Audit log", "history", "audit_entry_changelist"),
)


class OperatorSite(UnfoldAdminSite):  # type: ignore[misc]
    site_title = "Policy Lab, operators"
    site_header = "Policy Lab"
    index_title = "Now"
    site_url = "/"

    def has_permission(self, request: HttpRequest) -> bool:
        return is_operator_request(request)

    def login(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Django's own form asks for no second factor and is never shown."""
        back = request.GET.get("next") or reverse("admin:index")
        return redirect(f"{reverse('account_login')}?{urlencode({'next': back})}")

    def logout(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return redirect("account_logout")

    def password_change(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return redirect("account_change_password")

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Colours stand in static/team/operators.css: unfold writes them as inline styles, which the content policy refuses."""
        return {**super().each_context(request), "colors": None}

    def index(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().index(request, {**(extra_context or {}), **build_dashboard()})


def build_admin_navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The rail of /admin/."""
    items: list[dict[str, Any]] = [{"title": words, "icon": icon, "link": reverse(f"admin:{name}")} for words, icon, name in NAVIGATION]
    items[0]["active"] = request.path == reverse("admin:index")
    return [{"title": "", "items": items}]


site = OperatorSite(name="admin")
