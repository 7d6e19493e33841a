"""The audit log of the whole installation, to be read."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from lab.edges.operations.base import OperatorAdmin, render_json_block
from lab.edges.operations.site import site
from lab.teams.audit.actions import ACTIONS
from lab.teams.audit.models import Entry


@admin.register(Entry, site=site)
class EntryAdmin(OperatorAdmin):
    """``paginator`` counts nothing here that would read the table: full counts are off."""

    list_display = ("at", "team", "who", "did", "kind", "label", "via", "address")
    list_filter = ("via", ("team", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("team",)
    search_fields = ("who", "label", "object_id")
    ordering = ("-id",)
    fields = ("at", "team", "actor", "who", "via", "token", "action", "kind", "object_id", "label", "address", "agent", "more")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Entry]:
        return super().get_queryset(request).defer("words")  # type: ignore[no-any-return]

    @admin.display(description="did")
    def did(self, entry: Entry) -> str:
        return ACTIONS.get(entry.action, entry.action)

    @admin.display(description="details")
    def more(self, entry: Entry) -> str:
        return render_json_block(entry.details)
