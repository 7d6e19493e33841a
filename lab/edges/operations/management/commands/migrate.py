"""``manage.py migrate``: Django's, in about three fifths of the processor time."""

from typing import Any

from django.core.checks import Tags
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS

from lab.lib.known_migrations import refuse_newer_database
from lab.lib.quick_migrations import copy_fields_quickly
from lab.lib.refusals import Refusal


class Command(migrate.Command):
    requires_system_checks = (Tags.models, Tags.database)  # the check of addresses imports all pages and the API

    def handle(self, *args: Any, **options: Any) -> None:
        if options["database"] == DEFAULT_DB_ALIAS and not options["app_label"]:  # one that is named may be taken back
            try:
                refuse_newer_database()
            except Refusal as error:
                raise CommandError(str(error), returncode=2) from None
        with copy_fields_quickly():
            super().handle(*args, **options)
