"""How long a number takes from the trainer to the screen while 200 people watch, and whether any of them misses one or gets it twice.

A trainer without a model writes 20 rollouts and 200 points a second into a real spool (``bench/live_trainer.py``). The product's own supervisor
starts it, stores what it writes and tells the channel layer; the product's web process serves the pages. Watching:

- websocket clients that keep the protocol of a run page (``bench/live_viewers.py``): load the points, say hello with their cursor, append deltas,
  fill gaps, load anew after a reset. Their delay ends when the message has been read. One in twenty comes and goes all the time, half of them cut off
  without a word, and a third of their returns are a page opened anew.
- three real pages in headless Chromium: two overviews, whose delay ends when the frame with the point in the reward chart has been painted, and the
  rollouts of the newest step, which follow at most once a second by design (told, without a bound).

The delay begins when the trainer hands an event to the spool; of a viewer that was away then, when it said hello again (told apart). At the end
every viewer's points and its count of rollouts are compared with the database: a gap is what a viewer lacks, a double what it got twice.

    .venv/bin/python bench/live.py [--viewers 200] [--seconds 60] [--pages 3] [--json]
    .venv/bin/python bench/live.py --small --services environment      (in a lab that stands: its database, its Redis; seconds)
"""

from __future__ import annotations

import argparse
import asyncio
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
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.live_viewers import Address, BrowserPage, Viewer, open_pages  # noqa: E402
from bench.trajectories import free_port, say, start_services  # noqa: E402

BOUND_MS = 300.0  # p95, of what is received and of what is painted
STEPS, ROLLOUTS, POINTS = 5, 4, 40  # steps a second; rollouts and points a step
SHARE = 0.05  # of the viewers come and go
PEOPLE = 20
CATCH_UP_SECONDS = 20.0  # for the last viewer to have the last point
START_SECONDS = 120.0
TRAINER = [sys.executable, str(ROOT / "bench" / "live_trainer.py")]
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def main() -> int:
    options = parse_arguments()
    if options.supervise:
        return supervise(options.supervise)
    if options.services == "own":
        home = tempfile.mkdtemp(prefix="policy-lab-bench-")
        atexit.register(shutil.rmtree, home, ignore_errors=True)  # registered first, so run last: the services stop before
        os.chmod(home, 0o755)  # PostgreSQL runs as another user when this runs as root
        start_services(home)
    else:
        import django

        django.setup()
    result = measure(options)
    report(result)
    if options.json:
        print(json.dumps(result))
    return 0 if result["ok"] else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--viewers", type=int, default=200, help="websocket clients (default %(default)s)")
    parser.add_argument("--pages", type=int, default=3, help="real pages besides (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--small", action="store_true", help="12 viewers, no real page, 4 seconds: whether all arrives, not how soon")
    parser.add_argument("--services", choices=["own", "environment"], default="own", help="start a database and Redis, or use DATABASE_URL's")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--supervise", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.small:
        options.viewers, options.pages, options.seconds = 12, 0, 4.0
    return options


def supervise(run: str) -> int:
    import django

    from lab.lib.garbage_collection import collect_rarely

    collect_rarely()  # as manage.py does
    django.setup()
    from lab.supervision.supervisor.supervise import run_supervisor

    return 0 if run_supervisor(run, "bench", TRAINER) else 1


def measure(options: argparse.Namespace) -> dict[str, Any]:
    run, cookies = prepare(options)
    with WebProcess() as web:
        address = Address(web.port, str(run.pk))
        supervisor = subprocess.Popen([sys.executable, __file__, "--supervise", str(run.pk)], cwd=ROOT)
        try:
            viewers, pages = asyncio.run(watch_run(options, run, Watched(address, cookies, web.process, supervisor)))
        finally:
            supervisor.terminate()
            supervisor.wait()
    return summarize(options, viewers, pages)


@dataclass(frozen=True)
class Watched:
    address: Address
    cookies: list[str]  # of the people who watch
    web: subprocess.Popen[bytes]
    supervisor: subprocess.Popen[bytes]


def prepare(options: argparse.Namespace) -> tuple[Any, list[str]]:
    """The run and the cookies of the people who watch it."""
    from bench.labels import headers_of
    from lab.teams.accounts.models import Membership, Role, Team, User
    from lab.training.runs.models import Run

    team = Team.objects.create(name="Bench", slug="bench")
    people = [User.objects.create_user(f"viewer{number}@example.org", None) for number in range(min(PEOPLE, options.viewers))]
    Membership.objects.bulk_create(Membership(team=team, user=user, role=Role.VIEWER) for user in people)
    spec = {"recipe": "grpo", "pace": {"seconds": options.seconds, "steps": STEPS, "rollouts": ROLLOUTS, "points": POINTS}}
    fields = {"recipe": "grpo", "trainer": "grpo", "task": "mini_gsm", "policy": "p"}
    run = Run.objects.create(team=team, number=1, name="live", spec=spec, **fields)
    return run, [headers_of(user)["Cookie"] for user in people]


class WebProcess:
    """The product's web process, started as ``manage.py up`` starts it."""

    def __enter__(self) -> WebProcess:
        from django.conf import settings

        from lab.training.runs.local_lab import SERVER_OPTIONS

        self.port = free_port()
        command = [sys.executable, "-m", "uvicorn", "lab.asgi:application", "--port", str(self.port), "--log-level", "warning", *SERVER_OPTIONS]
        with (Path(settings.HOME) / "live-web.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the web process did not start")
            time.sleep(0.1)
        return self

    def answers(self) -> bool:
        try:
            return bool(Address(self.port, "").get("/health/", ""))
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


Found = tuple[list[Viewer], dict[str, Any]]


async def watch_run(options: argparse.Namespace, run: Any, watched: Watched) -> Found:
    address, cookies, supervisor = watched.address, watched.cookies, watched.supervisor
    rng = random.Random(options.seed)
    leaving = max(1, round(SHARE * options.viewers))
    viewers = [Viewer(address, cookies[n % len(cookies)], n < leaving, random.Random(rng.random())) for n in range(options.viewers)]
    over = asyncio.Event()
    await wait_for(lambda: bool(read_progress(run)[0]), supervisor)
    async with AsyncExitStack() as stack:
        pages = await start_browser(stack, address, cookies[0], options.pages)
        watching = []
        for viewer in viewers:  # one after the other, as people come
            watching.append(asyncio.create_task(viewer.watch(over)))
            await asyncio.sleep(0.02)
        await wait_for(lambda: all(viewer.connects for viewer in viewers), supervisor)
        say(f"{len(viewers)} viewers and {len(pages)} pages are there")
        used = psutil.Process(watched.web.pid).cpu_times()
        (run.folder / "go").touch()
        await wait_for(lambda: supervisor.poll() is not None, None, options.seconds + START_SECONDS)
        spent = psutil.Process(watched.web.pid).cpu_times()
        ingested = (await asyncio.to_thread(read_progress, run))[1]
        for viewer in viewers:
            viewer.comes_and_goes = False  # whoever comes back now stays
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while any(viewer.cursor < ingested for viewer in viewers) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        found = await read_pages(run, pages)
        found["web_share"] = round((spent.user + spent.system - used.user - used.system) / options.seconds, 3)
        over.set()
        await asyncio.gather(*watching)
    wanted, rollouts, _ = await asyncio.to_thread(read_stored, run)
    for viewer in viewers:
        viewer.missing = viewer.find_missing(wanted, rollouts)
    return viewers, found


async def wait_for(condition: Any, process: subprocess.Popen[bytes] | None, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise SystemExit("the run did not come to where it was waited for; what was said is above")
        await asyncio.sleep(0.1)


def read_progress(run: Any) -> tuple[int, int]:
    """(steps, bytes of the spool) that are stored."""
    from lab.training.runs.models import Run

    row: tuple[int, int] = Run.across_teams.values_list("step", "ingested").get(pk=run.pk)
    return row


def read_stored(run: Any) -> tuple[dict[str, dict[int, float]], int, dict[int, float]]:
    """Every point of the run by metric and step, its rollouts, and when each step was written."""
    from lab.training.runs import metrics
    from lab.training.runs.models import Run

    series = {name: dict(zip(one.steps.tolist(), one.values.tolist(), strict=True)) for name, one in metrics.read_metric_series(run.pk).items()}
    points = {name: one for name, one in series.items() if not name.startswith("@")}
    return points, Run.across_teams.values_list("rollouts", flat=True).get(pk=run.pk), series["@time"]


async def start_browser(stack: AsyncExitStack, address: Address, cookie: str, count: int) -> list[BrowserPage]:
    if not count:
        return []
    from playwright.async_api import async_playwright

    playwright = await stack.enter_async_context(async_playwright())
    path = next((found for found in map(shutil.which, CHROMIUM) if found), None)
    browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
    stack.push_async_callback(browser.close)
    kinds = ["chart" if number != 2 else "rollouts" for number in range(count)]
    return await open_pages(browser, address, cookie, kinds)


async def read_pages(run: Any, pages: list[BrowserPage]) -> dict[str, Any]:
    """What the real pages saw: delays by kind, gaps and doubles of the overviews, errors of scripts."""
    wanted, _, written = await asyncio.to_thread(read_stored, run)
    found: dict[str, Any] = {"chart": [], "rollouts": [], "gaps": 0, "doubles": 0, "errors": []}
    for page in pages:
        found[page.kind] += await page.read_delays(written)
        found["errors"] += page.errors
        if page.kind == "chart":
            gaps, doubles = await page.find_missing(wanted)
            found["gaps"] += gaps
            found["doubles"] += doubles
    return found


def summarize(options: argparse.Namespace, viewers: list[Viewer], pages: dict[str, Any]) -> dict[str, Any]:
    received = describe_delays([delay for viewer in viewers for delay in viewer.delays])
    painted = describe_delays(pages["chart"])
    gaps = sum(viewer.missing[0] for viewer in viewers) + pages["gaps"]
    doubles = sum(viewer.missing[1] + viewer.repeated for viewer in viewers) + pages["doubles"]
    complete = not gaps and not doubles and not pages["errors"]
    soon = all(figures.get("p95", 0) <= BOUND_MS for figures in (received, painted))
    return {
        "viewers": options.viewers,
        "pages": options.pages,
        "seconds": options.seconds,
        "rollouts_per_s": STEPS * ROLLOUTS,
        "points_per_s": STEPS * POINTS,
        "received_ms": received,
        "painted_ms": painted,
        "rollouts_shown_ms": describe_delays(pages["rollouts"]),
        "made_up_ms": describe_delays([delay for viewer in viewers for delay in viewer.made_up]),
        "web_processor_share": pages["web_share"],  # of one core
        "reconnects": sum(viewer.connects - 1 for viewer in viewers),
        "resets": sum(viewer.resets for viewer in viewers),
        "gaps": gaps,
        "doubles": doubles,
        "script_errors": pages["errors"],
        "p95_bound_ms": BOUND_MS,
        "complete": complete,
        "ok": complete and soon,
    }


def describe_delays(seconds: list[float]) -> dict[str, float]:
    """Milliseconds; empty where nothing was seen."""
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {name: round(1000 * cuts[at], 1) for name, at in (("p50", 49), ("p95", 94), ("p99", 98))} | {"count": len(seconds)}


def report(result: dict[str, Any]) -> None:
    print(
        f"{result['viewers']} viewers and {result['pages']} pages, {result['rollouts_per_s']} rollouts and {result['points_per_s']} points a second"
    )
    for name in ("received_ms", "painted_ms", "rollouts_shown_ms", "made_up_ms"):
        print(f"{name:18} {result[name]}")
    print(f"the web process kept {result['web_processor_share']:.0%} of a core busy")
    print(f"{result['reconnects']} reconnections, {result['gaps']} gaps, {result['doubles']} doubles; p95 at most {result['p95_bound_ms']:g} ms")
    print("ok" if result["ok"] else "NOT OK")


if __name__ == "__main__":
    sys.exit(main())
