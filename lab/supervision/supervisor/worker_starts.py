"""Workers that a command of the operator starts (LAB_START) where runs wait and no worker is free: a job of Slurm, of Kubernetes, of a cloud.

The lab is no scheduler: it says when another worker is wanted, and the command's scheduler says where and when it comes.
"""

from __future__ import annotations

import logging
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from lab.lib.child_environment import STARTER, environment_for
from lab.lib.clock import database_now
from lab.lib.processes import kill_tree
from lab.lib.redaction import redact_secrets
from lab.lib.start_commands import StartCommand
from lab.training.runs.models import ACTIVE, HEAVY, Run, Status
from lab.training.runs.process_counts import ONE_PROCESS, fetch_run_sizes
from lab.training.workers.models import Worker, WorkerStart
from lab.watching.usage import quotas

log = logging.getLogger(__name__)

LOCK = 0x57A27ED  # PostgreSQL advisory lock: one worker decides at a time
COMMAND_SECONDS = 60.0  # less than ANSWERED_WITHIN of workers.models
OUTPUT_CHARACTERS = 4000  # kept of what a command says, from its end
KEPT = timedelta(days=30)
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 900.0  # s after a command that failed; twice as long after each further one in a row


def start_wanted_workers() -> None:
    """One round, at most one worker a queue. Raises database errors."""
    for start in book_starts(settings.WORKER_STARTS.values()) if settings.WORKER_STARTS else ():
        code, output = run_start_command(settings.WORKER_STARTS[start.queue])
        WorkerStart.objects.filter(pk=start.pk).update(exit_code=code, output=output, ended_at=Now())
        if code != 0:
            log.warning("the command that starts a worker for %s failed (%s): %s", start.queue, "not run" if code is None else code, output[-500:])


def book_starts(commands: Collection[StartCommand]) -> list[WorkerStart]:
    """The starts that are wanted now, written down before anything is run, so that nobody else wants them too."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
            if not cursor.fetchone()[0]:
                return []
        WorkerStart.objects.filter(started_at__lt=Now() - KEPT).delete()
        wanted = [command for command in commands if wants_worker(command)]
        now = database_now()
        return [
            WorkerStart.objects.create(
                queue=command.queue, command=list(command.command), expected_until=now + timedelta(seconds=command.patience), started_at=now
            )
            for command in wanted
        ]


def wants_worker(command: StartCommand) -> bool:
    """Whether more runs wait than workers are free or on their way, and there is room for another worker."""
    coming = WorkerStart.objects.coming().filter(queue=command.queue).count()
    here = Worker.objects.alive().filter(queues__contains=[command.queue]).count()
    if here + coming >= command.most or is_pausing(command.queue):
        return False
    return count_unserved(command) > coming


def count_unserved(command: StartCommand) -> int:
    """Runs of the queue that a started worker could take now and no free worker will. The largest choose first: the smallest worker with room."""
    startable = list_startable_runs(command.queue)
    known = fetch_run_sizes([run.pk for run in startable])
    sizes = sorted((known.get(run.pk, ONE_PROCESS) for run in startable), key=lambda size: size.gpus, reverse=True)
    free = sorted(list_free_workers(command.queue), key=lambda worker: worker.gpus or worker.cpus)
    unserved = 0
    for size in sizes:
        taker = next((worker for worker in free if size.fits_worker(worker)), None)
        if taker is not None:
            free.remove(taker)
        elif size.gpus <= command.gpus:
            unserved += 1
    return unserved


def list_startable_runs(queue: str) -> list[Run]:
    """Waiting runs that no quota holds, and of a team with a limit on concurrent runs no more than may still start at once."""
    waiting = list(Run.across_teams.waiting().filter(queue=queue).order_by("queued_at").defer(*HEAVY))
    held = quotas.held_all(waiting)
    room = quotas.count_free_places({run.team_id for run in waiting})
    taken: Counter[int] = Counter()
    startable = []
    for run in waiting:
        if run.pk not in held and (run.status == Status.LOST or taken[run.team_id] < room.get(run.team_id, len(waiting))):
            taken[run.team_id] += run.status != Status.LOST  # which counts as running already
            startable.append(run)
    return startable


def list_free_workers(queue: str) -> list[Worker]:
    owners = Run.across_teams.filter(status__in=ACTIVE, outside=False).values_list("owner", flat=True)
    busy = {owner.split("/")[0] for owner in owners}
    ready = Worker.objects.serving(queue).exclude(takes_one=True, runs_taken__gt=0)
    return [worker for worker in ready if worker.name not in busy]


def is_pausing(queue: str) -> bool:
    """Whether the last commands failed and the next try is not due."""
    newest = list(WorkerStart.objects.judged().filter(queue=queue).order_by("-started_at")[:10])
    failures = next((place for place, start in enumerate(newest) if start.state != "failed"), len(newest))
    if not failures:
        return False
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1))
    return WorkerStart.objects.filter(pk=newest[0].pk, ended_at__gt=Now() - timedelta(seconds=pause)).exists()


def run_start_command(command: StartCommand) -> tuple[int | None, str]:
    """Exit code, None where it could not be run or did not end, and what it said. It may leave processes behind: that may be the worker."""
    kind = replace(STARTER, names=STARTER.names | set(command.environment))
    environment = environment_for(kind) | {"LAB_QUEUE": command.queue, "LAB_GPUS": str(command.gpus)}
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=settings.BASE,
                start_new_session=True,
            )
        except OSError as error:
            return None, f"it cannot be run: {error}"
        try:
            code: int | None = process.wait(COMMAND_SECONDS)
            problem = ""
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            process.wait()
            code, problem = None, f"\nit did not end within {COMMAND_SECONDS:g} s and was killed"
        output.seek(max(0, output.seek(0, 2) - 4 * OUTPUT_CHARACTERS))
        said = output.read().decode(errors="replace").replace("\0", "")
    return code, redact_secrets(said)[-OUTPUT_CHARACTERS:].strip() + problem
