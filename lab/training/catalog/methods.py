"""The methods of the catalogue for reading: one entry with its words, and the search with its facets. Which run used what is not known here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.http import QueryDict

from lab.training.catalog import card_words
from lab.training.catalog.formulas import Formula, convert_formula

LONGEST_SEARCH = 100  # characters; longer text is cut


@dataclass(frozen=True)
class Method:
    """One entry of ``catalog.json``; attributes that are plain facts of it are read from ``data`` by the templates."""

    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def is_base(self) -> bool:
        return bool(self.data["group"] == "bases")

    @property
    def trainers(self) -> list[str]:
        return [self.data["trainer"]] if self.is_base else list(self.data["trains"])

    @property
    def trainer_titles(self) -> list[str]:
        return [card_words.TRAINERS.get(name, name) for name in self.trainers]

    @property
    def group_title(self) -> str:
        return card_words.GROUPS.get(self.data["group"], self.data["group"])

    @property
    def provenance(self) -> str:
        return card_words.provenance_of(self.data)

    @property
    def provenance_words(self) -> str:
        return card_words.PROVENANCES[self.provenance]

    @property
    def hooks(self) -> list[tuple[str, str]]:
        return card_words.pair_names_with_words(card_words.HOOKS, self.data["hooks"])

    @property
    def owns(self) -> list[tuple[str, str]]:
        return card_words.pair_names_with_words(card_words.OWNS, self.data["owns"])

    @property
    def roles(self) -> list[str]:
        return card_words.describe_method_roles(self.data)

    @property
    def needs(self) -> list[tuple[str, str]]:
        return card_words.pair_names_with_words(card_words.NEEDS, self.data["needs"])

    @property
    def requires(self) -> list[str]:
        return [card_words.format_requirement(need) for need in self.data["requires"]]

    @property
    def worlds(self) -> list[str]:
        """Names of the only tasks that it can train on; none where it can on any."""
        return list(self.data.get("worlds", []))

    @property
    def claim(self) -> str:
        """What its authors claim: "raises held-out accuracy"."""
        metric = self.data["claim"]["metric"].replace("heldout/", "held-out ").replace("_", " ")
        return f"{card_words.CLAIMS[self.data['claim']['direction']]} {metric}"

    @property
    def panels(self) -> list[tuple[str, str, str]]:
        """(title, kind in words, help)"""
        return [(panel["title"], card_words.PANELS.get(panel["kind"], panel["kind"]), panel["help"]) for panel in self.data["panels"]]

    @cached_property
    def formulas(self) -> list[Formula]:
        return [convert_formula(text) for text in self.data["formula"]]

    @cached_property
    def text(self) -> str:
        """What the search looks through."""
        return " ".join(str(self.data[key]) for key in ("name", "title", "system", "arxiv", "idea")).casefold()


def all_methods(entries: Iterable[Mapping[str, Any]]) -> list[Method]:
    """Group by group in the order of the words, by title within one."""
    order = list(card_words.GROUPS)
    return sorted((Method(entry) for entry in entries), key=lambda method: (order.index(method.data["group"]), method.data["title"].casefold()))


FACETS: dict[str, tuple[str, Callable[[Method], list[str]], Mapping[str, str]]] = {
    "trainer": ("Trainer", lambda method: method.trainers, card_words.TRAINERS),
    "group": ("Kind", lambda method: [method.data["group"]], card_words.GROUPS),
    "hook": ("Hook", lambda method: list(method.data["hooks"]), {}),
    "base": ("Builds on", lambda method: [method.data["base"]] if method.data["base"] else [], {}),
    "provenance": ("Formula", lambda method: [method.provenance], card_words.PROVENANCES),
}


@dataclass(frozen=True)
class FacetChoice:
    """One value of a facet: how many methods it would leave, and the query string that sets it (or unsets it, when chosen)."""

    value: str
    label: str
    count: int
    chosen: bool
    url: str


@dataclass(frozen=True)
class CatalogQuery:
    """What a URL asks for: the text of the search, and at most one value a facet."""

    text: str
    chosen: Mapping[str, str]

    def url(self, **changes: str) -> str:
        pairs = QueryDict(mutable=True)
        for name, value in {"q": self.text, **self.chosen, **changes}.items():
            if value:
                pairs[name] = value
        return "?" + pairs.urlencode()

    def matches(self, method: Method, *, but: str = "") -> bool:
        """Whether it has every word of the text and every chosen value; the facet ``but`` is not looked at."""
        if not all(word in method.text for word in self.text.casefold().split()):
            return False
        return all(value in FACETS[name][1](method) for name, value in self.chosen.items() if name != but)


def read_query(params: QueryDict) -> CatalogQuery:
    """Values that no method has are kept: the page then says that nothing matches, and offers to clear them."""
    given = {name: str(params.get(name, "")).replace("\0", "").strip()[:LONGEST_SEARCH] for name in ("q", *FACETS)}
    return CatalogQuery(given.pop("q"), {name: value for name, value in given.items() if value})


def build_method_facets(methods: list[Method], query: CatalogQuery) -> list[tuple[str, str, list[FacetChoice]]]:
    """(name, title, choices) of each facet, the counts under the search and all other facets."""
    facets = []
    for name, (title, values_of, labels) in FACETS.items():
        counts = Counter(value for method in methods if query.matches(method, but=name) for value in values_of(method))
        everything = {value for method in methods for value in values_of(method)}
        order = [value for value in labels if value in everything] or sorted(everything)
        order += sorted(everything - set(order))
        chosen = query.chosen.get(name, "")
        choices = [FacetChoice(value, labels.get(value, value.replace("_", " ")), counts[value], value == chosen, "") for value in order]
        linked = [
            FacetChoice(choice.value, choice.label, choice.count, choice.chosen, query.url(**{name: "" if choice.chosen else choice.value}))
            for choice in choices
        ]
        facets.append((name, title, [choice for choice in linked if choice.count or choice.chosen]))
    return facets
