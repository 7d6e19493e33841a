"""From an entry to the object it names: a registry that rooms further up fill, because this one may not know them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import models

from lab.lib.registry import Registry
from lab.teams.accounts.models import Team
from lab.teams.audit.models import Entry

Find = Callable[[Team], "models.QuerySet[models.Model]"]
Open = Callable[[str], str]


@dataclass(frozen=True)
class ObjectLink:
    """Where objects of one kind are seen: which the team has, and the address of the one with an id."""

    words: str
    find: Find
    open: Open


PLACES: Registry[ObjectLink] = Registry("kind of object")


def register_object_place(kind: str, words: str, find: Find, open: Open) -> None:
    """``kind`` as ``record`` writes it: the model's name in small letters."""
    PLACES.register(kind, ObjectLink(words, find, open))


def describe_object_kind(kind: str) -> str:
    return PLACES[kind].words if kind in PLACES else kind


def is_possible_key(model: type[models.Model], pk: str) -> bool:
    try:
        model._meta.pk.to_python(pk)
    except ValidationError:
        return False
    return True


def find_object_addresses(team: Team, entries: Iterable[Entry]) -> Mapping[tuple[str, str], str]:
    """(kind, id) → address, of the objects that still exist. A query for each kind."""
    ids_by_kind: dict[str, set[str]] = {}
    for entry in entries:
        if entry.kind in PLACES:
            ids_by_kind.setdefault(entry.kind, set()).add(entry.object_id)
    addresses: dict[tuple[str, str], str] = {}
    for kind, ids in ids_by_kind.items():
        link = PLACES[kind]
        objects = link.find(team)
        existing = objects.filter(pk__in=[pk for pk in ids if is_possible_key(objects.model, pk)]).values_list("pk", flat=True)
        addresses |= {(kind, str(pk)): link.open(str(pk)) for pk in existing}
    return addresses
