"""The published systems of ``systems.toml``: one table each, keyed by id."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lab.training.catalog import system_words
from lab.training.catalog.facets import C, Facet

FILE = Path(__file__).with_name("systems.toml")
SEARCH_WORLDS = frozenset(
    {"search", "entity_search", "judged_search", "paragraphs", "planned_search", "sourced_search", "toolbox", "two_corpora"}
)  # where a policy looks things up


@dataclass(frozen=True)
class SearchTags:
    """Of a search agent: what RL does for it, how it is trained, and which part is trained. Our assignment to the axes of arXiv 2510.16724."""

    role: str
    how: tuple[str, ...]
    scope: str

    @property
    def words(self) -> list[tuple[str, str]]:
        """(axis, words) of each."""
        how = ", ".join(system_words.HOWS[one] for one in self.how)
        return [("Role of RL", system_words.ROLES[self.role]), ("Trained by", how), ("Scope", system_words.SCOPES[self.scope])]


@dataclass(frozen=True)
class PublishedSystem:
    """``paper``: the title of its paper. ``ideas``: the first is what it is listed under. ``kind``, ``changes`` and ``about`` (a sentence) describe
    what is not in the catalogue as a method. ``stand_in``: published for images, video or sound, here the same algorithm on text. ``outside``: not
    about language models; at most an idea of it becomes a method, under a name of its own and with a source that says what the system is ``called``.
    ``reason``: why it is listed only.
    """

    id: str
    paper: str
    arxiv: str
    ideas: tuple[str, ...]
    kind: str = ""
    changes: tuple[str, ...] = ()
    about: str = ""
    stand_in: bool = False
    outside: bool = False
    called: str = ""
    reason: str = ""
    search: SearchTags | None = None

    @property
    def listed_only(self) -> bool:
        return self.kind == "listed"


@lru_cache(maxsize=1)
def load_systems() -> Mapping[str, PublishedSystem]:
    """By id; comes with the code, so it is read once."""
    return {key: build_system(key, entry) for key, entry in tomllib.loads(FILE.read_text()).items()}


def build_system(key: str, entry: Mapping[str, Any]) -> PublishedSystem:
    """Raises TypeError for a key that is not known, KeyError for tags that lack one of the three."""
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items() if name != "search"}
    tags = entry.get("search")
    return PublishedSystem(id=key, **known, search=SearchTags(tags["role"], tuple(tags["how"]), tags["scope"]) if tags else None)


def find_search_tags(method: str) -> SearchTags | None:
    """Of the system that the method is named after."""
    system = load_systems().get(method)
    return system.search if system else None


def make_search_facets(tags_of: Callable[[C], SearchTags | None]) -> dict[str, Facet[C]]:
    """The three facets of search agents on a page of cards; cards without tags have no value of any."""

    def make_facet(title: str, values_of: Callable[[SearchTags], tuple[str, ...]], words: Mapping[str, str]) -> Facet[C]:
        return (f"Search agents: {title}", lambda card: list(values_of(tags)) if (tags := tags_of(card)) else [], words)

    return {
        "role": make_facet("role of RL", lambda tags: (tags.role,), system_words.ROLES),
        "how": make_facet("trained by", lambda tags: tags.how, system_words.HOWS),
        "scope": make_facet("scope", lambda tags: (tags.scope,), system_words.SCOPES),
    }
