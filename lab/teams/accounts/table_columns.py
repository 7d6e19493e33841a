"""Which columns of a table somebody saw last in a team: remembered with their membership, by the table's name."""

from __future__ import annotations

from lab.lib.column_choice import LONGEST
from lab.teams.accounts.requests import LabRequest


def read_remembered_columns(request: LabRequest, table: str) -> str:
    """The choice as ``ColumnChoice`` writes it; empty for the usual columns."""
    return str(request.membership.columns.get(table, ""))


def remember_columns(request: LabRequest, table: str, choice: str) -> None:
    membership = request.membership
    kept = {name: text for name, text in membership.columns.items() if name != table}
    membership.columns = {**kept, table: choice[:LONGEST]} if choice else kept
    membership.save(update_fields=["columns"])
