"""Many runs that write at once: how far behind the database is, and how many connections that takes.

A process appends to the spools of ``--runs`` runs, a step of 64 rollouts and 20 metrics each, ``--interval`` seconds apart in each run. ``--workers``
processes store them by the product's ingest; each has ``--threads`` threads, with a connection of its own each, that look at its runs in turns.
Behind is a step from when it was written whole until the commit that holds its last line. In the end every spool has to be in the database whole,
every rollout once.

Started by ``bench/size.py --streams``; alone it needs DATABASE_URL, REDIS_URL and LAB_RUNS, and LAB_DB_POOL=0.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.trajectories import make_run, percentile, say  # noqa: E402
from bench.trajectory_data import STEP, Texts, rollouts  # noqa: E402

METRICS = 20  # of a step
LOOK = 0.1  # seconds between looks of a thread that found nothing
CATCH_UP = 120.0  # seconds that the workers have for what is left


def main() -> int:
    options = parse_arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
    import django

    django.setup()
    print(json.dumps(measure_streams(options)))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=20, help="processes that ingest")
    parser.add_argument("--threads", type=int, default=2, help="of a worker, each with a connection")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between two steps of a run")
    parser.add_argument("--folder", default=".", help="where the processes write down what they did")
    return parser.parse_args()


def measure_streams(options: argparse.Namespace) -> dict[str, Any]:
    from django.db import connection, connections

    from lab.teams.accounts.models import Team
    from lab.training.runs.models import Run

    team = Team.objects.create(name="Streams", slug="streams")
    runs = [make_run(team, number) for number in range(1, options.runs + 1)]
    connections.close_all()  # the processes must not share it
    context = multiprocessing.get_context("fork")
    folder, stop = Path(options.folder), context.Event()
    workers = [
        context.Process(target=ingest_runs, args=(runs[number :: options.workers], options.threads, stop, folder / f"worker-{number}"))
        for number in range(options.workers)
    ]
    writer = context.Process(target=write_steps, args=(runs, options, folder / "written"))
    for process in (*workers, writer):
        process.start()
    say(f"{options.runs} runs write for {options.seconds:g} s")
    peak = 0
    while writer.is_alive():
        peak = max(peak, count_connections(connection))
        time.sleep(0.5)
    until = time.monotonic() + CATCH_UP
    sizes = {run.pk: (run.folder / "events.jsonl").stat().st_size for run in runs}
    while time.monotonic() < until and any(sizes[pk] != at for pk, at in Run.across_teams.filter(team=team).values_list("pk", "ingested")):
        peak = max(peak, count_connections(connection))
        time.sleep(0.5)
    stop.set()
    for process in workers:
        process.join(30)
    return summarize(options, team, runs, sizes, folder, peak)


def count_connections(connection: Any) -> int:
    """Without the one that asks."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
        return int(cursor.fetchone()[0])


def ingest_runs(runs: Sequence[Any], threads: int, stop: Any, out: Path) -> None:
    """A worker: its threads until ``stop``; every commit stands in ``out`` as "run offset time"."""
    commits: list[str] = []

    def follow(own: Sequence[Any]) -> None:
        from django.db import connection

        from lab.supervision.supervisor.ingest import ingest_spool

        while not stop.is_set():
            moved = False
            for run in own:
                if ingest_spool(run):
                    commits.append(f"{run.number} {run.ingested} {time.time()}\n")
                    moved = True
            if not moved:
                stop.wait(LOOK)
        connection.close()

    followers = [threading.Thread(target=follow, args=(runs[number::threads],)) for number in range(threads)]
    for follower in followers:
        follower.start()
    for follower in followers:
        follower.join()
    out.write_text("".join(commits))


def write_steps(runs: Sequence[Any], options: argparse.Namespace, out: Path) -> None:
    """The steps of all runs, evenly spread over the interval; each stands in ``out`` as "run offset time rollouts"."""
    from trainers.contract import spool
    from trainers.contract.events import AttemptStarted, Metrics

    texts, written = Texts(1), []
    most = int(options.seconds / options.interval) + 2
    sources = [rollouts(most * STEP, texts, run.number) for run in runs]
    begun, step = time.monotonic(), 0
    while time.monotonic() - begun < options.seconds:
        step += 1
        for number, run in enumerate(runs):
            due = begun + options.interval * (step - 1 + number / len(runs))
            if due > time.monotonic():
                time.sleep(due - time.monotonic())
            events: list[Any] = [next(sources[number]) for _ in range(STEP)]
            values = {f"metric/{name}": float(step * name) for name in range(METRICS)}
            events.append(Metrics(attempt=1, time=time.time(), step=step, values=values, tokens=STEP * 256))
            if step == 1:
                start = {"from_step": 0, "total_steps": most, "pid": 1, "host": "h", "device": "cpu", "command": [], "versions": {}}
                events.insert(0, AttemptStarted(attempt=1, time=time.time(), **start))
            with (run.folder / spool.SPOOL).open("ab") as file:
                file.write(b"".join(spool.encoder.encode(event) + b"\n" for event in events))
                end = file.tell()
            written.append(f"{run.number} {end} {time.time()} {STEP}\n")
    out.write_text("".join(written))


def summarize(options: argparse.Namespace, team: Any, runs: Sequence[Any], sizes: dict[Any, int], folder: Path, peak: int) -> dict[str, Any]:
    from django.db import connection

    from lab.rollouts.trajectories.models import Rollout
    from lab.training.runs.models import Run

    commits: dict[int, list[tuple[int, float]]] = {run.number: [] for run in runs}
    for path in folder.glob("worker-*"):
        for line in path.read_text().splitlines():
            number, offset, at = line.split()
            commits[int(number)].append((int(offset), float(at)))
    behind, count, times = [], 0, []
    for line in (folder / "written").read_text().splitlines():
        number, offset, written, rows = line.split()
        stored = [at for to, at in commits[int(number)] if to >= int(offset)]
        behind.append(min(stored) - float(written) if stored else float("inf"))
        count += int(rows)
        times.append(float(written))
    whole = all(sizes[pk] == at for pk, at in Run.across_teams.filter(team=team).values_list("pk", "ingested"))
    kept = Rollout.objects.filter(run__team=team).count()
    with connection.cursor() as cursor:
        cursor.execute("SHOW max_connections")
        limit = int(cursor.fetchone()[0])
    return {
        "runs": options.runs,
        "workers": options.workers,
        "threads": options.threads,
        "rollouts": count,
        "rollouts_a_second": round(count / (max(times) - min(times))),
        "behind_p50_s": round(sorted(behind)[len(behind) // 2], 2),
        "behind_p95_s": round(percentile(behind), 2),
        "connections": peak,
        "connections_limit": limit,
        "ok": whole and kept == count and peak < limit,
    }


if __name__ == "__main__":
    sys.exit(main())
