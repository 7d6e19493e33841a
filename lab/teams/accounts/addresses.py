"""Addresses outside a request: for mails, webhooks, the API and workers."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.urls import get_script_prefix, reverse

from lab.teams.accounts.models import Team


def team_path(team: Team, name: str, *args: Any, **kwargs: Any) -> str:
    """The path of a page in ``team``, whichever team the request in hand is in: ``/t/reasoning/runs/``."""
    return in_team(team, reverse(name, args=args or None, kwargs=kwargs or None))


def in_team(team: Team, path: str) -> str:
    """What ``reverse`` gave, as a path in ``team``, whichever team the request in hand is in."""
    return f"/t/{team.slug}/{path.removeprefix(get_script_prefix())}"


def build_absolute_url(path: str) -> str:
    """With the lab's own public address, LAB_URL, before it; never that of a request's Host header."""
    return f"{settings.LAB_URL}{path}"


def outer_path(name: str, *args: Any, **kwargs: Any) -> str:
    """The path of a page that stands outside teams, whichever team the request in hand is in: ``/invitation/…/``."""
    return f"/{reverse(name, args=args or None, kwargs=kwargs or None).removeprefix(get_script_prefix())}"
