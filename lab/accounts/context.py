"""What templates ask about the person: ``{% if may.runs.launch %}``."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from lab.accounts.permissions import TABLE, allowed
from lab.accounts.roles import role_of


class May:
    """``may.runs.launch`` in a template: whether the person's role has the permission ``runs.launch``. A name that is not in the table raises."""

    def __init__(self, role: str, beginning: str = "") -> None:
        self.role, self.beginning = role, beginning

    def __getitem__(self, name: str) -> Any:
        full = f"{self.beginning}{name}"
        return allowed(self.role, full) if full in TABLE else May(self.role, f"{full}.")


def permissions(request: HttpRequest) -> dict[str, Any]:
    """Looked up when a template asks: pages outside a team never do."""
    return {"may": SimpleLazyObject(lambda: May(role_of(request)))}
