"""``manage.py demo``: trains the built-in policy in three stages and shows what each did."""

from __future__ import annotations

from typing import Any

from django.core.checks import Tags
from django.core.management.base import BaseCommand
from rich.console import Console

from lab.training.runs.demo import THRESHOLD, run_demo

PLAIN_WIDTH = 120


class Command(BaseCommand):
    requires_system_checks = (Tags.models,)  # the check of addresses imports all pages and the API: half of a start
    help = (
        "Trains the built-in tiny policy: supervised cold start, GRPO, DPO, about four minutes on two cores, in a team of its own of the lab "
        "that make up starts (of <LAB_HOME>/demo where DATABASE_URL or REDIS_URL names servers). "
        f"Exit code 0 only if every stage finished and GRPO raised the held-out reward by at least {THRESHOLD}."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(soft_wrap=False)
        if not console.is_terminal:
            console = Console(width=PLAIN_WIDTH, no_color=True, force_terminal=False)
        try:
            code = run_demo(console)
        except KeyboardInterrupt:
            console.print("Interrupted; everything the demo started is stopped.")
            code = 130
        raise SystemExit(code)
