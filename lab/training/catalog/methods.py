"""The methods of the catalogue for reading: one entry with its words, and its facets. Which run used what is not known here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lab.training.catalog import card_words
from lab.training.catalog.facets import Facets
from lab.training.catalog.formulas import Formula, convert_formula
from lab.training.catalog.systems import find_search_tags, make_search_facets


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


FACETS: Facets[Method] = {
    "trainer": ("Trainer", lambda method: method.trainers, card_words.TRAINERS),
    "group": ("Kind", lambda method: [method.data["group"]], card_words.GROUPS),
    "hook": ("Hook", lambda method: list(method.data["hooks"]), {}),
    "base": ("Builds on", lambda method: [method.data["base"]] if method.data["base"] else [], {}),
    "provenance": ("Formula", lambda method: [method.provenance], card_words.PROVENANCES),
    **make_search_facets(lambda method: find_search_tags(method.name)),
}
