"""``manage.py backup TARGET``: database, run folders, datasets and policies of a lab that may be running, into one folder."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction
from pathlib import Path
from typing import Any

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from lab.edges.operations.backups import make_backup
from lab.edges.operations.file_copies import StorageFull, format_bytes
from lab.edges.operations.manifests import PARTIAL
from lab.edges.operations.postgres_tools import PostgresToolError
from lab.lib.refusals import Refusal


class Command(BaseCommand):
    requires_system_checks = (Tags.models,)  # the check of addresses imports all pages and the API: half of a start
    help = (
        "Backs the lab up while it runs: the database as one snapshot, then run folders, datasets and policies, then a manifest with sizes "
        f"and digests. TARGET is named TARGET{PARTIAL} until it is whole; run the command again to go on with one that was interrupted. "
        "The secret key is not in it: see --key. Exit codes: 0 done, 1 failed, 2 refused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("target", type=Path, metavar="TARGET", help="a new folder, best on another disk")
        parser.add_argument("--files", action=BooleanOptionalAction, default=True, help="whether files are copied, or the database alone")
        parser.add_argument(
            "--key", type=Path, metavar="FILE", help="also write the secret key to a new file of its own; keep it apart from the backup"
        )

    def handle(self, *args: Any, target: Path, files: bool, key: Path | None, **options: Any) -> None:
        try:
            manifest = make_backup(target, files=files, key=key, say=self.say)
        except Refusal as error:
            raise CommandError(str(error), returncode=2) from None
        except (StorageFull, PostgresToolError) as error:
            raise CommandError(str(error)) from None
        except (OSError, DatabaseError) as error:
            raise CommandError(f"the backup was not made: {error}") from None
        for reason in manifest.left_out:
            self.say(f"Left out: {reason}")
        if not files:
            self.say("Without files: run folders, datasets and policies need a backup of their own, made after this one.")
        if key:
            self.say(f"The secret key is in {key}. Whoever has it and the backup can read every secret in it: keep them apart.")
        else:
            self.say(
                "The secret key is not in the backup: without it second factors, webhooks and hub tokens cannot be read. Keep it apart (--key FILE)."
            )
        self.say(f"Backup: {target}, {format_bytes(manifest.total_bytes())}.")

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
