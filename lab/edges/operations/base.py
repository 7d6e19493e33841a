"""What every page of /admin/ keeps to: nothing is added or deleted by hand, every change is in the audit log, JSON can be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from unfold.admin import ModelAdmin

from lab.teams.accounts.models import Team
from lab.teams.accounts.second_factor import is_operator
from lab.teams.audit.recording import record_audit_entry

LISTED = 20  # objects named on the page that asks
Act = Callable[[HttpRequest, Any], str]  # does it to one object; "" when it was done, else why not


SUFFIXES = ("", "__exact", "__in", "__isnull", "__isempty", "__id__exact")  # what the links of Django's filters put behind a field


def is_operator_request(request: HttpRequest) -> bool:
    """Asked several times for a page, looked up once."""
    if not hasattr(request, "is_operator"):
        request.is_operator = is_operator(request.user)  # type: ignore[attr-defined, arg-type]
    return bool(request.is_operator)  # type: ignore[attr-defined]


class OperatorAdmin(ModelAdmin):  # type: ignore[misc]
    """Everything can be seen by every operator; ``editable`` fields can be changed. Deleting is left to the lab, which knows what hangs on what."""

    editable: tuple[str, ...] = ()
    list_per_page = 50
    show_full_result_count = False
    compressed_fields = True
    actions_selection_counter = True

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only what the page's own filters ask. Django allows every column, and by its beginning a secret is found letter by letter."""
        filters = self.get_list_filter(request) if request is not None else self.list_filter
        fields = [entry[0] if isinstance(entry, (tuple, list)) else entry for entry in filters]
        return lookup in {f"{field}{suffix}" for field in fields if isinstance(field, str) for suffix in SUFFIXES}

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_operator_request(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator_request(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator_request(request) and bool(self.editable)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        names = self.fields or [field.name for field in self.model._meta.fields]
        return [name for name in names if name not in self.editable]

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:
        """In the audit log instead of Django's own, which can be deleted. In the transaction of the change."""
        fields = [name for part in message if isinstance(part, dict) for name in part.get("changed", {}).get("fields", [])]
        record_audit_entry("admin.change", obj, team=team_of(obj), changed=fields)


def team_of(obj: models.Model) -> Team | None:
    return obj if isinstance(obj, Team) else getattr(obj, "team", None)


def render_json_block(value: Any) -> str:
    """JSON over several lines, as text."""
    return format_html('<pre class="operators-json">{}</pre>', json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True, default=str))


def make_confirmed_action(words: str, consequence: str) -> Callable[[Act], Callable[..., HttpResponse | None]]:
    """A bulk action that says first what it will do to what, and does it once it is confirmed.

    The act is done to each object by itself, so that one that refuses keeps nobody else from it; what was done is recorded by the act.
    """

    def decorate(act: Act) -> Callable[..., HttpResponse | None]:
        def action(self: OperatorAdmin, request: HttpRequest, chosen: models.QuerySet[Any]) -> HttpResponse | None:
            if request.POST.get("confirmed") != "yes":
                return render_confirmation(self, request, chosen, act.__name__, words, consequence)
            refused = {str(row): why for row in chosen if (why := act(request, row))}
            done = chosen.count() - len(refused)
            if done:
                self.message_user(request, f"{words}: done for {done}.", messages.SUCCESS)
            for name, why in list(refused.items())[:LISTED]:
                self.message_user(request, f"{name}: {why}", messages.WARNING)
            return None

        action.__name__ = act.__name__
        action.short_description = words  # type: ignore[attr-defined]
        return action

    return decorate


def render_confirmation(
    admin: OperatorAdmin, request: HttpRequest, chosen: models.QuerySet[Any], name: str, words: str, consequence: str
) -> HttpResponse:
    count = chosen.count()
    context = {
        **admin.admin_site.each_context(request),
        "title": f"{words}?",
        "opts": admin.model._meta,
        "words": words,
        "consequence": consequence,
        "action": name,
        "keys": list(chosen.values_list("pk", flat=True)),
        "named": [str(row) for row in chosen[:LISTED]],
        "unnamed": max(0, count - LISTED),
        "count": count,
        "media": admin.media,
    }
    return TemplateResponse(request, "admin/asked.html", context)
