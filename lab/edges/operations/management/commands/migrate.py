"""``manage.py migrate``: Django's, in about three fifths of the processor time."""

from typing import Any

from django.core.checks import Tags
from django.core.management.commands import migrate

from lab.lib.quick_migrations import copy_fields_quickly


class Command(migrate.Command):
    requires_system_checks = (Tags.models, Tags.database)  # the check of addresses imports all pages and the API

    def handle(self, *args: Any, **options: Any) -> None:
        with copy_fields_quickly():
            super().handle(*args, **options)
