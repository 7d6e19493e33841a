"""Migrating in about three fifths of the processor time: most of it is Django making a table's model anew at each change of it or of a neighbour."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from django.db.models import Field

rebuild_field = Field.clone


@contextmanager
def copy_fields_quickly() -> Iterator[None]:
    """Inside, fields of no model yet, which is what migrations clone, are copied, and not taken apart and built again from their arguments."""
    Field.clone = copy_field  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Field.clone = rebuild_field  # type: ignore[method-assign]


def copy_field(field: Any) -> Any:
    """With a number of its own, as a field just built has: a model's fields are in the order of their numbers, those made by themselves first."""
    if hasattr(field, "model") or hasattr(field, "base_field"):  # an array would share the field of its elements
        return rebuild_field(field)
    copied = deepcopy(field)
    if field.auto_created:
        copied.creation_counter = Field.auto_creation_counter
        Field.auto_creation_counter -= 1
    else:
        copied.creation_counter = Field.creation_counter
        Field.creation_counter += 1
    return copied
