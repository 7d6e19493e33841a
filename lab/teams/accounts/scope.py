"""Rows belong to a team, and a query has to say whose it wants.

``Model.objects`` asks inside one team: what is evaluated (read, counted, changed, deleted, used as a subquery) without having been narrowed to a team
raises :class:`TeamRequired`. ``Model.across_teams`` asks all of them, for what serves the whole installation: workers, chores, ingest, operators.

Narrowed is a query by ``.of(team)``, by a lookup that ends at the team (``run__team=team``), or by one of an object that belongs to a team
(``run=run``, ``item__in=items``), of a query that is narrowed itself, or of the outer query (``OuterRef``). A bare id says nothing.
What starts from an object (``run.checkpoints``) is narrowed by it, unless the object is a person, who may be in several teams.

What Django does by itself sees every row: validation of uniqueness, the admin and ``dumpdata`` ask ``Model._default_manager``, which is ``objects``
without the check (migrations would write down a default manager of another name). The collector of deletions, ``refresh_from_db`` and forward
relations ask its base manager, which knows no teams.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.manager import ManagerDescriptor
from django.db.models.sql import Query
from django.db.models.sql.where import OR

if TYPE_CHECKING:
    from lab.teams.accounts.models import Team

TEAM = "accounts.Team"
SCOPED = "objects"  # the manager whose queries need a team

_Row = TypeVar("_Row", bound=models.Model, covariant=True)


class TeamRequired(RuntimeError):
    """A query over rows of teams was evaluated without naming one: a fault of the code that asked, never of who sent the request."""


class TeamQuery(Query):
    """The check stands where every SELECT is compiled, that of a subquery too: it costs one look at an attribute."""

    needs_team = False  # what Django builds by itself inside a query is never asked

    def check_team(self) -> None:
        """Raises TeamRequired."""
        if self.needs_team:
            refuse_unscoped_query(self.model)

    def get_compiler(self, *args: Any, **kwargs: Any) -> Any:
        self.check_team()
        return super().get_compiler(*args, **kwargs)

    def add_q(self, q_object: Q, *args: Any, **kwargs: Any) -> None:
        """Every filter comes by here, those of related managers and prefetches too."""
        super().add_q(q_object, *args, **kwargs)
        if self.needs_team and is_narrowing_condition(self.model, q_object):
            self.needs_team = False

    def combine(self, rhs: Query, connector: str) -> None:
        """Of two queries joined by ``|`` both have to name a team, of two joined by ``&`` one."""
        both = (self.needs_team, getattr(rhs, "needs_team", False))
        super().combine(rhs, connector)
        self.needs_team = any(both) if connector == OR else all(both)


def refuse_unscoped_query(model: Any) -> NoReturn:
    name = model.__name__
    raise TeamRequired(
        f"{name}.objects was asked without a team: narrow it by .of(team) or by an object of the team, or use {name}.across_teams to mean all teams"
    )


class TeamQuerySet(QuerySet[_Row]):
    query: TeamQuery

    def __init__(self, model: Any = None, query: Any = None, using: str | None = None, hints: Any = None) -> None:
        super().__init__(model, query or TeamQuery(model), using, hints)

    def of(self, team: Team | int) -> Self:
        """The team's rows, without what is in the bin: ``filter(team=…)`` asks for that too."""
        model: Any = self.model
        return self.filter(**{model.team_path: team}, **({model.binned_path: None} if model.binned_path else {}))

    def same_row(self, row: _Row) -> Self:  # type: ignore[misc]
        """The row of an object in hand, as the database has it now: to lock it, or to change it under a condition."""
        if not isinstance(row, self.model):
            raise TypeError(f"{row!r} is no row of {self.model.__name__}")
        return self._without_check(self.filter(pk=row.pk))

    def none(self) -> Self:
        return self._without_check(super().none())

    def update(self, **kwargs: Any) -> int:
        self.query.check_team()
        return super().update(**kwargs)

    def delete(self) -> tuple[int, dict[str, int]]:
        self.query.check_team()
        return super().delete()

    def _raw_delete(self, using: str | None) -> int:
        self.query.check_team()
        return super()._raw_delete(using)  # type: ignore[misc]

    def raw(self, *args: Any, **kwargs: Any) -> Any:
        self.query.check_team()
        return super().raw(*args, **kwargs)

    def bulk_update(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> int:
        """The rows are in hand already: somebody's query found them."""
        return super(TeamQuerySet, self._without_check(self._chain())).bulk_update(objs, *args, **kwargs)  # type: ignore[attr-defined]

    @staticmethod
    def _without_check(rows: Any) -> Any:
        rows.query.needs_team = False
        return rows


class TeamDescriptor(ManagerDescriptor):
    """``Model.objects`` as our code reaches it. Django reaches the same manager as ``Model._default_manager``, which sees every row."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        manager = copy(super().__get__(instance, cls))
        manager.needs_team = True
        return manager


class TeamManager(models.Manager[_Row]):
    """Both managers of a model. Related managers are of this class too and have the ``instance`` they start from."""

    needs_team = False

    def contribute_to_class(self, cls: type[models.Model], name: str) -> None:
        super().contribute_to_class(cls, name)
        if name == SCOPED:
            setattr(cls, name, TeamDescriptor(self))

    def get_queryset(self) -> Any:
        rows: Any = super().get_queryset()
        start = getattr(self, "instance", None)
        rows.query.needs_team = self.needs_team if start is None else not is_team_owned(type(start))
        return rows


class TeamOwned(models.Model):
    """A model whose rows belong to a team. One with a query set of its own declares both managers anew, ``objects`` first."""

    team_path: ClassVar[str] = "team"  # lookup from the model to its team
    binned_path: ClassVar[str] = ""  # lookup to when it went to the bin, for models whose rows can be there

    objects = TeamManager.from_queryset(TeamQuerySet)()
    across_teams = TeamManager.from_queryset(TeamQuerySet)()

    class Meta:
        abstract = True


def is_team_owned(model: Any) -> bool:
    """Whether its rows belong to one team each; a team belongs to itself."""
    return issubclass(model, TeamOwned) or model._meta.label == TEAM


def is_narrowing_condition(model: Any, condition: Q) -> bool:
    """Whether rows of ``model`` that meet ``condition`` are of the teams that it names."""
    if condition.negated:
        return False
    named = [
        is_narrowing_condition(model, child) if isinstance(child, Q) else isinstance(child, tuple) and is_team_lookup(model, child[0], child[1])
        for child in condition.children
    ]
    if condition.connector == Q.AND:
        return any(named)
    return condition.connector == Q.OR and bool(named) and all(named)


def is_team_lookup(model: Any, lookup: str, value: Any) -> bool:
    """Whether ``lookup`` leads over rows of one team to a row, and ``value`` is known to be a row of a team. A team itself may be given by its id."""
    path = lookup.split("__")
    if path[-1] in ("exact", "in"):
        path.pop()
    for index, name in enumerate(path):
        if name in ("pk", "id"):
            return index == len(path) - 1 and is_known_team_row(model, value)
        try:
            model = model._meta.get_field(name).related_model
        except FieldDoesNotExist:
            return False
        if model is None or not is_team_owned(model):
            return False
    return is_known_team_row(model, value)


def is_known_team_row(model: Any, value: Any) -> bool:
    if model._meta.label == TEAM:
        return value is not None
    if isinstance(value, OuterRef):
        return True  # the outer query names the team
    if isinstance(value, (QuerySet, Subquery)):
        inner: Any = value.query
        return issubclass(inner.model, TeamOwned) and not getattr(inner, "needs_team", False)
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(isinstance(item, TeamOwned) for item in value)
    return isinstance(value, TeamOwned)
