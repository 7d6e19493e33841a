"""Rollouts through the product's ingest, and selections as an address asks for them."""

from urllib.parse import quote

from django.http import QueryDict

from lab.rollouts.browse.pages import read_page
from lab.rollouts.browse.selection import Selection
from lab.teams.accounts.models import Team


def ask(text: str = "", after: str = "") -> Selection:
    """``text`` as in the address bar, "&" between parts; what stands in a part is quoted here."""
    parts = [part.partition("=") for part in text.split("&") if part]
    query = "&".join(f"{name}={quote(value)}" for name, _, value in [*parts, ("after", "=", after)])
    return Selection.read(QueryDict(query))


def places(team: Team, text: str) -> list[tuple[int, int, int]]:
    """(step, group, sample) of the selection's first page, sorted. Fails when anything was left out."""
    selection = ask(text)
    assert not selection.problems, selection.problems
    return sorted((row.step, row.group, row.sample) for row in read_page(team, selection, 100).rows)
