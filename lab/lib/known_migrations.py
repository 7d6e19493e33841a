"""Which migrations a database has that this version of the lab does not know: a newer version has been there, whose columns it would not fill."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from django.apps import apps
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from lab.lib.refusals import Refusal

NAMED = 3  # of the unknown migrations that a refusal names


def refuse_newer_database() -> None:
    """Raises Refusal when the database was migrated by a newer version of the lab. Two queries; raises database errors."""
    if unknown := list_unknown_migrations(f"{app}.{name}" for app, name in MigrationRecorder(connection).applied_migrations()):
        raise Refusal(
            f"The database was migrated by a newer version of the lab: this one does not know {name_migrations(unknown)}.",
            "Start that version or a later one, or restore a backup made before the upgrade (docs/operate.md).",
        )


def list_unknown_migrations(names: Iterable[str]) -> list[str]:
    """Those of ``names`` (``app.migration``) that this version has neither as they are nor merged into one that replaces them, sorted."""
    unknown = set(names) - list_own_migrations()
    if unknown:
        for replaced in read_replacements().values():
            unknown -= replaced
    return sorted(unknown)


def list_missing_migrations(names: Iterable[str]) -> list[str]:
    """The migrations of this version that ``names``, the applied ones, lack, sorted; one whose work is done under other names is not missing."""
    applied = set(names)
    missing = list_own_migrations() - applied
    if missing:
        for replacing, replaced in read_replacements().items():
            if replacing in applied:
                missing -= replaced
            elif replaced <= applied:
                missing.discard(replacing)
    return sorted(missing)


def list_own_migrations() -> set[str]:
    """``app.migration`` of every file there is; nothing is imported."""
    return {
        f"{app.label}.{module.name}"
        for app in apps.get_app_configs()
        for folder in find_migration_folders(app.name)
        for module in iter_modules([folder])
    }


@cache
def read_replacements() -> dict[str, set[str]]:
    """Migration → those it replaces. Imports all migrations, which takes longer than the start of a worker should."""
    loader = MigrationLoader(None, load=False)
    loader.load_disk()
    own = {f"{app}.{name}": {f"{old}.{older}" for old, older in migration.replaces} for (app, name), migration in loader.disk_migrations.items()}
    return {name: replaced for name, replaced in own.items() if replaced}


def find_migration_folders(app: str) -> list[str]:
    try:
        return list(import_module(f"{app}.migrations").__path__)
    except ModuleNotFoundError:
        return []


def name_migrations(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
