"""How the browser and its neighbours answer in a lab of ten million rollouts, beside the same lab when it held one.

The first million goes through the spool, the product's ingest and its indexer (``bench/trajectory_data.py``); the rest are copies of those runs made
in the database, with ids and rewards of their own, whose words the product's indexer adds. Completions are short (``--words``), so that the lab
fits on a disk of 20 GB. The views are those of ``bench/trajectories.py``, asked over HTTP in turns with the reference; a view may take at most 1.5
times as many times the reference's p95 as it did at the smaller size. They are asked twice, by different addresses: what counts is the second time,
because the first tells how fast the disk is; both are printed.

With ``--streams`` 200 runs then write at once into that lab, ingested by 20 worker processes, and connections are counted (``bench/streams.py``).
With ``--retention`` a rule that keeps every tenth step is previewed and applied for a minute.

    .venv/bin/python bench/size.py [--rows 1000000,10000000] [--streams] [--retention] [--json]
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.size_data import ShortTexts, copy_run  # noqa: E402
from bench.trajectories import Asked, WebProcess, addresses, ask_all, chosen, make_run, say, start_services  # noqa: E402
from bench.trajectory_data import fill, fill_metrics, settle  # noqa: E402

RUNS = 20  # that the first rollouts are shared among
REQUESTS = 120  # for a view: of 40 the p95 is the third largest, and one slow moment of a shared machine is enough to move it
GROWTH = 1.5  # p95 of a view over the reference's, over the same at the smaller size
POINTS = 1_000_000
DROP_SECONDS = 60.0


def main() -> int:
    options = parse_arguments()
    home = tempfile.mkdtemp(prefix="policy-lab-size-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)  # registered first, so run last: the services stop before
    os.chmod(home, 0o755)  # PostgreSQL runs as another user when this runs as root
    start_services(home)
    result = measure(options)
    if options.streams:
        result["streams"] = stream(options, home)
        result["ok"] = result["ok"] and result["streams"]["ok"]
    if options.retention:
        result["retention"] = drop_by_rule()
    report(result)
    if options.json:
        print(json.dumps(result))
    return 0 if result["ok"] else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", default="1000000,10000000", help="rollouts of the two sizes (default %(default)s)")
    parser.add_argument("--words", type=int, default=24, help="of a completion, in the mean (default %(default)s)")
    parser.add_argument("--points", type=int, default=POINTS, help="metric points of a run (default %(default)s)")
    parser.add_argument("--views", default="", help="only views with one of these in their name, separated by commas")
    parser.add_argument("--streams", action="store_true", help="then let 200 runs write at once")
    parser.add_argument("--retention", action="store_true", help="then drop rollouts by a rule")
    parser.add_argument("--seconds", type=int, default=60, help="how long they write (default %(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    try:
        options.small, options.large = (int(number) for number in options.rows.split(","))
    except ValueError:
        parser.error("--rows: two whole numbers with a comma between them")
    return options


@dataclass(frozen=True)
class AskedTwice:
    """``bytes`` of the database, and what the views took at first and then."""

    bytes: int
    first: dict[str, Asked]
    then: dict[str, Asked]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from lab.teams.accounts.models import Membership, Role, Team, User

    team = Team.objects.create(name="Bench", slug="bench")
    person = User.objects.create_user("bench@example.org", None)
    Membership.objects.create(team=team, user=person, role=Role.OWNER)
    charts = [make_run(team, number) for number in (100_001, 100_002)]
    fill_metrics(charts[0], 20, options.points // 20)
    fill_metrics(charts[1], 1, options.points)
    texts, runs = ShortTexts(options.seed, options.words), []
    seconds = {"ingest": 0.0, "copy": 0.0, "index": 0.0}
    with WebProcess(person) as web:
        for number in range(1, RUNS + 1):
            runs.append(make_run(team, number))
            seconds["ingest"] += fill(runs[-1], options.small // RUNS, texts, number)
        small = ask_at(web, options, runs, charts, seconds)
        start = time.perf_counter()
        originals = list(runs)
        while sum(run.rollouts for run in runs) < options.large:
            runs.append(make_run(team, len(runs) + 1))
            copy_run(originals[len(runs) % RUNS], runs[-1])
        seconds["copy"] = time.perf_counter() - start
        large = ask_at(web, options, runs, charts, seconds)
    return compare_sizes(small.then, large.then) | {
        "growth_at_first": compare_sizes(small.first, large.first)["growth"],
        "p95_ms_at_first": compare_sizes(small.first, large.first)["p95_ms"],
        "rollouts": [sum(run.rollouts for run in originals), sum(run.rollouts for run in runs)],
        "bytes": [small.bytes, large.bytes],
        "seconds": {name: round(spent) for name, spent in seconds.items()},
    }


def ask_at(web: WebProcess, options: argparse.Namespace, runs: list[Any], charts: list[Any], seconds: dict[str, float]) -> AskedTwice:
    """The views at the size that the lab has now, once all words are in: a first time, when much of it has to come from the disk, and again by other
    addresses.
    """
    from django.db import connection

    spent = settle()
    seconds["index"] += spent
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        size = cursor.fetchone()[0]
    say(f"{sum(run.rollouts for run in runs):,} rollouts, {size / 1e9:.1f} GB, words indexed in {spent:.0f} s")
    views = chosen(options.views, addresses(runs, charts, random.Random(options.seed)))
    return AskedTwice(size, ask_all(web, views, REQUESTS), ask_all(web, views, REQUESTS))


def compare_sizes(small: dict[str, Asked], large: dict[str, Asked]) -> dict[str, Any]:
    """Figures by view: ``ratio`` is its p95 over the reference's at the two sizes, ``growth`` the second over the first."""
    ratio = {view: [round(asked[view].p95 / asked[view].reference_p95, 2) for asked in (small, large)] for view in large}
    growth = {view: round(after / before, 2) for view, (before, after) in ratio.items()}
    return {
        "ratio": ratio,
        "growth": growth,
        "growth_bound": GROWTH,
        "ok": all(grown <= GROWTH for grown in growth.values()),
        "p95_ms": {view: [round(asked[view].p95, 1) for asked in (small, large)] for view in large},
        "p50_ms": {view: [round(statistics.median(asked[view].own), 1) for asked in (small, large)] for view in large},
        "reference_p95_ms": {view: [round(asked[view].reference_p95, 1) for asked in (small, large)] for view in large},
    }


def stream(options: argparse.Namespace, home: str) -> dict[str, Any]:
    """What ``bench/streams.py`` says. Its processes have no pool of connections, as workers have none."""
    command = [sys.executable, "-m", "bench.streams", "--seconds", str(options.seconds), "--folder", home]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "LAB_EMBEDDED": "1", "LAB_DB_POOL": "0"}, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def drop_by_rule() -> dict[str, Any]:
    """How long the preview takes, and how many rollouts a second go by the product's chore, asked as a worker asks for a minute."""
    from datetime import timedelta

    from django.db.models.functions import Now

    from lab.rollouts.trajectories.models import Rollout
    from lab.teams.accounts.models import Team
    from lab.training.runs.models import Run, Status
    from lab.watching.retention import chores
    from lab.watching.retention.models import RolloutRule
    from lab.watching.retention.plan import plan_retention

    team = Team.objects.get(slug="bench")
    Run.objects.filter(team=team).update(status=Status.FINISHED, finished_at=Now() - timedelta(days=9), created_at=Now() - timedelta(days=9))
    rule = RolloutRule.objects.create(team=team, rollouts_days=1, keep_every=10)
    chores.NIGHT = timedelta()  # due whatever the hour
    start, stored = time.perf_counter(), Rollout.objects.filter(run__team=team).count()
    counted = time.perf_counter()
    plan = plan_retention(rule)
    previewed = time.perf_counter()
    while time.perf_counter() - previewed < DROP_SECONDS and not rule.looked_at:
        chores.drop_due_rollouts()
        rule.refresh_from_db()
    spent = time.perf_counter() - previewed
    gone = stored - Rollout.objects.filter(run__team=team).count()
    return {
        "of": stored,
        "count_s": round(counted - start, 2),
        "preview_s": round(previewed - counted, 2),
        "previewed": plan.rollouts,
        "dropped": gone,
        "dropped_a_second": round(gone / spent),
        "whole": not rule.looked_at or gone == plan.rollouts,
    }


def report(result: dict[str, Any]) -> None:
    small, large = result["rollouts"]
    print(f"{'view':32} {'p95, ms':>16} {'of the reference':>18} {'growth':>7} {'at first':>9}      {small:,} and {large:,} rollouts")
    for view, (before, after) in result["p95_ms"].items():
        (first, second), growth = result["ratio"][view], result["growth"][view]
        at_first = result["growth_at_first"][view]
        print(f"{view:32} {before:7.1f} {after:8.1f} {first:9.2f} {second:8.2f} {growth:7.2f} {at_first:9.2f}{'  BROKEN' if growth > GROWTH else ''}")
    if streams := result.get("streams"):
        print(f"streams: {streams}")
    if dropped := result.get("retention"):
        print(f"retention: {dropped}")


if __name__ == "__main__":
    sys.exit(main())
