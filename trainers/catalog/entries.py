"""What the catalogue says about methods, by name: of the built-in ones from the committed file, of other packages' from their code."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trainers.contract.spec import RunSpec
from trainers.contract.stacking import Entry, base_choice

FILE = Path(__file__).resolve().parents[1] / "catalog.json"


@cache
def built_in_entries() -> dict[str, Entry]:
    return {entry["name"]: entry for entry in json.loads(FILE.read_bytes())["methods"]}


def entry_of(name: str) -> Entry | None:
    """None for what is no method. Only a method of another package is imported, and torch with it."""
    if name in built_in_entries():
        return built_in_entries()[name]
    from trainers.catalog.describe import describe_method
    from trainers.methods import registry

    try:
        return describe_method("installed", registry.load_method_class(name))
    except registry.UnknownMethod:
        return None


def entries_for(spec: RunSpec) -> Mapping[str, Entry]:
    """Of the spec's base and methods."""
    found = {choice.name: entry_of(choice.name) for choice in (base_choice(spec), *spec.methods)}
    return {name: entry for name, entry in found.items() if entry is not None}
