"""What the address of a list asks for: filters, an order and a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from django.http import QueryDict

NEWEST_FIRST = "-age"


@dataclass(frozen=True)
class ListQuery:
    """Cleaned already: ``chosen`` holds only filters that are set, ``sort`` a key with a minus when the largest come first; ``notes`` says what of
    the address was left out and why, by parameter. A list derives from it with its ``filters`` and the keys that begin with A.
    """

    filters: ClassVar[tuple[str, ...]] = ()
    alphabetical: ClassVar[tuple[str, ...]] = ()

    chosen: Mapping[str, str]
    sort: str = NEWEST_FIRST
    page: int = 1
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.sort.lstrip("-")

    @property
    def descending(self) -> bool:
        return self.sort.startswith("-")

    def url(self, **changes: str) -> str:
        """The query string with some filters or the sort changed; an empty value removes one. The page starts over."""
        parameters = {**self.chosen, "sort": self.sort, **changes}
        pairs = QueryDict(mutable=True)
        for name in (*self.filters, "sort", "page"):
            if parameters.get(name) and (name, parameters[name]) != ("sort", NEWEST_FIRST):
                pairs[name] = parameters[name]
        return "?" + pairs.urlencode()

    def toggled(self, key: str) -> str:
        """The query string that sorts by ``key``; the other way round if it does so already. Numbers and dates start with the largest."""
        if key == self.key:
            return self.url(sort=key if self.descending else f"-{key}")
        return self.url(sort=key if key in self.alphabetical else f"-{key}")
