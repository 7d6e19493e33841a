"""``manage.py setup_link``: prints a fresh one-time link for the first account, for installations that ``up`` does not start."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from lab.teams.accounts import setup_link


class Command(BaseCommand):
    help = "Prints the one-time link that creates the first account; earlier links stop working. Reports if an account already exists."

    def handle(self, *args: Any, **options: Any) -> None:
        path = setup_link.create_setup_link()
        if path is None:
            self.stdout.write("An account already exists; there is no set-up link.")
        else:
            self.stdout.write(f"No account exists yet. Create the first one with this link (valid once, for one day): <address of the lab>{path}")
