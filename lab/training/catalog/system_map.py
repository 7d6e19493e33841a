"""The map of systems: each published system with what the catalogue has of it, and its facets.

A system is here when a method has its id as name, cites its paper or names it as its source, when a recipe has its id, or when a room has registered
a place of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from django.urls import reverse
from django.utils.text import slugify

from lab.lib.registry import Registry
from lab.training.catalog import card_words, system_words
from lab.training.catalog.catalog import Catalog
from lab.training.catalog.effects import MethodComparison, MethodEffect
from lab.training.catalog.facets import Facets
from lab.training.catalog.methods import Method
from lab.training.catalog.systems import PublishedSystem, make_search_facets


@dataclass(frozen=True)
class SystemPlace:
    """A page of the lab where a system can be used that is neither a method nor a recipe. ``query``: what follows the ? of its address; ``argument``:
    of a route that has one.
    """

    title: str
    route: str
    query: str = ""
    argument: str = ""

    @property
    def url(self) -> str:
        address = reverse(self.route, args=[self.argument] if self.argument else [])
        return f"{address}?{self.query}" if self.query else address


PLACES: Registry[SystemPlace] = Registry("place of a system")  # by id of the system


@dataclass(frozen=True)
class MappedSystem:
    """``methods``: those of its name first, then others that cite its paper."""

    system: PublishedSystem
    methods: tuple[Method, ...] = ()
    recipe: str = ""
    place: SystemPlace | None = None
    effect: MethodEffect | None = None

    @property
    def named(self) -> Method | None:
        """The method of its name."""
        return next((method for method in self.methods if method.name == self.system.id), None)

    @property
    def state(self) -> str:
        if self.methods or self.recipe or self.place:
            return "here"
        return "listed" if self.system.listed_only else "planned"

    @property
    def state_title(self) -> str:
        return system_words.STATES[self.state]

    @property
    def kind(self) -> str:
        """By the catalogue where it shows it, else as planned."""
        for method in self.methods[:1]:
            if method.is_base:
                return "base"
            if method.trainers == ["procedure"]:
                return "procedure"
            if method.data["group"] == "analysis":
                return "analysis"
        return self.system.kind or "method"

    @property
    def kind_title(self) -> str:
        return system_words.KINDS[self.kind]

    @property
    def idea_title(self) -> str:
        return system_words.IDEAS[self.system.ideas[0]]

    @property
    def about(self) -> str:
        """One sentence: the method's own where it is one of the catalogue under its name."""
        return str(self.named.data["idea"]) if self.named else self.system.about

    @property
    def changes(self) -> list[str]:
        if not self.methods:
            return list(self.system.changes)
        if self.kind == "analysis":
            return ["nothing"]
        if self.kind == "procedure":
            return ["decoding"]
        changed = {system_words.CHANGED_BY.get(hook, "") for hook in self.methods[0].data["hooks"]}
        return [name for name in system_words.CHANGES if name in changed]

    @property
    def trainers(self) -> list[str]:
        return self.methods[0].trainers if self.methods else []

    @property
    def trainer_titles(self) -> list[str]:
        return self.methods[0].trainer_titles if self.methods else []

    @property
    def worlds(self) -> list[str]:
        """The worlds it runs in, ``ANY_TASK`` alone where it is bound to none; nothing while it is not here as a method."""
        return (self.methods[0].worlds or [system_words.ANY_TASK]) if self.methods else []

    @property
    def headline(self) -> MethodComparison | None:
        return self.effect.headline if self.effect else None

    @property
    def evidence(self) -> str:
        """What was measured of it here; empty where it is no method and has no case."""
        if not self.methods and self.effect is None:
            return ""
        headline = self.headline
        if headline is None:
            return "unmeasured"
        if self.effect and self.effect.stale:
            return "stale"
        return "by-construction" if headline.by_construction else slugify(headline.verdict)

    @property
    def evidence_title(self) -> str:
        return system_words.EVIDENCE.get(self.evidence, self.evidence)

    @cached_property
    def text(self) -> str:
        """What the search looks through."""
        own = [f"{method.name} {method.data['title']} {method.data['system']}" for method in self.methods]
        return " ".join((self.system.id, self.system.paper, self.system.arxiv, self.about, *own)).casefold()


FACETS: Facets[MappedSystem] = {
    "state": ("Status", lambda one: [one.state], system_words.STATES),
    "kind": ("Kind", lambda one: [one.kind], system_words.KINDS),
    "idea": ("Idea", lambda one: list(one.system.ideas), system_words.IDEAS),
    "changes": ("What it changes", lambda one: one.changes, system_words.CHANGES),
    "effect": ("Measured effect", lambda one: [one.evidence] if one.evidence else [], system_words.EVIDENCE),
    "provenance": ("Formula", lambda one: [one.methods[0].provenance] if one.methods else [], card_words.PROVENANCES),
    "trainer": ("Trainer", lambda one: one.trainers, card_words.TRAINERS),
    "world": ("Runs in", lambda one: one.worlds, {system_words.ANY_TASK: "Any task"}),
    **make_search_facets(lambda one: one.system.search),
}


def build_system_map(systems: Iterable[PublishedSystem], catalog: Catalog, measured: Mapping[str, MethodEffect]) -> list[MappedSystem]:
    """Idea by idea in the order of the words, by paper within one."""
    methods = [Method(entry) for entry in catalog.methods]
    recipes = {recipe["name"] for recipe in catalog.recipes}
    order = list(system_words.IDEAS)
    mapped = []
    for system in systems:
        of_system = sorted((method for method in methods if is_method_of(method, system)), key=lambda method: method.name != system.id)
        recipe = system.id if system.id in recipes else ""
        effect = measured.get(of_system[0].name if of_system else system.id)
        mapped.append(MappedSystem(system, tuple(of_system), recipe, PLACES.get(system.id), effect))
    return sorted(mapped, key=lambda one: (order.index(one.system.ideas[0]), one.system.paper.casefold()))


def is_method_of(method: Method, system: PublishedSystem) -> bool:
    """Whether it has the system's name, cites its paper or, as an idea of something that is not about language models, says that it comes from it."""
    cites = method.data.get("arxiv") == system.arxiv or (system.called and system.called in method.data.get("source", ""))
    return method.name == system.id or bool(cites)
