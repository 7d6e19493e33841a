"""``manage.py worker``: trains the runs of its queues, one at a time, until Ctrl-C."""

from __future__ import annotations

import os
import re
import socket
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError

from lab.lib.half_restored import refuse_half_restored
from lab.lib.health_watch import note_check
from lab.lib.json_log import format_note
from lab.lib.known_migrations import refuse_newer_database
from lab.lib.refusals import Refusal
from lab.lib.secret_key import refuse_weak
from lab.training.workers.gpus import Gpu, list_gpus

QUEUE = re.compile(r"[\w.-]{1,50}")


class Command(BaseCommand):
    requires_system_checks = (Tags.models,)  # the check of addresses imports all pages and the API: half of a start
    help = (
        "Trains runs, one at a time. Start one worker for each GPU. "
        "Ctrl-C or SIGTERM stops and saves the run in progress, returns it to the queue and exits; a second Ctrl-C exits immediately, "
        "and the run continues from its last checkpoint on the next worker."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--queues", default="gpu", help="comma-separated names of the queues to serve (default: gpu)")
        parser.add_argument("--gpu", default=None, help="number of the GPU to use (default: the first, if the machine has any)")
        parser.add_argument("--name", default="", help="name shown in the lab; unique among running workers (default: host:pid-random)")
        parser.add_argument(
            "--check", action="store_true", help="start nothing; exit 0 if a worker of this host is alive, else 1 (for health checks)"
        )
        parser.add_argument(
            "--end-when-dead", type=int, metavar="PID", help="with --check: end this process after a number of checks in a row without a worker"
        )

    def handle(self, *args: Any, queues: str, gpu: str | None, name: str, check: bool, end_when_dead: int | None, **options: Any) -> None:
        from lab.training.workers.heartbeat import default_name, register_worker
        from lab.training.workers.models import Worker
        from lab.training.workers.service import serve_worker_queues

        if check:
            alive = Worker.objects.alive().filter(host=socket.gethostname()).exists()  # without a database it raises, and nothing is counted
            if end_when_dead:
                note_check(alive, end_when_dead)
            raise SystemExit(0 if alive else 1)
        refuse_weak(settings.SECRET_KEY)
        gpus = list_gpus()
        chosen = choose_gpu(gpu, gpus)
        if chosen is not None:
            os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            os.environ["CUDA_VISIBLE_DEVICES"] = str(chosen.index)
            if gpu is None and len(gpus) > 1:
                self.say(f"This machine has {len(gpus)} GPUs; this worker uses the first. Start one for each: --gpu 0, --gpu 1, …")
        if len(name) > 150 or "/" in name or "\0" in name:
            raise CommandError(f"--name {name!r}: use at most 150 characters and no slash", returncode=2)
        try:
            refuse_half_restored()
            refuse_newer_database()
            worker = register_worker(name or default_name(), queue_names(queues), str(chosen or "")[:100], chosen.memory if chosen else 0)
        except Refusal as error:
            raise CommandError(str(error), returncode=2) from None
        self.say(f"Worker {worker.name} serves {', '.join(worker.queues)} on {worker.gpu or f'{worker.cpus} CPU cores'}. Ctrl-C stops it.")
        if code := serve_worker_queues(worker):
            raise SystemExit(code)

    def say(self, text: str) -> None:
        self.stdout.write(format_note(__name__, text) if settings.LOG_FORMAT == "json" else text)
        self.stdout.flush()


def choose_gpu(text: str | None, gpus: list[Gpu]) -> Gpu | None:
    """The GPU asked for; without a wish the first one, unless CUDA_VISIBLE_DEVICES has chosen already."""
    if text is None:
        return None if "CUDA_VISIBLE_DEVICES" in os.environ else next(iter(gpus), None)
    if not text.isdecimal():
        raise CommandError(f"--gpu {text!r}: give the number of a GPU, for example 0", returncode=2)
    for gpu in gpus:
        if gpu.index == int(text):
            return gpu
    available = ", ".join(f"{gpu.index} ({gpu})" for gpu in gpus) or "none"
    raise CommandError(f"--gpu {text}: GPU {text} is not here; this machine has: {available}", returncode=2)


def queue_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not QUEUE.fullmatch(name):
            raise CommandError(f"--queues {text!r}: {name!r} is not the name of a queue; use letters, digits, dots and dashes", returncode=2)
    return names
