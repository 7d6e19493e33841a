"""``manage.py permissions``: prints the permission table; ``--write`` puts it into docs/security.md."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from lab.teams.accounts.permission_doc import insert_permission_table, render_permission_doc


class Command(BaseCommand):
    help = "Prints the permission table as Markdown."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--write", action="store_true", help="write it into docs/security.md instead")

    def handle(self, *args: Any, write: bool, **options: Any) -> None:
        if not write:
            self.stdout.write(render_permission_doc())
            return
        path = Path(settings.BASE) / "docs" / "security.md"
        path.write_text(insert_permission_table(path.read_text(encoding="utf-8")), encoding="utf-8")
