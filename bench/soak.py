"""A lab at work that is broken once a minute, and what must hold afterwards.

PostgreSQL, Redis and an object store of its own over TCP, each behind a proxy; the product's web process and two workers. Runs are launched by
the API one after the other, some stopped by a person and resumed; viewers watch, a reader opens pages, a labeller labels. Meanwhile, in an order by
the seed: a trainer, a rank of a run of two processes, a supervisor, a worker, the web process killed with SIGKILL; PostgreSQL and Redis stopped hard
and started; the network cut, and 500 ms slow; the object store away; the disk of the run folders full; all of PostgreSQL's connections taken; a
worker's clock a minute ahead. Killed processes are started again, as a service manager does, and a run that failed is resumed, as a person does.

At the end: every event of every spool is in the database exactly once; every run has finished, and failed on the way only for what was done to it;
every confirmed label is there once; no viewer has a gap or a double; no process is left; the final policy of every run is in the store; memory and
open files of every process that lived five minutes are flat; no page took more than 10 s and no act by the API more than 20, and none was refused
but while something was broken.

With ``--trainer program`` the trainer is one without a model that keeps the contract (``bench/soak_trainer.py``), which spares the imports of torch;
every eighth run of more than three minutes is trained by two real processes all the same.

    .venv/bin/python bench/soak.py --minutes 60 [--seed 1] [--trainer real] [--json]
    .venv/bin/python bench/soak.py --minutes 1      (the six worst faults, ten seconds apart)
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.soak_faults import FAULTS, WORST, NothingToBreak, own_file_system  # noqa: E402
from bench.soak_lab import SoakLab, has_object_store, make_home  # noqa: E402
from bench.trajectories import say  # noqa: E402

FOLDER_MEGABYTES = 2048  # of the file system that is filled
STORE_SECONDS = 60.0  # for the last uploads
ORPHAN_SECONDS = 20.0  # for the last process to end
DRAIN_SECONDS = 240.0  # for all runs to end, once nothing is broken any more
SHORT = 3  # minutes; up to then the six worst faults in a row, above a fault a minute
STEPS, PACE = 40, 0.05  # of a run, and seconds a step without a model
SHORT_PACE, SHORT_PAUSE = 0.15, 0.6  # and seconds between two acts of a person


def main() -> int:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the lab is stopped in order
    home = make_home()
    try:
        result = soak(options, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    report(result)
    if options.json:
        print(json.dumps(result))
    return 0 if result["ok"] else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trainer", choices=["real", "program"], default="program")
    parser.add_argument("--patience", type=float, default=1.0, help="times the time that a page, a restart and the last runs may take")
    parser.add_argument("--faults", default="", help="only faults with one of these in their name, separated by commas")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def soak(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    short = options.minutes <= SHORT
    lab = SoakLab(home, options.trainer == "real", SHORT_PACE if short else PACE, with_store=not short and has_object_store())
    try:
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        with own_file_system(lab.runs, FOLDER_MEGABYTES) as mounted:
            if not mounted:
                say("the run folders are no file system of their own: the disk is not filled")
            return work_and_judge(options, lab)
    finally:
        lab.stop_services()


def work_and_judge(options: argparse.Namespace, lab: SoakLab) -> dict[str, Any]:
    from bench import soak_checks
    from bench.soak_load import PAUSE, Record, start_load

    record, usage = Record(), soak_checks.Usage()
    place = make_people(lab, options.minutes <= SHORT)
    with lab:
        say("the lab is up")
        researcher, workers, audience = start_load(place, record, options.seed, SHORT_PAUSE if options.minutes <= SHORT else PAUSE)
        faults = break_things(options, lab, usage)
        researcher.launching = False
        ended = drain(lab, DRAIN_SECONDS * options.patience)
        unstored = soak_checks.check_store(STORE_SECONDS * options.patience) if lab.store else []
        audience.ended.set()
        for thread in workers:
            thread.ended.set()
        for thread in (*workers, audience):
            thread.join(90 * options.patience)
        late = audience.is_alive()
    problems = [
        *([] if ended else ["runs did not end"]),
        *(["viewers did not catch up"] if late else []),
        *soak_checks.find_orphans(lab, ORPHAN_SECONDS * options.patience),
        *unstored,
        *soak_checks.check_runs(record),
        *soak_checks.check_failures(record),
        *soak_checks.check_labels(record),
        *soak_checks.check_viewers(record),
        *soak_checks.check_answers(record, faults, options.patience),
        *record.troubles[:20],
    ]
    growth = usage.find_growth()
    problems += [f"{one['process']} is not flat: {one}" for one in growth if not one["flat"]]
    return describe(options, record, faults, growth, problems)


def describe(
    options: argparse.Namespace, record: Any, faults: list[tuple[str, float, float]], growth: list[dict[str, Any]], problems: list[str]
) -> dict[str, Any]:
    from bench.soak_checks import SLOW_SECONDS, find_slowest_by_page
    from lab.rollouts.trajectories.models import Rollout
    from lab.training.runs.models import Attempt, Run

    return {
        "minutes": options.minutes,
        "seed": options.seed,
        "trainer": options.trainer,
        "faults": [name for name, _, _ in faults],
        "runs": Run.across_teams.count(),
        "attempts": Attempt.across_teams.count(),
        "rollouts": Rollout.across_teams.count(),
        "runs_of_two_processes": Run.across_teams.filter(spec__resources__processes=2).count(),
        "resumed": len(record.failures),
        "reasons": sorted({one.reason[:120] for one in record.failures}),
        "labels": len(record.labels),
        "viewers": len(record.viewers),
        "answers": len(record.answers),
        "slowest_s": round(max((one.seconds for one in record.answers), default=0.0), 2),
        "slowest_by_page": find_slowest_by_page(record),
        "slowest_bound_s": SLOW_SECONDS * options.patience,
        "growth": growth,
        "problems": problems[:60],
        "ok": not problems,
    }


def make_people(lab: SoakLab, short: bool) -> Any:
    from bench.labels import headers_of
    from bench.soak_load import Place
    from lab.edges.api import tokens
    from lab.teams.accounts.models import Membership, Role, Team, User

    team = Team.objects.create(name="Soak", slug="soak")
    person = User.objects.create_user("soak@example.org", None)
    Membership.objects.create(team=team, user=person, role=Role.OWNER)
    secret = tokens.create_access_token(team, person, "soak", ["runs.read", "runs.launch"], None)[1]
    return Place(lab.port, secret, headers_of(person), STEPS, two_processes=not short)


def break_things(options: argparse.Namespace, lab: SoakLab, usage: Any) -> list[tuple[str, float, float]]:
    """One fault after the other; returns their names with when each began and was mended."""
    rng, short = random.Random(options.seed), options.minutes <= SHORT
    every, lasting = (10.0, 2.0) if short else (60.0, 15.0)
    known = {name: fault for name, fault in (WORST if short else FAULTS).items() if any(word in name for word in options.faults.split(","))}
    done: list[tuple[str, float, float]] = []
    until, waiting = time.monotonic() + 60 * options.minutes, list[str]()
    wait(lab, usage, every / 2)
    while time.monotonic() < until:
        if not waiting:
            waiting = list(known) if short else rng.sample(list(known), len(known))
        name, began = waiting.pop(0), time.time()
        try:
            find_and_break(name, known, lab, rng, lasting)
        except NothingToBreak:
            say(f"{name}: nothing to break")
        else:
            done.append((name, began, time.time()))
            say(f"{name}, {time.time() - began:.1f} s")
        wait(lab, usage, max(0.0, every - (time.time() - began)))
    return done


def find_and_break(name: str, known: dict[str, Any], lab: SoakLab, rng: random.Random, lasting: float) -> None:
    """Waits a little for there to be something to break. Raises NothingToBreak."""
    for _ in range(20):
        with suppress(NothingToBreak, psutil.Error):  # a process may end while it is looked at
            known[name](lab, rng, lasting)
            return
        time.sleep(0.25)
    raise NothingToBreak


def wait(lab: SoakLab, usage: Any, seconds: float) -> None:
    """As a service manager and a look at memory every few seconds."""
    until = time.monotonic() + seconds
    while True:
        lab.revive()
        usage.look(lab)
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(2.0, left))


def drain(lab: SoakLab, seconds: float) -> bool:
    """Whether all runs have finished; those that failed or were stopped are resumed meanwhile."""
    from django.db import DatabaseError, connection

    from lab.training.runs.models import Run, Status

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lab.revive()
        try:
            if not Run.across_teams.exclude(status=Status.FINISHED).exists():
                return True
        except DatabaseError:  # of the connection that a fault has ended
            connection.close()
        time.sleep(0.5)
    return False


def report(result: dict[str, Any]) -> None:
    print(f"{result['minutes']:g} minutes, {len(result['faults'])} faults: {', '.join(result['faults'])}")
    print(f"{result['runs']} runs in {result['attempts']} attempts, {result['rollouts']:,} rollouts")
    print(f"{result['labels']} labels, {result['viewers']} viewers of finished runs")
    print(f"{result['answers']} answers, the slowest {result['slowest_s']} s, at most {result['slowest_bound_s']:g} s")
    for one in result["growth"]:
        print(f"{one['process']:12} {one['seconds']} s: {one['mib'][0]} → {one['mib'][1]} MiB, {one['files'][0]} → {one['files'][1]} files")
    for problem in result["problems"]:
        print(f"PROBLEM {problem}")
    print("ok" if result["ok"] else "NOT OK")


if __name__ == "__main__":
    sys.exit(main())
