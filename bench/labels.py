"""How fast a label is recorded while 50 people label one queue of 100,000 pairs.

The pairs are those within groups of rollouts that came through the spool and the product's own ingest. The product's web process answers 50
labellers at once over HTTP, each with a session and a connection of their own: every one asks for the next items, as the page does ahead of time, and
submits an answer. One answer in fifty is sent twice under its key, as after a lost connection.

The figure that counts is the server's time to record a label, from when the request reaches the application until its answer has been handed back
(``bench/timed.py``), at p95, as a multiple of that of the reference, which everybody asks after each label (``bench/reference.py``: one indexed
query, one row inserted, one rendered). Labellers pause about four seconds between labels, faster than anybody reads two answers, so that 50 of them
record 12 a second. Then the same with three labels an item, with half the pause, and without one: then two cores are busy all the time, every figure
is the length of the queue in front of them, and what counts is how many labels the machine records.

Afterwards the database is counted: a label that was confirmed and is not there is lost; one that is there more than once, or beyond the overlap, or
that nobody was told of, is doubled.

    .venv/bin/python bench/labels.py [--pairs 100000] [--labels 1500] [--json]
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
import threading
import time
import uuid
from collections import Counter, defaultdict
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.trajectories import REFERENCE, free_port, make_run, percentile, say, start_services  # noqa: E402
from bench.trajectory_data import GROUP, STEP, Texts, fill  # noqa: E402

BOUND = 3.0  # p95 of recording a label over p95 of the reference
TWICE = 0.02  # of the answers are sent again
PAIRS_OF_GROUP = GROUP * (GROUP - 1) // 2


def main() -> int:
    options = parse_arguments()
    home = tempfile.mkdtemp(prefix="policy-lab-bench-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)  # registered first, so run last: the services stop before
    os.chmod(home, 0o755)  # PostgreSQL runs as another user when this runs as root
    start_services(home)
    result = measure(options, Path(home))
    report(result)
    if options.json:
        print(json.dumps(result))
    return 0 if result["ok"] else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=100_000, help="items of the queue (default %(default)s)")
    parser.add_argument("--labels", type=int, default=1_500, help="labels to record in each part (default %(default)s)")
    parser.add_argument("--labellers", type=int, default=50)
    parser.add_argument("--think", type=float, default=4.0, help="seconds between a person's labels, on average (default %(default)s)")
    parser.add_argument("--overlap", type=int, default=3, help="labels an item in the second part (default %(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    from lab.teams.accounts.models import Membership, Role, Team, User

    team = Team.objects.create(name="Bench", slug="bench")
    people = [User.objects.create_user(f"person{number}@example.org", None) for number in range(options.labellers)]
    Membership.objects.bulk_create(Membership(team=team, user=user, role=Role.ANNOTATOR) for user in people)
    groups = make_groups(team, options.pairs, options.seed)
    say(f"{len(groups) * GROUP:,} rollouts in {len(groups):,} groups are stored")
    once, many = (make_pairs(team, groups, options.pairs, overlap) for overlap in (1, options.overlap))
    vacuum()
    say(f"two queues of {options.pairs:,} pairs are made")
    with WebProcess(home / "times") as web:
        crowd = Crowd(web, people, options.seed)
        crowd.work(once, len(people) * 2, 0.0)  # every connection, thread and plan is there
        paced, overlapping = (part(web, crowd, queue, options.labels, options.think) for queue in (once, many))
        hurried = part(web, crowd, once, options.labels, options.think / 2)
        closed = part(web, crowd, once, options.labels, 0.0)
    counts = [count(queue, crowd.confirmed[queue.pk]) for queue in (once, many)]
    ratio = {"record a label": round(paced["submit"]["p95"] / paced["row"]["p95"], 2)}
    lost, doubled = (sum(found) for found in zip(*counts, strict=True))
    return {
        "ratio": ratio,
        "ratio_bound": dict.fromkeys(ratio, BOUND),
        "ok": all(found <= BOUND for found in ratio.values()) and not lost and not doubled,
        "p95_ms": paced["submit"]["p95"],
        "reference_p95_ms": paced["row"]["p95"],
        "labels": sum(len(found) for found in crowd.confirmed.values()),
        "labellers": options.labellers,
        "pairs": options.pairs,
        "lost": lost,
        "doubled": doubled,
        "next_p95_ms": paced["next"]["p95"],
        "labels_per_second": paced["rate"],
        "client_p95_ms": paced["client_p95"],
        "p50_ms": paced["submit"]["p50"],
        "p99_ms": paced["submit"]["p99"],
        f"overlap_{options.overlap}": {"p95_ms": overlapping["submit"]["p95"], "next_p95_ms": overlapping["next"]["p95"]},
        "half_the_pause": {"labels_per_second": hurried["rate"], "p95_ms": hurried["submit"]["p95"], "next_p95_ms": hurried["next"]["p95"]},
        "without_pause": {"labels_per_second": closed["rate"], "p95_ms": closed["submit"]["p95"], "next_p95_ms": closed["next"]["p95"]},
    }


def report(result: dict[str, Any]) -> None:
    ratio = result["ratio"]["record a label"]
    bad = "  BROKEN" if ratio > BOUND else ""
    print(f"{result['labellers']} labellers, {result['pairs']:,} pairs, {result['labels_per_second']} labels a second")
    print(f"record a label   p50 {result['p50_ms']} ms, p95 {result['p95_ms']} ms, p99 {result['p99_ms']} ms")
    print(f"                 {ratio} times the reference's p95 of {result['reference_p95_ms']} ms, bound {BOUND:g}{bad}")
    print(f"next items       p95 {result['next_p95_ms']} ms")
    half = result["half_the_pause"]
    print(f"half the pause   {half['labels_per_second']} labels a second, p95 {half['p95_ms']} ms")
    print(f"without a pause  {result['without_pause']['labels_per_second']} labels a second")
    print(f"of {result['labels']:,} labels lost {result['lost']}, doubled {result['doubled']}")


def make_groups(team: Any, pairs: int, seed: int) -> list[tuple[int, list[int]]]:
    """(prompt, rollouts) of each group, enough for ``pairs`` pairs."""
    from lab.rollouts.trajectories.models import Rollout

    wanted = -(-pairs // PAIRS_OF_GROUP) * GROUP
    run = make_run(team, 1)
    fill(run, -(-wanted // STEP) * STEP, Texts(seed), seed)
    found: dict[tuple[int, int], tuple[int, list[int]]] = {}
    for pk, step, group, prompt in Rollout.objects.filter(run=run).order_by("pk").values_list("pk", "step", "group", "prompt"):
        found.setdefault((step, group), (prompt, []))[1].append(pk)
    return list(found.values())


def make_pairs(team: Any, groups: list[tuple[int, list[int]]], pairs: int, overlap: int) -> Any:
    from lab.labelling.labels.models import Kind
    from lab.labelling.labels.new_queues import NewItem, make_queue

    items = [NewItem(prompt, pair) for prompt, members in groups for pair in combinations(members, 2)]
    return make_queue(team, None, name=f"overlap {overlap}", kind=Kind.PAIR, items=items[:pairs], overlap=overlap)


def vacuum() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        for table in ("labels_item", "trajectories_rollout", "trajectories_prompt"):
            cursor.execute(f"VACUUM (ANALYZE) {table}")
        cursor.execute("CHECKPOINT")  # what was just loaded is not written out while people label


class WebProcess:
    """The product's web process, which writes down how long its answers take."""

    def __init__(self, times: Path) -> None:
        self.times, self.port, self.read = times, free_port(), 0

    def __enter__(self) -> WebProcess:
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "bench.reference:application",
            "--port",
            str(self.port),
            "--log-level",
            "warning",
            "--no-access-log",
        ]
        self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "LAB_EMBEDDED": "1", "TIMES": str(self.times)})
        for _ in range(300):
            try:
                connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
                connection.request("GET", "/health/")
                connection.getresponse().read()
                return self
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the web process did not start")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def taken(self) -> dict[str, list[float]]:
        """Milliseconds by the last word of the path, of the answers since this was last asked."""
        lines = self.times.read_text().splitlines()[self.read :]
        self.read += len(lines)
        found = defaultdict(list)
        for path, spent in (line.split() for line in lines):
            found[path.rstrip("/").rsplit("/", 1)[-1]].append(float(spent))
        return found


class Crowd:
    """Labellers at once. ``confirmed``: of each queue the labels the server has confirmed, with the item and the person."""

    def __init__(self, web: WebProcess, people: list[Any], seed: int) -> None:
        self.web, self.people, self.seed = web, people, seed
        self.confirmed: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        self.spent: list[float] = []
        self.lock = threading.Lock()

    def work(self, queue: Any, labels: int, think: float) -> float:
        """Records ``labels`` labels together; returns the seconds it took."""
        share = -(-labels // len(self.people))
        broken: list[BaseException] = []

        def labour(user: Any, number: int) -> None:
            try:
                Labeller(self, user, queue, random.Random(self.seed * 1000 + number)).work(share, think)
            except BaseException as error:
                broken.append(error)

        start = time.perf_counter()
        threads = [threading.Thread(target=labour, args=(user, number)) for number, user in enumerate(self.people)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if broken:
            raise SystemExit(f"{len(broken)} labellers gave up: {broken[0]!r}")
        return time.perf_counter() - start


class Labeller:
    """One person's page: a session, a connection, and at most three items held; it asks for more when fewer than two are left."""

    def __init__(self, crowd: Crowd, user: Any, queue: Any, rng: random.Random) -> None:
        self.crowd, self.user, self.queue, self.rng = crowd, user, queue, rng
        self.headers = headers_of(user)
        self.connection = HTTPConnection("127.0.0.1", crowd.web.port, timeout=60)

    def ask(self, verb: str, data: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self.post(verb, data)
        except (ConnectionError, HTTPException):  # the server closes connections that were idle for 5 s; a browser connects again too
            self.connection.close()
            answer = self.post(verb, data)
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{verb} answered {answer.status}: {body[:300]!r}")
        return dict(json.loads(body))

    def post(self, verb: str, data: dict[str, Any]) -> HTTPResponse:
        self.connection.request("POST", f"/label/{self.queue.pk}/{verb}/", json.dumps(data), self.headers)
        return self.connection.getresponse()

    def ask_reference(self) -> None:
        self.connection.request("POST", REFERENCE, "", self.headers)
        answer = self.connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the reference answered {answer.status}")

    def work(self, labels: int, think: float) -> None:
        if think:
            time.sleep(self.rng.uniform(0, think))  # people do not start together
        held: list[dict[str, Any]] = []
        for _ in range(labels):
            if len(held) < 2:
                held = self.ask("next", {"hold": 3})["claims"]
            if not held:
                return
            time.sleep(think * self.rng.uniform(0.5, 1.5))
            self.label(held.pop(0))

    def label(self, held: dict[str, Any]) -> None:
        answer = {"choice": self.rng.choice(("1", "1", "1", "2", "2", "2", "tie", "bad")), "strength": self.rng.randint(1, 3)}
        data = {"token": held["token"], "key": str(uuid.uuid4()), "seconds": 2.0, "answer": answer}
        start = time.perf_counter()
        made = self.ask("submit", data)["judgement"]
        spent = 1000 * (time.perf_counter() - start)
        if self.rng.random() < TWICE and self.ask("submit", data)["judgement"] != made:
            raise RuntimeError("an answer sent twice became two labels")
        self.ask_reference()
        with self.crowd.lock:
            self.crowd.confirmed[self.queue.pk][made] = (held["item"], self.user.pk)
            self.crowd.spent.append(spent)


def headers_of(user: Any) -> dict[str, str]:
    """A session of the person and the token their page would have."""
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore
    from django.db import connection
    from django.http import HttpRequest
    from django.middleware.csrf import get_token

    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    connection.close()  # of this thread
    request = HttpRequest()
    token = get_token(request)
    cookie = f"{settings.SESSION_COOKIE_NAME}={session.session_key}; {settings.CSRF_COOKIE_NAME}={request.META['CSRF_COOKIE']}"
    return {"Cookie": cookie, "X-CSRFToken": token, "Content-Type": "application/json"}


def part(web: WebProcess, crowd: Crowd, queue: Any, labels: int, think: float) -> dict[str, Any]:
    web.taken()
    crowd.spent.clear()
    seconds = crowd.work(queue, labels, think)
    taken = web.taken()
    say(f"{len(crowd.spent):,} labels in {seconds:.0f} s, {f'pauses of {think} s' if think else 'without a pause'}, overlap {queue.overlap}")
    figures = {verb: dict(zip(("p50", "p95", "p99"), quantiles(taken[verb]), strict=True)) for verb in ("submit", "next", "row")}
    return {**figures, "rate": round(len(crowd.spent) / seconds, 1), "client_p95": round(percentile(crowd.spent), 1)}


def quantiles(spent: list[float]) -> list[float]:
    cuts = statistics.quantiles(spent, n=100, method="inclusive")
    return [round(cuts[at], 1) for at in (49, 94, 98)]


def count(queue: Any, confirmed: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """(lost, doubled) labels of the queue, by what the database holds."""
    from lab.labelling.labels.models import Claim, Item, Judgement, Preference

    stored = {
        pk: (item, user, verdict) for pk, item, user, verdict in Judgement.objects.filter(queue=queue).values_list("pk", "item", "user", "verdict")
    }
    preferences = Counter(Preference.objects.filter(item__queue=queue).values_list("judgement", flat=True))
    wanted = Counter(pk for pk, (_, _, verdict) in stored.items() if verdict in "ab")
    lost = sum(stored.get(pk, ())[:2] != place for pk, place in confirmed.items()) + (wanted - preferences).total()
    labels = Counter(item for item, _, _ in stored.values())
    doubled = len(stored.keys() - confirmed.keys()) + (preferences - wanted).total() + sum(max(0, held - queue.overlap) for held in labels.values())
    seats = labels + Counter(Claim.objects.filter(queue=queue, seated=True).values_list("item", flat=True))
    rows = Item.objects.filter(queue=queue, pk__in=seats).values_list("pk", "room", "labels")
    miscounted = [pk for pk, room, given in rows if room != queue.overlap - seats[pk] or given != labels[pk]]
    if miscounted:
        raise SystemExit(f"{len(miscounted)} items have their seats miscounted, item {miscounted[0]} for one")
    return lost, doubled


if __name__ == "__main__":
    sys.exit(main())
