"""The whole address of the browser: the selection, which columns are seen, which saved view it was opened from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from lab.lib.column_choice import ADDRESS_KEY, LONGEST, ColumnChoice
from lab.lib.numbers import parse_whole_number
from lab.rollouts.browse.selection import Filter, Selection
from trainers.contract.problems import Problem


@dataclass(frozen=True)
class Adding:
    """What stands in the control that adds a filter: empty, or what could not be used, to be mended."""

    field: str = ""
    operator: str = ""
    value: str = ""


@dataclass(frozen=True)
class Address:
    """``columns`` as the address has them, None where it leaves them to what the person chose last (``remembered``)."""

    selection: Selection
    columns: str | None = None
    remembered: str = ""
    view: int = 0
    adding: Adding = Adding()

    @classmethod
    def read(cls, query: QueryDict, remembered: str = "") -> Address:
        selection, adding = add_form_filter(Selection.read(query), query)
        columns = query.get(ADDRESS_KEY, "")[:LONGEST] if ADDRESS_KEY in query else None
        view = query.get("view", "")
        return cls(selection, columns, remembered, parse_whole_number(view) or 0, adding)

    @property
    def choice(self) -> ColumnChoice:
        return ColumnChoice.read(self.remembered if self.columns is None else self.columns)

    def url(self, **changes: Any) -> str:
        """The query string with the selection changed; the cursor is left out unless it is one of the changes."""
        further: dict[str, str | int] = {}
        if self.columns is not None:
            further[ADDRESS_KEY] = self.columns
        if self.view:
            further["view"] = self.view
        query = self.selection.query(**changes)
        return query + ("&" if len(query) > 1 and further else "") + urlencode(further)

    def url_with(self, name: str) -> str:
        """The query string with a switch of an export set."""
        query = self.url()
        return f"{query}{'&' if len(query) > 1 else ''}{name}=1"

    def with_columns(self, columns: str) -> Address:
        return replace(self, columns=columns)


def add_form_filter(selection: Selection, query: QueryDict) -> tuple[Selection, Adding]:
    """The selection with the filter that a plain form adds as three values; one that cannot be used stays in the form."""
    adding = Adding(*(query.get(name, "").strip() for name in ("field", "operator", "value")))
    if not adding.field or not (adding.value or adding.operator):
        return selection, Adding()
    one = Filter.read(f"{adding.field}:{adding.operator}:{adding.value}")
    if isinstance(one, Problem):
        return replace(selection, problems=(*selection.problems, replace(one, field="adding"))), adding
    filters = selection.filters if one in selection.filters else (*selection.filters, one)
    return replace(selection, filters=filters), Adding()
