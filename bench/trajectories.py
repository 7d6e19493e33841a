"""How fast the browser and its neighbours answer when the lab holds a million rollouts.

Twenty runs of 50,000 rollouts go through the spool and the product's own ingest, and their words through its own indexer, which runs beside it as
in a worker. Completions are Zipf words, lognormal in length (mean about 1,000 characters); 2,000 prompts are shared by all runs; steps of 64
rollouts in groups of 8, so that rewards and lengths drift as in training; every tenth rollout has its token arrays. A further run has 1,000,000
metric points.

The product's web process is then asked over HTTP by one logged-in person, every request another one, and the time is that of the whole answer.
The same is asked when the first tenth is in. Each view has a bound, and may not take more than 1.5 times what it took at a tenth.

    .venv/bin/python bench/trajectories.py [--rows 1000000] [--json]
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
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.trajectory_data import GROUP, MARKERS, STEP, Texts, fill, fill_metrics, settle  # noqa: E402

RUNS = 20
REQUESTS, WARM_UP = 40, 5
RATIO = 1.5
BOUNDS = {  # ms
    "browser, two filters": 60,
    "word in a run": 120,
    "word in the team, newest first": 200,
    "filters that match two": 60,
    "group": 40,
    "prompt": 40,
    "histograms": 60,
    "overview, 20 metrics x 50,000": 80,
    "overview, 1 metric x 1,000,000": 80,
}


def main() -> int:
    options = parse_arguments()
    home = tempfile.mkdtemp(prefix="policy-lab-bench-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)  # registered first, so run last: the services stop before
    os.chmod(home, 0o755)  # PostgreSQL runs as another user when this runs as root
    start_services(home)
    result = measure(options)
    broken = report(result)
    if options.json:
        print(json.dumps(result))
    return 1 if broken else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rollouts (default %(default)s)")
    parser.add_argument("--points", type=int, default=1_000_000, help="metric points of a run (default %(default)s)")
    parser.add_argument("--views", default="", help="only views with one of these in their name, separated by commas")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def start_services(home: str) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "LAB_RUNS", "LAB_EMBEDDED"):
        os.environ.pop(name, None)
    os.environ |= {"LAB_HOME": home, "DJANGO_SETTINGS_MODULE": "lab.settings"}
    from lab import embedded

    embedded.provide()
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from lab.accounts.models import Membership, Role, Team, User

    team = Team.objects.create(name="Bench", slug="bench")
    person = User.objects.create_user("bench@example.org", None)
    Membership.objects.create(team=team, user=person, role=Role.OWNER)
    charts = [make_run(team, number) for number in (RUNS + 1, RUNS + 2)]
    fill_metrics(charts[0], 20, options.points // 20)
    fill_metrics(charts[1], 1, options.points)
    say(f"{options.points:,} metric points in each of two runs")
    texts = Texts(options.seed)
    runs, times, seconds = [], {}, {"ingest": 0.0, "index": 0.0}
    with WebProcess(person) as web:
        for number in range(1, RUNS + 1):
            run = make_run(team, number)
            runs.append(run)
            seconds["ingest"] += fill(run, options.rows // RUNS, texts, number)
            if number in (2, RUNS):
                seconds["index"] += settle()
                stored = sum(one.rollouts for one in runs)
                say(f"{stored:,} rollouts are in ({seconds['ingest']:.0f} s of ingest) and searchable ({seconds['index']:.0f} s more)")
                times[number] = ask_all(web, chosen(options.views, addresses(runs, charts, random.Random(options.seed))))
    small, large = times[2], times[RUNS]
    return {
        "rollouts": sum(run.rollouts for run in runs),
        "p95_ms": {view: round(percentile(spent), 1) for view, spent in large.items()},
        "bound_ms": {view: BOUNDS[view] for view in large},
        "p50_ms": {view: round(statistics.median(spent), 1) for view, spent in large.items()},
        "p95_ms_at_a_tenth": {view: round(percentile(spent), 1) for view, spent in small.items()},
        "ratio": {view: round(percentile(large[view]) / percentile(small[view]), 2) for view in large},
        "ingest_s": round(seconds["ingest"]),
        "index_s": round(seconds["index"]),
    }


def report(result: dict[str, Any]) -> list[str]:
    """Prints the table; returns the views that broke a bound."""
    broken = []
    print(f"{'view':32} {'p50':>7} {'p95':>7} {'bound':>6} {'p95 at a tenth':>15} {'ratio':>6}")
    for view, p95 in result["p95_ms"].items():
        bound, ratio = BOUNDS[view], result["ratio"][view]
        bad = p95 > bound or ratio > RATIO
        broken += [view] * bad
        tenth = result["p95_ms_at_a_tenth"][view]
        print(f"{view:32} {result['p50_ms'][view]:7.1f} {p95:7.1f} {bound:6} {tenth:15.1f} {ratio:6.2f}{'  BROKEN' if bad else ''}")
    return broken


def percentile(spent: list[float]) -> float:
    return statistics.quantiles(spent, n=20, method="inclusive")[-1]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def make_run(team: Any, number: int) -> Any:
    from lab.runs.models import Run

    spec = {"recipe": "grpo"}
    run = Run.objects.create(team=team, number=number, name=f"bench {number}", spec=spec, recipe="grpo", trainer="grpo", task="mini_gsm", policy="p")
    run.folder.mkdir(parents=True)
    return run


class WebProcess:
    """The product's web process and one person's connection to it."""

    def __init__(self, person: Any) -> None:
        self.person = person

    def __enter__(self) -> WebProcess:
        from django.conf import settings
        from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
        from django.contrib.sessions.backends.db import SessionStore

        session = SessionStore()
        session[SESSION_KEY] = str(self.person.pk)
        session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
        session[HASH_SESSION_KEY] = self.person.get_session_auth_hash()
        session.create()
        self.cookie = f"{settings.SESSION_COOKIE_NAME}={session.session_key}"
        self.socket = free_port()
        command = [sys.executable, "-m", "uvicorn", "lab.asgi:application", "--port", str(self.socket), "--log-level", "warning", "--no-access-log"]
        self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "LAB_EMBEDDED": "1"})
        for _ in range(300):
            try:
                self.connect()
                self.get("/runs/")
                return self
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the web process did not start")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def connect(self) -> None:
        self.connection = HTTPConnection("127.0.0.1", self.socket, timeout=60)

    def get(self, path: str) -> float:
        """The milliseconds of one answer, on the connection that stands."""
        start = time.perf_counter()
        self.connection.request("GET", path, headers={"Cookie": self.cookie})
        answer = self.connection.getresponse()
        answer.read()
        spent = 1000 * (time.perf_counter() - start)
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}")
        return spent


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def chosen(names: str, views: dict[str, Callable[[], str]]) -> dict[str, Callable[[], str]]:
    return {view: address for view, address in views.items() if any(name in view for name in names.split(","))}


def ask_all(web: WebProcess, views: dict[str, Callable[[], str]]) -> dict[str, list[float]]:
    """The milliseconds of REQUESTS different requests for each view."""
    times = {}
    for view, address in views.items():
        paths = [address() for _ in range(WARM_UP + REQUESTS)]
        web.connect()
        times[view] = [web.get(path) for path in paths][WARM_UP:]
    return times


def addresses(runs: list[Any], charts: list[Any], rng: random.Random) -> dict[str, Callable[[], str]]:
    from django.urls import reverse

    browser, histograms = reverse("rollouts"), reverse("rollouts-histograms")
    rare = two_best(runs)
    words = [*MARKERS, *(f"{word} answer" for word in MARKERS)]
    prompts = some_prompts(rng)

    def run() -> int:
        return rng.choice(runs).number

    def filters() -> str:
        sort = rng.choice(("", "&sort=-reward", "&sort=length", "&sort=-mean_entropy"))
        return f"run={run()}&f=reward:ge:{rng.uniform(0.4, 1.5):.3f}&f=length:le:{rng.randint(60, 400)}{sort}"

    def two() -> str:
        number = run()
        return f"run={number}&f=reward:ge:{rare[number]!r}&f=phase:is:train{rng.choice(('', '&sort=-length'))}"

    def group() -> str:
        one = rng.choice(runs)
        return reverse("group", args=[one.pk, "train", rng.randint(1, max(1, one.rollouts // STEP)), rng.randrange(STEP // GROUP)])

    return {
        "browser, two filters": lambda: f"{browser}?{filters()}",
        "word in a run": lambda: f"{browser}?run={run()}&q={rng.choice(words).replace(' ', '+')}{rng.choice(('', '&sort=-reward'))}",
        "word in the team, newest first": lambda: f"{browser}?q={rng.choice(words).replace(' ', '+')}",
        "filters that match two": lambda: f"{browser}?{two()}",
        "group": group,
        "prompt": lambda: reverse("prompt", args=[rng.choice(prompts)]),
        "histograms": lambda: f"{histograms}?run={run()}&f=advantage:ge:{rng.uniform(-1, 0):.2f}",
        "overview, 20 metrics x 50,000": lambda: reverse("run-metrics", args=[charts[0].pk]),
        "overview, 1 metric x 1,000,000": lambda: reverse("run-metrics", args=[charts[1].pk]),
    }


def two_best(runs: list[Any]) -> dict[int, float]:
    """Of each run the second largest reward: two rollouts have as much or more."""
    from lab.trajectories.models import Rollout

    return {run.number: list(Rollout.objects.filter(run=run).order_by("-reward").values_list("reward", flat=True)[:2])[1] for run in runs}


def some_prompts(rng: random.Random) -> list[int]:
    from lab.trajectories.models import Prompt

    known = list(Prompt.objects.values_list("pk", flat=True))
    return rng.sample(known, min(200, len(known)))


if __name__ == "__main__":
    sys.exit(main())
