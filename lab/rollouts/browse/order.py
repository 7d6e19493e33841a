"""The order of a selection's rollouts and places in it (cursors).

A key is a tuple of columns that ends with the id, so no two rollouts have the same one. Paging goes by keys and never by offsets: a page deep
inside costs what the first one does, and rollouts that arrive meanwhile move nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from typing import Any

from django.db.models import BooleanField, F, Q, QuerySet
from django.db.models.expressions import Combinable, OrderBy, RawSQL

from lab.lib.numbers import MAX_ID
from lab.rollouts.browse.conditions import sort_key
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Order:
    """``field`` "" is newest first: by (step, group, sample, id) descending inside one run, by id descending over several."""

    field: str
    descending: bool
    one_run: bool

    @classmethod
    def of(cls, selection: Selection, runs: int) -> Order:
        return cls(selection.sort.removeprefix("-"), selection.sort.startswith("-") or not selection.sort, runs == 1)

    @property
    def columns(self) -> tuple[str, ...]:
        if self.field:
            return ("sort_key", "pk")
        return ("step", "group", "sample", "pk") if self.one_run else ("pk",)

    def keyed(self, rows: QuerySet[Rollout]) -> QuerySet[Rollout]:
        return rows.annotate(sort_key=sort_key(self.field)) if self.field else rows

    def sorted(self, rows: QuerySet[Rollout], backwards: bool = False) -> QuerySet[Rollout]:
        """``rows`` must be ``keyed``."""
        ways = self.ways(backwards)
        return rows.order_by(*(OrderBy(F(name), way == "desc", nulls == "first" or None, nulls == "last" or None) for name, way, nulls in ways))

    def by_position(self, backwards: bool) -> str:
        """What follows ORDER BY where ``columns`` are what is selected."""
        ways = self.ways(backwards)
        return ", ".join(f"{place} {way}{f' NULLS {nulls}' if nulls else ''}" for place, (_, way, nulls) in enumerate(ways, 1))

    def ways(self, backwards: bool) -> list[tuple[str, str, str]]:
        """Column, direction, and where rollouts without a value stand: last. Ties are newest first."""
        newest_first = "asc" if backwards else "desc"
        if not self.field:
            return [(name, newest_first, "") for name in self.columns]
        return [("sort_key", "desc" if self.descending != backwards else "asc", "first" if backwards else "last"), ("pk", newest_first, "")]

    def beyond(self, rows: QuerySet[Rollout], key: Key, backwards: bool = False) -> QuerySet[Rollout]:
        """Those after ``key``, or before it."""
        if not self.field:
            return rows.filter(beyond_newest(key, self.one_run, backwards))
        value, pk = key
        tie = Q(pk__gt=pk) if backwards else Q(pk__lt=pk)
        if value is None:
            unvalued = Q(sort_key__isnull=True)
            return rows.filter(~unvalued | tie) if backwards else rows.filter(tie & unvalued)
        further = Q(sort_key__lt=value) if self.descending != backwards else Q(sort_key__gt=value)
        among = further | Q(tie, sort_key=value)
        return rows.filter(among if backwards else among | Q(sort_key__isnull=True))


def beyond_newest(key: Key, one_run: bool, backwards: bool) -> Combinable | Q:
    if not one_run:
        return Q(pk__gt=key[0]) if backwards else Q(pk__lt=key[0])
    # A row comparison, because the index answers it with one descent; as a chain of "or" it would be read from its end.
    sign = ">" if backwards else "<"
    table = Rollout._meta.db_table
    columns = ", ".join(f'"{table}"."{name}"' for name in ("step", "group_index", "sample", "id"))
    return RawSQL(f"({columns}) {sign} (%s, %s, %s, %s)", list(key), output_field=BooleanField())  # noqa: S611 names of our own


def write_cursor(order: Order, key: Key, backwards: bool = False) -> str:
    """Opaque; the order goes with it, so that a cursor of another order counts as none."""
    whole = [int(backwards), order.field, int(order.descending), *key]
    return base64.urlsafe_b64encode(json.dumps(whole, separators=(",", ":")).encode()).decode().rstrip("=")


def read_cursor(order: Order, text: str) -> tuple[Key, bool] | None:
    """The key and whether the page lies before it; None for what is no cursor of this order."""
    try:
        whole = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        backwards, field, descending, *key = whole
    except (ValueError, TypeError, RecursionError, binascii.Error):
        return None
    if [field, descending] != [order.field, int(order.descending)] or backwards not in (0, 1) or len(key) != len(order.columns):
        return None
    whole_numbers = key[1:] if order.field else key
    if not all(type(part) is int and 0 <= part <= MAX_ID for part in whole_numbers):
        return None
    if order.field and not (key[0] is None or (type(key[0]) in (int, float) and not math.isinf(key[0]))):
        return None
    return tuple(key), bool(backwards)
