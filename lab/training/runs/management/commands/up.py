"""``manage.py up``: the whole lab in one terminal, until Ctrl-C."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from typing import Any

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError

from lab.teams.accounts import setup_link
from lab.training.runs.local_lab import HOST, LabError, LocalLab, port_is_free, prepare_database


class Command(BaseCommand):
    requires_system_checks = (Tags.models,)  # the check of addresses imports all pages and the API: half of a start
    help = (
        "Starts PostgreSQL and Redis (unless DATABASE_URL and REDIS_URL name them), the web process, a worker for runs and one for analysis, "
        "and keeps them until Ctrl-C. "
        "A run in progress is then saved and goes on at the next start. Exit codes: 0 stopped by Ctrl-C, 1 a process ended by itself."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", default=os.environ.get("PORT") or "8000", help="port of the web pages on 127.0.0.1 (default: PORT, or 8000)")
        parser.add_argument(
            "--no-worker", action="store_true", help="start no workers: runs and what-if questions wait for workers started elsewhere"
        )

    def handle(self, *args: Any, port: str, no_worker: bool, **options: Any) -> None:
        number = port_number(port)
        if not port_is_free(number):
            raise CommandError(
                f"port {number} on {HOST} is in use: is the lab already running? Stop it, or choose another port: make up PORT={number + 1}"
            )
        try:
            self.say("Preparing the database …")
            prepare_database()
            self.say("Starting the web process" + (" …" if no_worker else " and the workers …"))
            with LocalLab(number, worker=not no_worker) as lab:
                self.greet(lab, no_worker)
                while True:
                    for service in lab.check():
                        self.say(f"{service} had exited and was restarted; no data is lost.")
                    time.sleep(0.5)
        except LabError as error:
            raise CommandError(f"{error}\nThe lab is stopped.") from None
        except KeyboardInterrupt:
            self.say("Stopped. A run in progress was saved and continues at the next start.")

    def greet(self, lab: LocalLab, no_worker: bool) -> None:
        self.say(f"Policy Lab is at {lab.url}   (Ctrl-C stops it; logs in {lab.logs})")
        if no_worker:
            self.say("No worker was started: runs wait for one. Start one with .venv/bin/python manage.py worker")
        if path := setup_link.create_setup_link():
            self.say(f"\nNo account exists yet. Create the first one with this link (valid once, for one day):\n\n    {lab.url}{path}\n")

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def port_number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise CommandError(f"port {text!r}: give a number from 1 to 65535")
    return int(text)
