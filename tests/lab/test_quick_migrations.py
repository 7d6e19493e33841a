"""Fields that migrations copy quickly are those that Django's own way of cloning gives."""

from typing import Any

from django.apps.registry import Apps
from django.db import connection
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.models import Field

from lab.lib.quick_migrations import copy_field, copy_fields_quickly
from lab.teams.accounts.models import Team


def parts_of(field: Any) -> Any:
    """As the changes of models are found: what a field is built from, down to the field of an array's elements."""
    empty = ProjectState()
    return MigrationAutodetector(empty, empty).deep_deconstruct(field)


def test_a_copied_field_is_the_cloned_one() -> None:
    fields = [field for model in MigrationLoader(None).project_state().models.values() for field in model.fields.values()]
    assert len(fields) > 500
    for field in fields:
        cloned, copied = field.clone(), copy_field(field)
        assert copied is not field
        assert type(copied) is type(cloned)
        assert parts_of(copied) == parts_of(cloned)
        assert copied.creation_counter != cloned.creation_counter
        assert (copied.creation_counter < cloned.creation_counter) == field.auto_created  # those made by themselves count backwards
        if field.remote_field:
            assert copied.remote_field is not field.remote_field


def test_a_field_of_a_model_is_rebuilt_as_it_belongs_to_none() -> None:
    slug = Team._meta.get_field("slug")
    copied = copy_field(slug)
    assert not hasattr(copied, "model")
    assert parts_of(copied)[1:] == parts_of(slug)[1:]  # all but the name


def test_models_made_with_copied_fields_have_the_same_columns_in_the_same_order() -> None:
    def columns(apps: Apps) -> dict[str, list[tuple[str, str]]]:
        return {
            model._meta.label: [(field.column, field.db_type(connection)) for field in model._meta.local_fields]
            for model in apps.get_models(include_auto_created=True)
        }

    cloned = columns(MigrationLoader(None).project_state().apps)
    with copy_fields_quickly():
        assert Field.clone is copy_field
        copied = columns(MigrationLoader(None).project_state().apps)
    assert Field.clone is not copy_field
    assert copied == cloned
