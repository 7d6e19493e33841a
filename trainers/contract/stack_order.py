"""The order in which the methods of a stack act: what each does with what comes in decides it, and only among equals the order of the recipe.

Without it a method that works a value out anew would undo whatever stood before it in the recipe. No torch here: the preflight and the web need it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeVar, get_args

# makes: works the value out anew and ignores what came in; at most one method of a stack. maps: changes what came in.
# gates: leaves something out, which then stays out. arranges: lays finished training rows out. reads: looks and changes nothing.
Role = Literal["makes", "maps", "gates", "arranges", "reads"]
ROLES: tuple[str, ...] = get_args(Role)

# The hooks whose order changes what comes out. Bad pairs are cleaned away first: once answers are rewritten nobody can tell what was wrong with them.
STAGES: Mapping[str, tuple[Role, ...]] = {
    "data": ("gates", "makes", "maps", "arranges", "reads"),
    "rewards": ("makes", "maps", "gates"),
    "advantages": ("makes", "maps", "gates"),
    "row_advantages": ("makes", "maps"),
    "pair_ratios": ("maps", "gates"),
    "pair_loss": ("makes", "maps", "reads"),
}


T = TypeVar("T")


def in_order(items: Iterable[T], hook: str, role_of: Callable[[T], str | None]) -> list[T]:
    """``items``, the fillers of ``hook`` in the order of the recipe, in the order they act in; one without a role acts among the maps."""
    if hook not in STAGES:
        return list(items)
    places: dict[str | None, int] = {role: place for place, role in enumerate(STAGES[hook])}
    return sorted(items, key=lambda item: places.get(role_of(item), places["maps"]))
