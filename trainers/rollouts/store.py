"""What outlives an episode: named lists of plain values (questions, experiences, lemmas, histories) with a limit, kept in the checkpoint.

Imports no torch.
"""

import json
import random
from typing import Any

LIMIT = 1000  # items of a list, unless it is given another one
MOST_CHARACTERS = 20_000  # of an item as JSON


class Store:
    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {}
        self.limits: dict[str, int] = {}

    def limit(self, name: str, count: int) -> None:
        """How many items the list keeps; the oldest go first."""
        if count < 1:
            raise ValueError(f"a list of {count} items keeps nothing")
        self.limits[name] = count
        self.lists[name] = self.lists.get(name, [])[-count:]

    def add(self, name: str, *items: Any) -> None:
        """Appends values that JSON can hold. Raises TypeError for others, ValueError for one that is too long."""
        for item in items:
            if len(json.dumps(item)) > MOST_CHARACTERS:
                raise ValueError(f"an item of {name!r} is longer than {MOST_CHARACTERS} characters")
        self.lists[name] = [*self.lists.get(name, []), *items][-self.limits.get(name, LIMIT) :]

    def items(self, name: str) -> list[Any]:
        """Oldest first; a copy."""
        return list(self.lists.get(name, []))

    def replace(self, name: str, items: list[Any]) -> None:
        self.lists[name] = []
        self.add(name, *items)

    def take(self, name: str, count: int) -> list[Any]:
        """The oldest ``count`` items, which leave the list."""
        found = self.lists.get(name, [])
        self.lists[name] = found[count:]
        return found[:count]

    def draw(self, name: str, count: int, rng: random.Random) -> list[Any]:
        """Up to ``count`` different items."""
        found = self.lists.get(name, [])
        return rng.sample(found, min(count, len(found)))

    def size(self, name: str) -> int:
        return len(self.lists.get(name, []))

    def state(self) -> dict[str, Any]:
        return {"lists": {name: list(items) for name, items in self.lists.items()}, "limits": dict(self.limits)}

    def restore(self, state: dict[str, Any]) -> None:
        self.lists = {name: list(items) for name, items in state["lists"].items()}
        self.limits = dict(state["limits"])
