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
from django.db import InterfaceError, OperationalError

from lab.lib.half_restored import refuse_half_restored
from lab.lib.health_watch import note_check
from lab.lib.json_log import format_note
from lab.lib.known_migrations import refuse_newer_database
from lab.lib.refusals import Refusal
from lab.lib.secret_key import refuse_weak
from lab.training.workers.departure import DeparturePlan
from lab.training.workers.gpus import Gpu, list_gpus
from lab.training.workers.models import ANALYSIS
from lab.training.workers.reach import explain_database_trouble, find_unreachable_services

LONGEST_IDLE = 7 * 86_400  # s
QUEUE = re.compile(r"[\w.-]{1,50}")


class Command(BaseCommand):
    requires_system_checks = (Tags.models,)  # the check of addresses imports all pages and the API: half of a start
    help = (
        "Trains runs, one at a time. Start one worker for each GPU, or with --gpus one for the runs of several processes. "
        "Ctrl-C or SIGTERM stops and saves the run in progress, returns it to the queue and exits; a second Ctrl-C exits immediately, "
        "and the run continues from its last checkpoint on the next worker. "
        "Exit codes: 0 it left in order (told by a signal, after its run with --once, idle with --idle-exit; how the run ended is in the lab), "
        "1 it failed, or was told twice, 2 refused: an option, its name, the database."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--queues", default="gpu", help="comma-separated names of the queues to serve (default: gpu)")
        parser.add_argument("--gpu", default=None, help="number of the GPU to use (default: the first, if the machine has any)")
        parser.add_argument(
            "--gpus", default=None, help="several GPUs for one worker: all, how many (4), or which (0,2); of CUDA_VISIBLE_DEVICES where that is set"
        )
        parser.add_argument("--once", action="store_true", help="leave after one run, however it ended")
        parser.add_argument("--idle-exit", type=float, metavar="SECONDS", help="leave when no run has come for so long")
        parser.add_argument("--name", default="", help="name shown in the lab; unique among running workers (default: host:pid-random)")
        parser.add_argument(
            "--check", action="store_true", help="start nothing; exit 0 if a worker of this host is alive, else 1 (for health checks)"
        )
        parser.add_argument(
            "--end-when-dead", type=int, metavar="PID", help="with --check: end this process after a number of checks in a row without a worker"
        )

    def handle(self, *args: Any, queues: str, name: str, check: bool, end_when_dead: int | None, **options: Any) -> None:
        from lab.training.workers.heartbeat import default_name, register_worker
        from lab.training.workers.models import Worker
        from lab.training.workers.service import serve_worker_queues

        if check:
            alive = Worker.objects.alive().filter(host=socket.gethostname()).exists()  # without a database it raises, and nothing is counted
            if end_when_dead:
                note_check(alive, end_when_dead)
            raise SystemExit(0 if alive else 1)
        refuse_weak(settings.SECRET_KEY)
        served = queue_names(queues)
        plan = plan_departure(options["once"], options["idle_exit"], served)
        gpus = self.take_gpus(options["gpu"], options["gpus"])
        if len(name) > 150 or "/" in name or "\0" in name:
            raise CommandError(f"--name {name!r}: use at most 150 characters and no slash", returncode=2)
        try:
            if not plan.stays and (problems := find_unreachable_services()):
                raise CommandError(" ".join(f"{problem.rstrip('.')}." for problem in problems))
            refuse_half_restored()
            refuse_newer_database()
            worker = register_worker(name or default_name(), served, gpus, plan.after_one)
        except Refusal as error:
            raise CommandError(str(error), returncode=2) from None
        except (OperationalError, InterfaceError) as error:
            raise CommandError(explain_database_trouble(error)) from None
        self.say(f"Worker {worker.name} serves {', '.join(worker.queues)} on {worker.gpu or f'{worker.cpus} CPU cores'}. Ctrl-C stops it.")
        if code := serve_worker_queues(worker, plan):
            raise SystemExit(code)

    def take_gpus(self, one: str | None, several: str | None) -> list[Gpu]:
        """The GPUs of this worker, which it and all it starts see and no others. Raises CommandError."""
        if several is not None:
            if one is not None:
                raise CommandError("--gpu and --gpus: give one of them", returncode=2)
            gpus = choose_gpus(several, list_gpus(visible=True))
            if several != "all" or "CUDA_VISIBLE_DEVICES" not in os.environ:  # a scheduler may have named them otherwise than by number
                show_gpus(gpus)
            return gpus
        if one is None and "CUDA_VISIBLE_DEVICES" in os.environ:  # somebody has chosen already
            return list_gpus(visible=True)
        known = list_gpus()
        chosen = choose_gpu(one, known)
        if chosen is None:
            return []
        show_gpus([chosen])
        if one is None and len(known) > 1:
            self.say(f"This machine has {len(known)} GPUs; this worker uses the first. Start one for each: --gpu 0, --gpu 1, …")
        return [chosen]

    def say(self, text: str) -> None:
        self.stdout.write(format_note(__name__, text) if settings.LOG_FORMAT == "json" else text)
        self.stdout.flush()


def plan_departure(once: bool, idle_exit: float | None, queues: list[str]) -> DeparturePlan:
    """Raises CommandError."""
    if idle_exit is not None and not 1 <= idle_exit <= LONGEST_IDLE:
        raise CommandError(f"--idle-exit {idle_exit:g}: give seconds from 1 to {LONGEST_IDLE}", returncode=2)
    plan = DeparturePlan(once, idle_exit)
    if not plan.stays and queues == [ANALYSIS]:
        raise CommandError(f"--once and --idle-exit are for workers that train; the queue {ANALYSIS} has no runs", returncode=2)
    return plan


def show_gpus(gpus: list[Gpu]) -> None:
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu.index) for gpu in gpus)


def choose_gpus(text: str, gpus: list[Gpu]) -> list[Gpu]:
    """Those asked for: ``all``, the first so many (one number), or those with the numbers given, in that order. Raises CommandError."""
    if text == "all":
        if not gpus:
            raise CommandError(
                "--gpus all: this machine has no GPU that this worker may use; leave the option out for a worker on CPUs", returncode=2
            )
        return gpus
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() for number in numbers) or len(set(numbers)) < len(numbers):
        raise CommandError(f"--gpus {text!r}: give all, how many (4), or which with commas between them (0,2)", returncode=2)
    if len(numbers) == 1:
        count = int(text)
        if not count:
            raise CommandError("--gpus 0: give all, how many (4), or which (0,2); the GPU with the number 0 is --gpu 0", returncode=2)
        if count > len(gpus):
            raise CommandError(f"--gpus {count}: there are not so many; {say_available(gpus)}", returncode=2)
        return gpus[:count]
    by_number = {str(gpu.index): gpu for gpu in gpus}
    if missing := [number for number in numbers if number not in by_number]:
        raise CommandError(f"--gpus {text}: GPU {', '.join(missing)} is not here; {say_available(gpus)}", returncode=2)
    return [by_number[number] for number in numbers]


def say_available(gpus: list[Gpu]) -> str:
    return f"this machine has: {', '.join(f'{gpu.index} ({gpu})' for gpu in gpus) or 'none'}"


def choose_gpu(text: str | None, gpus: list[Gpu]) -> Gpu | None:
    """The GPU asked for; without a wish the first one. Raises CommandError."""
    if text is None:
        return next(iter(gpus), None)
    if not text.isdecimal():
        raise CommandError(f"--gpu {text!r}: give the number of a GPU, for example 0", returncode=2)
    for gpu in gpus:
        if gpu.index == int(text):
            return gpu
    raise CommandError(f"--gpu {text}: GPU {text} is not here; {say_available(gpus)}", returncode=2)


def queue_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not QUEUE.fullmatch(name):
            raise CommandError(f"--queues {text!r}: {name!r} is not the name of a queue; use letters, digits, dots and dashes", returncode=2)
    return names
