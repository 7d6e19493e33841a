"""How fast the browser and its neighbours answer when the lab holds a million rollouts.

Twenty runs of 50,000 rollouts go through the spool and the product's own ingest, and their words through its own indexer, which runs beside it as
in a worker. Completions are Zipf words, lognormal in length (mean about 1,000 characters); 2,000 prompts are shared by all runs; steps of 64
rollouts in groups of 8, so that rewards and lengths drift as in training; every tenth rollout has its token arrays. A further run has 1,000,000
metric points.

The product's web process is then asked over HTTP by one logged-in person, every request another one, and the time is that of the whole answer.
After each request the reference is asked (``bench/reference.py``: one indexed query, one row), and what counts is how many times the reference's
p95 a view's p95 is: machines differ. The same is asked when the first tenth is in: no view may take more than 1.5 times what it took then.

With ``--peers`` the same questions are asked of MLflow, Trackio and Aim, which hold the same rollouts, where they can answer at all, and of our pages
(``bench/trajectory_peers.py``); the million is left out then.

    .venv/bin/python bench/trajectories.py [--rows 1000000] [--json]
    .venv/bin/python bench/trajectories.py --peers [--peer-rows 20480] [--json]
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
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.trajectory_data import GROUP, MARKERS, STEP, Texts, fill, fill_metrics, settle  # noqa: E402

RUNS = 20
REQUESTS, WARM_UP = 40, 5
GROWTH = 1.5  # p95 of a view over its own at a tenth of the rows
REFERENCE = "/bench/row/"
BOUNDS = {  # p95 of the view over p95 of the reference
    "browser, two filters": 4,
    "word in a run": 6,
    "word in the team, newest first": 6,
    "filters that match two": 4,
    "group": 3,
    "prompt": 3,
    "histograms": 4,
    "overview, 20 metrics x 50,000": 5,
    "overview, 1 metric x 1,000,000": 5,
}


def main() -> int:
    options = parse_arguments()
    home = tempfile.mkdtemp(prefix="policy-lab-bench-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)  # registered first, so run last: the services stop before
    os.chmod(home, 0o755)  # PostgreSQL runs as another user when this runs as root
    start_services(home)
    if options.peers:
        from bench.trajectory_peers import measure_peers, report_peers

        result = measure_peers(options)
        report_peers(result)
    else:
        result = measure(options)
        report(result)
    if options.json:
        print(json.dumps(result))
    return 0 if result["ok"] else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rollouts (default %(default)s)")
    parser.add_argument("--points", type=int, default=1_000_000, help="metric points of a run (default %(default)s)")
    parser.add_argument("--views", default="", help="only views with one of these in their name, separated by commas")
    parser.add_argument("--peers", action="store_true", help="ask other trackers that hold the same rollouts")
    parser.add_argument("--peer-rows", type=int, default=20_480, help="rollouts with them (default %(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def start_services(home: str) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "LAB_RUNS", "LAB_EMBEDDED"):
        os.environ.pop(name, None)
    os.environ |= {"LAB_HOME": home, "DJANGO_SETTINGS_MODULE": "lab.settings"}
    from lab import embedded

    embedded.provide_services()
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from lab.teams.accounts.models import Membership, Role, Team, User

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
    return summary(times[2], times[RUNS]) | {
        "rollouts": sum(run.rollouts for run in runs),
        "ingest_s": round(seconds["ingest"]),
        "index_s": round(seconds["index"]),
    }


def summary(small: dict[str, Asked], large: dict[str, Asked]) -> dict[str, Any]:
    """Figures by view, ``small`` at a tenth of the rows."""
    ratio = {view: round(asked.p95 / asked.reference_p95, 2) for view, asked in large.items()}
    growth = {view: round(asked.p95 / small[view].p95, 2) for view, asked in large.items()}
    return {
        "ratio": ratio,
        "ratio_bound": {view: BOUNDS[view] for view in large},
        "growth": growth,
        "growth_bound": GROWTH,
        "ok": all(ratio[view] <= BOUNDS[view] and growth[view] <= GROWTH for view in large),
        "p95_ms": {view: round(asked.p95, 1) for view, asked in large.items()},
        "first_ms_at_a_tenth": {view: round(asked.first, 1) for view, asked in small.items()},
        "p50_ms": {view: round(statistics.median(asked.own), 1) for view, asked in large.items()},
        "reference_p95_ms": {view: round(asked.reference_p95, 1) for view, asked in large.items()},
        "p95_ms_at_a_tenth": {view: round(asked.p95, 1) for view, asked in small.items()},
    }


def report(result: dict[str, Any]) -> None:
    print(f"{'view':32} {'p50':>7} {'p95':>7} {'reference':>10} {'ratio':>6} {'bound':>6} {'at a tenth':>11} {'growth':>7}")
    for view, p95 in result["p95_ms"].items():
        ratio, growth = result["ratio"][view], result["growth"][view]
        bad = ratio > BOUNDS[view] or growth > GROWTH
        print(
            f"{view:32} {result['p50_ms'][view]:7.1f} {p95:7.1f} {result['reference_p95_ms'][view]:10.1f} {ratio:6.2f} {BOUNDS[view]:6} "
            f"{result['p95_ms_at_a_tenth'][view]:11.1f} {growth:7.2f}{'  BROKEN' if bad else ''}"
        )


def percentile(spent: list[float]) -> float:
    return statistics.quantiles(spent, n=20, method="inclusive")[-1]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def make_run(team: Any, number: int) -> Any:
    from lab.training.runs.models import Run

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
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "bench.reference:application",
            "--port",
            str(self.socket),
            "--log-level",
            "warning",
            "--no-access-log",
        ]
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


@dataclass
class Asked:
    """Milliseconds of a view's requests and of the reference's, which were asked in turns."""

    own: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    first: float = 0.0  # of the view's very first request, when nothing of it is kept anywhere

    @property
    def p95(self) -> float:
        return percentile(self.own)

    @property
    def reference_p95(self) -> float:
        return percentile(self.reference)


def ask_all(web: WebProcess, views: dict[str, Callable[[], str]], requests: int = REQUESTS) -> dict[str, Asked]:
    """So many different requests for each view, each followed by one for the reference."""
    found = {}
    for view, address in views.items():
        paths = [address() for _ in range(WARM_UP + requests)]
        web.connect()
        asked = [(web.get(path), web.get(REFERENCE)) for path in paths]
        spent = asked[WARM_UP:]
        found[view] = Asked([own for own, _ in spent], [reference for _, reference in spent], first=asked[0][0])
    return found


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
    from lab.rollouts.trajectories.models import Rollout

    return {run.number: list(Rollout.objects.filter(run=run).order_by("-reward").values_list("reward", flat=True)[:2])[1] for run in runs}


def some_prompts(rng: random.Random) -> list[int]:
    from lab.rollouts.trajectories.models import Prompt

    known = list(Prompt.across_teams.values_list("pk", flat=True))
    return rng.sample(known, min(200, len(known)))


if __name__ == "__main__":
    sys.exit(main())
