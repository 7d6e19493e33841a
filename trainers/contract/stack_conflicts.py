"""Why two methods cannot be stacked, and what to know where they can: from the catalogue's entries alone, so without torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trainers.contract.problems import Problem
from trainers.contract.stack_order import STAGES

Entry = dict[str, Any]

MADE = {  # what two makers of the same thing would do to each other
    "data": "what the run trains on",
    "rewards": "the reward",
    "advantages": "the advantages",
    "row_advantages": "the advantages of turns",
    "pair_loss": "the margin of a pair",
}
ONE_ROW = ("token_weights", "log_ratios", "policy_loss", "loss")  # hooks of the loss, which know one row of a rollout
BELOW_THE_MARGIN = ("pair_ratios", "pair_margins")  # what a method that measures margins itself does not see


@dataclass(frozen=True)
class Chosen:
    """A base or method of a recipe: ``where`` it stands in the spec, its entry, and its settings with defaults filled in."""

    where: str
    entry: Entry
    config: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.entry["name"])

    @property
    def is_base(self) -> bool:
        return bool(self.entry["group"] == "bases")

    def fills(self, hook: str) -> bool:
        """Whether it does something there under its settings."""
        rule = self.entry["idle"].get(hook)
        return hook in self.entry["hooks"] and not (rule is not None and self.config.get(rule["parameter"]) == rule["value"])

    def role(self, hook: str) -> str | None:
        role: str | None = self.entry["roles"].get(hook)
        return role

    def makes(self, hook: str) -> bool:
        return self.fills(hook) and self.role(hook) == "makes"


def fill_method_defaults(where: str, entry: Entry, config: dict[str, Any]) -> Chosen:
    defaults = {name: part.get("default") for name, part in entry["parameters"].get("properties", {}).items()}
    return Chosen(where, entry, defaults | config)


def find_stack_problems(stack: list[Chosen]) -> Iterator[Problem]:
    """Why methods of the recipe cannot be stacked, pair by pair."""
    for one, other in combinations(stack, 2):
        found = list(find_conflict_reasons(one, other))
        for message, fix in found:
            yield Problem(f"{other.where}.name", other.name, message, fix)


def find_conflict_reasons(one: Chosen, other: Chosen) -> Iterator[tuple[str, str]]:
    """(message, fix) of each."""
    if one.name == other.name:
        yield "is in the recipe twice", "remove one"
        return
    fix = "choose another base" if one.is_base else f"remove {one.name} or {other.name}"
    owned = sorted(set(one.entry["owns"]) & set(other.entry["owns"]))
    for thing in owned:
        yield f"both {one.name} and {other.name} decide the {thing}; only one method can", fix
    for first, second in ((one, other), (other, one)):
        if second.name in first.entry["excludes"]:
            why = first.entry["excludes"][second.name]
            yield f"{first.name} conflicts with {second.name}{f': {why}' if why else ''}", fix
    yield from ((message, fix) for message in find_order_conflicts(one, other, owned))


def find_order_conflicts(one: Chosen, other: Chosen, owned: list[str]) -> Iterator[str]:
    """What no order of the two would save."""
    for hook, thing in MADE.items():
        if one.makes(hook) and other.makes(hook) and hook.replace("_", " ") not in owned:
            yield f"both {one.name} and {other.name} make {thing} anew: what one of them made would be lost"
    for first, second in ((one, other), (other, one)):
        for hook in STAGES:
            if first.fills(hook) and second.fills(hook) and first.role(hook) is None:
                yield f"{first.name} does not say whether it makes, maps or gates {hook}, so it cannot be ordered with {second.name}"
        if first.makes("pair_loss") and any(second.fills(hook) for hook in BELOW_THE_MARGIN):
            yield f"{first.name} measures the margin of a pair itself: what {second.name} does to log-ratios or margins would be lost"
        if first.makes("row_advantages") and second.fills("advantages") and second.role("advantages") != "gates":
            yield f"{first.name} works out the advantage of each turn anew: what {second.name} does to advantages would be lost"
        yield from find_row_conflicts(first, second)
        if "policy loss" in first.entry["owns"] and "log ratio" in second.entry["owns"]:
            yield f"{first.name} brings its own policy loss, which does not read the importance ratio of {second.name}"


def find_row_conflicts(first: Chosen, second: Chosen) -> Iterator[str]:
    """What does not go with a method that trains on several rows of a rollout."""
    if not first.entry.get("several_rows"):
        return
    if second.is_base and not second.entry.get("token_mean"):
        yield (
            f"{first.name} trains on several rows of a rollout, and {second.name} divides its loss by rows: a rollout with more of them would count"
            " differently; use dapo or cispo"
        )
    if filled := [hook for hook in ONE_ROW if second.fills(hook)]:
        yield f"{first.name} trains on several rows of a rollout, and {second.name} ({filled[0].replace('_', ' ')}) knows the first one only"


def find_stack_warnings(stack: list[Chosen]) -> Iterator[Problem]:
    """What of a method is lost, or only partly kept, in a recipe that can be run."""
    for one, other in combinations(stack, 2):
        for first, second in ((one, other), (other, one)):
            for message in find_lost_effects(first, second):
                yield Problem(f"{second.where}.name", second.name, message, "leave one of them out if that matters")


def find_lost_effects(first: Chosen, second: Chosen) -> Iterator[str]:
    """What ``first`` costs ``second``."""
    if why := first.entry["cautions"].get(second.name):
        yield f"{first.name} with {second.name}: {why}"
    finer = second.fills("token_weights") or (second.fills("advantages") and second.role("advantages") == "maps")
    if first.entry["whole_answers"] and finer:
        yield f"{first.name} takes one advantage for a whole answer: what {second.name} does to single tokens counts by its mean"
    if "policy loss" in first.entry["owns"] and second.is_base and second.name != first.entry["base"]:
        yield f"{first.name} brings its own policy loss: of {second.name} only the scale of advantages and the KL penalty are left"
