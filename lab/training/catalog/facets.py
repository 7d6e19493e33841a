"""Search text and facets in the address of a page of cards: what it asks for, what matches, and how many cards each value of a facet would leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from django.http import QueryDict

LONGEST_SEARCH = 100  # characters; longer text is cut


class Searchable(Protocol):
    @property
    def text(self) -> str:
        """What the search looks through, in small letters."""


C = TypeVar("C", bound=Searchable)
Facet = tuple[str, Callable[[C], list[str]], Mapping[str, str]]  # title, values of a card, words of the values in their order
Facets = Mapping[str, Facet[C]]


@dataclass(frozen=True)
class FacetChoice:
    """One value of a facet: how many cards it would leave, and the query string that sets it (or unsets it, when chosen)."""

    value: str
    label: str
    count: int
    chosen: bool
    url: str


@dataclass(frozen=True)
class FacetQuery:
    """What an address asks for: the text of the search, and at most one value a facet."""

    text: str
    chosen: Mapping[str, str]

    def url(self, **changes: str) -> str:
        pairs = QueryDict(mutable=True)
        for name, value in {"q": self.text, **self.chosen, **changes}.items():
            if value:
                pairs[name] = value
        return "?" + pairs.urlencode()

    def matches(self, card: C, facets: Facets[C], *, but: str = "") -> bool:
        """Whether it has every word of the text and every chosen value; the facet ``but`` is not looked at."""
        if not all(word in card.text for word in self.text.casefold().split()):
            return False
        return all(value in facets[name][1](card) for name, value in self.chosen.items() if name != but)


def read_facet_query(params: QueryDict, names: Iterable[str]) -> FacetQuery:
    """Values that no card has are kept: the page then says that nothing matches, and offers to clear them."""
    given = {name: str(params.get(name, "")).replace("\0", "").strip()[:LONGEST_SEARCH] for name in ("q", *names)}
    return FacetQuery(given.pop("q"), {name: value for name, value in given.items() if value})


def build_facet_choices(cards: Sequence[C], facets: Facets[C], query: FacetQuery) -> list[tuple[str, str, list[FacetChoice]]]:
    """(name, title, choices) of each facet, the counts under the search and all other facets."""
    built = []
    for name, (title, values_of, labels) in facets.items():
        counts = Counter(value for card in cards if query.matches(card, facets, but=name) for value in values_of(card))
        everything = {value for card in cards for value in values_of(card)}
        order = [value for value in labels if value in everything] or sorted(everything)
        order += sorted(everything - set(order))
        chosen = query.chosen.get(name, "")
        choices = []
        for value in order:
            if counts[value] or value == chosen:
                url = query.url(**{name: "" if value == chosen else value})
                choices.append(FacetChoice(value, labels.get(value, value.replace("_", " ")), counts[value], value == chosen, url))
        built.append((name, title, choices))
    return built
