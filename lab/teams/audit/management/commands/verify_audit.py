"""``manage.py verify-audit``: walks the audit log's hash chain from its first entry to its last."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from lab.teams.audit.anchor import get_anchor_path, read_anchor
from lab.teams.audit.chain import Head, link_waiting, verify_chain


class Command(BaseCommand):
    help = (
        "Checks the hash chain over the audit log. Exit codes: 0 whole, 1 broken (the first broken entry is named). It also compares with the head "
        "that workers keep in LAB_HOME/audit-head, and with heads you kept yourself: --expect 12:9f86d081…"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--expect", action="append", default=[], metavar="HEAD", help="a head printed earlier, which must still be in the chain")

    def handle(self, *args: Any, expect: list[str], **options: Any) -> None:
        try:
            expected = [Head.read(text) for text in expect]
        except ValueError as error:
            raise CommandError(f"--expect: {error}", returncode=2) from None
        try:
            kept = read_anchor()
        except (OSError, ValueError) as error:
            raise CommandError(f"{get_anchor_path()} cannot be used: {error}") from None
        link_waiting()
        verdict = verify_chain([*expected, *([kept] if kept else [])])
        self.stdout.write(f"{verdict.checked} entries checked{f', {verdict.waiting} wait for their link' if verdict.waiting else ''}.")
        if verdict.problem:
            raise CommandError(f"BROKEN: {verdict.problem}")
        against = f"compared with {len(expected) + bool(kept)} earlier head{'s' if len(expected) + bool(kept) != 1 else ''}"
        self.stdout.write(f"The chain is whole, {against}.\nHead: {verdict.head}")
