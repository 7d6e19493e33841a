"""Things by their names: written down in one place, or put in by rooms that the owner of the list may not import."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class HasName(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=HasName)


class NameInUse(ValueError):
    """Something else has this name already."""


class UnknownName(KeyError):
    """Nothing has this name; the message says which are near."""

    def __init__(self, noun: str, name: str, known: Iterable[str]) -> None:
        super().__init__(noun, name)
        self.noun, self.name, self.known = noun, name, list(known)

    def __str__(self) -> str:
        near = difflib.get_close_matches(self.name[:80], self.known)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(self.known) or 'none'}"
        return f"there is no {self.noun} {self.name[:80]!r}: {hint}"


class Registry(Mapping[str, T], Generic[T]):
    """Iterates in the order in which things were registered. ``noun`` says in messages what they are."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._found: dict[str, T] = {}

    @classmethod
    def of(cls: type[Registry[N]], noun: str, things: Iterable[N]) -> Registry[N]:
        """Of things that have names of their own."""
        registry = cls(noun)
        for thing in things:
            registry.register(thing.name, thing)
        return registry

    def register(self, name: str, thing: T) -> None:
        """The same thing twice counts once. Raises NameInUse, which names both."""
        registered = self._found.setdefault(name, thing)
        if registered is not thing:
            raise NameInUse(f"two {self.noun}s are called {name!r}: {registered!r} and {thing!r}")

    def __getitem__(self, name: str) -> T:
        """Raises UnknownName."""
        try:
            return self._found[name]
        except KeyError:
            raise UnknownName(self.noun, name, self._found) from None

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
