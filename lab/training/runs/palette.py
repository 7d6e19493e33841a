"""What Ctrl+K finds of a team besides pages: runs by number and name, recipes and methods; rooms further right add their own kinds to SOURCES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import F, Q
from django.urls import reverse
from django.utils.http import urlencode

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.lib.registry import Registry
from lab.teams.accounts.models import Team, User
from lab.teams.accounts.permissions import is_role_allowed
from lab.training.catalog.catalog import load_catalog
from lab.training.catalog.methods import all_methods
from lab.training.catalog.models import SavedRecipe
from lab.training.catalog.systems import load_systems
from lab.training.runs.models import Run

MOST = 6  # of a kind
LONGEST = 100  # characters; longer text is cut


@dataclass(frozen=True)
class PaletteEntry:
    words: str
    kind: str
    url: str


@dataclass(frozen=True)
class PaletteQuery:
    """``words`` in small letters; what is found holds all of them. ``role`` is the person's in the team."""

    team: Team
    user: User
    role: str
    words: tuple[str, ...]

    def may(self, permission: str) -> bool:
        return is_role_allowed(self.role, permission)

    def build_condition(self, field: str) -> Q:
        return Q(*(Q(**{f"{field}__icontains": word}) for word in self.words))

    def matches(self, text: str) -> bool:
        return all(word in text.lower() for word in self.words)


Find = Callable[[PaletteQuery], list[PaletteEntry]]


@dataclass(frozen=True)
class PaletteSource:
    """``permission``: of those who are shown what it finds."""

    permission: str
    find: Find


SOURCES: Registry[PaletteSource] = Registry("source of the palette")


def find_palette_entries(team: Team, user: User, role: str, text: str) -> list[PaletteEntry]:
    words = tuple(text.replace("\0", "")[:LONGEST].lower().split())
    query = PaletteQuery(team, user, role, words)
    return [entry for source in SOURCES.values() if words and query.may(source.permission) for entry in source.find(query)[:MOST]]


def register_run_sources() -> None:
    SOURCES.register("runs", PaletteSource("runs.read", find_runs))
    SOURCES.register("recipes", PaletteSource("runs.read", find_recipes))
    SOURCES.register("methods", PaletteSource("runs.read", find_methods))
    SOURCES.register("systems", PaletteSource("runs.read", find_systems))


def find_runs(query: PaletteQuery) -> list[PaletteEntry]:
    """The run of that number first, then by name, the newest first; archived ones last."""
    runs = Run.objects.of(query.team).only("number", "name", "archived_at").order_by(F("archived_at").asc(nulls_first=True), "-number")
    number = parse_whole_number(query.words[0].removeprefix("#"), MAX_INTEGER) if len(query.words) == 1 else None
    found = list(runs.filter(number=number)) if number is not None else []
    found += [run for run in runs.filter(query.build_condition("name"))[:MOST] if run not in found]
    return [PaletteEntry(str(run), "archived run" if run.archived_at else "run", reverse("run", args=[run.pk])) for run in found]


def find_recipes(query: PaletteQuery) -> list[PaletteEntry]:
    """Those of the catalogue for who may launch them, and those the team saved."""
    offered = load_catalog().recipes if query.may("runs.launch") else []
    built_in = [
        (recipe["title"], reverse("launch-recipe", args=[recipe["name"]]))
        for recipe in offered
        if query.matches(f"{recipe['name']} {recipe['title']}")
    ]
    saved = SavedRecipe.objects.of(query.team).filter(query.build_condition("name"), deleted_at=None).order_by("name")[:MOST]
    return [PaletteEntry(title, "recipe", url) for title, url in [*((one.name, reverse("recipe-saved", args=[one.pk])) for one in saved), *built_in]]


def find_methods(query: PaletteQuery) -> list[PaletteEntry]:
    """By name and title; methods whose name begins so come first."""
    found = [method for method in all_methods(load_catalog().methods) if query.matches(f"{method.name} {method.data['title']}")]
    found.sort(key=lambda method: not method.name.lower().startswith(query.words[0]))
    return [PaletteEntry(f"{method.data['title']} ({method.name})", "method", reverse("method", args=[method.name])) for method in found[:MOST]]


def find_systems(query: PaletteQuery) -> list[PaletteEntry]:
    """By id, paper and arXiv id; a system that is a method under its id is found as one."""
    methods = load_catalog().methods_by_name
    found = [one for one in load_systems().values() if one.id not in methods and query.matches(f"{one.id} {one.paper} {one.arxiv}")]
    return [PaletteEntry(f"{one.paper} ({one.id})", "system", f"{reverse('systems')}?{urlencode({'q': one.id})}") for one in found[:MOST]]
