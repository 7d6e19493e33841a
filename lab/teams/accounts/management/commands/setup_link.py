"""``manage.py setup_link``: prints a fresh one-time link for the first account, for installations that ``up`` does not start."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from lab.teams.accounts import setup_link


class Command(BaseCommand):
    help = "Prints the one-time link that makes the first account; an earlier link stops working. Says so when somebody has an account already."

    def handle(self, *args: Any, **options: Any) -> None:
        path = setup_link.create_setup_link()
        if path is None:
            self.stdout.write("Somebody has an account already; there is no set-up link.")
        else:
            self.stdout.write(f"Nobody has an account yet. Make the first one here, once, within a day: <address of the lab>{path}")
