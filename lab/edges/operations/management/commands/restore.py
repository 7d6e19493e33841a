"""``manage.py restore SOURCE``: a backup into an empty lab."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from lab.edges.operations.file_copies import DamagedFile, StorageFull
from lab.edges.operations.postgres_tools import PostgresToolError
from lab.edges.operations.restores import RestoreReport, restore_backup
from lab.lib.refusals import Refusal


class Command(BaseCommand):
    requires_system_checks = ()  # there is no table yet
    help = (
        "Restores a backup into an empty lab: LAB_HOME (or DATABASE_URL, LAB_RUNS, LAB_DATASETS and LAB_POLICIES) must hold nothing. Every file is "
        "compared with the manifest. An interrupted restore is gone on with by the same command. Runs that trained when the backup was made wait for "
        "a worker and go on from their last checkpoint. Exit codes: 0 done, 1 failed, 2 refused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("source", type=Path, metavar="SOURCE", help="the folder that manage.py backup wrote")
        parser.add_argument(
            "--files",
            action=BooleanOptionalAction,
            default=True,
            help="whether files are restored, or are in place and only compared with the database",
        )
        parser.add_argument("--key", type=Path, metavar="FILE", help="the secret key that backup --key wrote")
        parser.add_argument(
            "--repair", action="store_true", help="accept runs whose spool is shorter than what the database holds of it: fill it with blank lines"
        )

    def handle(self, *args: Any, source: Path, files: bool, key: Path | None, repair: bool, **options: Any) -> None:
        try:
            report = restore_backup(source, files=files, key=key, repair=repair, say=self.say)
        except Refusal as error:
            raise CommandError(str(error), returncode=2) from None
        except (StorageFull, PostgresToolError, DamagedFile) as error:
            raise CommandError(str(error)) from None
        except (OSError, DatabaseError) as error:
            raise CommandError(f"the backup was not restored: {error}; the same command goes on where it was") from None
        self.tell(report, key)

    def tell(self, report: RestoreReport, key: Path | None) -> None:
        if report.mended:
            self.say(f"Repaired: {report.mended} spools were too short and have blank lines now; their rows are in the database.")
        if report.lost:
            self.say(f"{report.lost} runs trained when the backup was made: they wait for a worker and go on from their last checkpoint.")
        if not report.same_key:
            fix = f"set SECRET_KEY to what is in {key}" if key else "restore with --key FILE, or set SECRET_KEY to the old key"
            words = "; ".join(report.unreadable) or "nothing sealed is in this database, but everybody has to sign in again"
            self.say(f"Warning: the lab has another secret key than the backup's. Unreadable: {words}. To read them, {fix}.")
        self.say(f"Restored the backup of {report.manifest.made_at:%Y-%m-%d %H:%M} UTC. Start the lab: make up")

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
