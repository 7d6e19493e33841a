"""``manage.py drain NAME``: the worker finishes its run and takes no more; ``--undo`` lets it take runs again."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError

from lab.lib.refusals import Refusal
from lab.teams.audit.recording import from_command
from lab.training.workers.draining import drain_worker


class Command(BaseCommand):
    requires_system_checks = (Tags.models,)
    help = "Drains a worker: it finishes the run it trains and takes no more. It goes on running, and takes runs again after --undo or a new start."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="name of the worker, as on the Workers page")
        parser.add_argument("--undo", action="store_true", help="let the worker take runs again")

    def handle(self, *args: Any, name: str, undo: bool, **options: Any) -> None:
        try:
            with from_command():
                changed = drain_worker(name, takes_runs=undo)
        except Refusal as error:
            raise CommandError(str(error), returncode=2) from None
        words = "takes runs again" if undo else "is draining: it finishes its run and takes no more"
        self.stdout.write(f"Worker {name} {words}{'' if changed else ' (it did so already)'}.")
