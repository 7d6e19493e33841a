"""Who works in the lab of ``bench/soak.py``: a script that launches and resumes runs by the API, viewers of runs, a reader of pages, a labeller."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any

from django.db import DatabaseError, connection

from bench.live_viewers import Address, Viewer

OPEN_RUNS = 4  # that wait or train, besides those that end
STOPPED_SHARE = 0.15  # of the runs are stopped by a person on the way, and resumed later
WATCHED = 2  # runs at once; each by a viewer who stays and one who comes and goes
PAUSE = 0.25  # seconds between two acts of a person
PAGES = ("/runs/", "/rollouts/", "/queue/", "/workers/", "/policies/", "/")


@dataclass
class Answer:
    path: str
    status: int  # 0: no answer, because nobody listened or the connection was cut
    seconds: float
    at: float
    is_act: bool = False  # by the API


@dataclass
class Failure:
    run: str
    reason: str
    at: float
    log: str  # its last lines


@dataclass
class Record:
    """What the people of the soak have seen."""

    answers: list[Answer] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    viewers: list[tuple[str, Viewer, tuple[int, int]]] = field(default_factory=list)  # run, viewer, its gaps and doubles
    labels: dict[int, tuple[int, str]] = field(default_factory=dict)  # judgement -> item and key
    troubles: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Where and as whom."""

    port: int
    token: str
    headers: dict[str, str]  # of a signed-in person, with the token of their forms
    steps: int
    two_processes: bool  # train every eighth run


class Worker(threading.Thread):
    """Calls ``act`` again and again until it is ended; what the lab's absence raises is part of the soak."""

    def __init__(self, name: str, act: Callable[[], None], record: Record, pause: float) -> None:
        super().__init__(name=name, daemon=True)
        self.act, self.record, self.pause, self.ended = act, record, pause, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(self.pause):
            try:
                self.act()
            except (OSError, HTTPException, DatabaseError):
                connection.close()
            except Exception as error:
                self.record.troubles.append(f"{self.name}: {error!r}")
        connection.close()


def ask(place: Place, record: Record, method: str, path: str, body: Any = None, by_token: bool = False) -> tuple[int, Any]:
    """Status and decoded body; its time is noted. Raises OSError and HTTPException where nobody answers."""
    headers = {"Authorization": f"Bearer {place.token}", "Content-Type": "application/json"} if by_token else dict(place.headers)
    if by_token and method == "POST":
        headers["Idempotency-Key"] = str(uuid.uuid4())
    asking, began, status = HTTPConnection("127.0.0.1", place.port, timeout=30), time.monotonic(), 0
    try:
        asking.request(method, path, None if body is None else json.dumps(body), headers)
        answer = asking.getresponse()
        data = answer.read()
        status = answer.status
    finally:
        asking.close()
        record.answers.append(Answer(path, status, time.monotonic() - began, time.time(), by_token and method == "POST"))
    return status, json.loads(data) if data[:1] in b"{[" and data else data


class Researcher:
    """Keeps a few runs going; resumes what failed or was stopped, as a person would after reading why."""

    def __init__(self, place: Place, record: Record, rng: random.Random) -> None:
        self.place, self.record, self.rng = place, record, rng
        self.launching = True
        self.seen: set[tuple[str, int, str]] = set()

    def act(self) -> None:
        from lab.training.runs.models import ACTIVE, OPEN, Run, Status

        found = list(Run.across_teams.filter(outside=False).only("pk", "status", "reason", "attempt", "step"))
        for run in found:
            if run.status in (Status.FAILED, Status.STOPPED):
                self.note_end(run)
                self.post(f"/api/v1/runs/{run.pk}/resume")
        if not self.launching:
            return
        if sum(run.status in OPEN for run in found) < OPEN_RUNS:
            self.launch()
        for run in found:
            key = str(run.pk)
            if run.status in ACTIVE and run.step > 3 and key not in self.record.stopped and hash((key, 7)) % 100 < 100 * STOPPED_SHARE:
                self.record.stopped.add(key)
                self.post(f"/api/v1/runs/{run.pk}/stop")

    def note_end(self, run: Any) -> None:
        key = (str(run.pk), run.attempt, run.reason)
        if key not in self.seen:
            self.seen.add(key)
            if run.status == "failed" or run.reason:
                self.record.failures.append(Failure(str(run.pk), f"{run.status}: {run.reason}", time.time(), read_log_end(run)))

    def launch(self) -> None:
        training = {"max_steps": self.place.steps, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 8, "prompts": 8}
        overrides: dict[str, Any] = {
            "policy": {"kind": "tiny", "cold_start": False},
            "training": training,
            "evaluation": {"prompts": 0},
            "limits": {"save_every": 10},
        }
        if self.place.two_processes and len(self.record.launched) % 8 == 4:
            overrides["resources"] = {"processes": 2}
        status, body = self.post("/api/v1/runs", {"recipe": "grpo", "overrides": overrides, "name": "soak", "check": False})
        if status == 201:
            self.record.launched += [run["id"] for run in body["runs"]]
        elif status < 500 and status != 429:
            raise RuntimeError(f"a launch was answered {status}: {body}")

    def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        return ask(self.place, self.record, "POST", path, body, by_token=True)


class Reader:
    """Opens pages and asks the API, one after the other."""

    def __init__(self, place: Place, record: Record, rng: random.Random) -> None:
        self.place, self.record, self.rng = place, record, rng

    def act(self) -> None:
        paths = [*PAGES, "/api/v1/runs?limit=5"]
        if self.record.launched:
            run = self.rng.choice(self.record.launched[-6:])
            paths += [f"/runs/{run}/", f"/runs/{run}/rollouts/", f"/runs/{run}/logs/", f"/runs/{run}/metrics.json"]
        path = self.rng.choice(paths)
        status, _ = ask(self.place, self.record, "GET", path, by_token=path.startswith("/api/"))
        if status == 404:
            raise RuntimeError(f"{path} answered 404")


class Labeller:
    """Labels rollouts one by one. An answer that was not confirmed is sent again under its key until it is."""

    def __init__(self, place: Place, record: Record, rng: random.Random) -> None:
        self.place, self.record, self.rng = place, record, rng
        self.queue: int | None = None
        self.pending: tuple[dict[str, Any], int] | None = None  # what was sent, and of which item

    def act(self) -> None:
        if self.queue is None and not self.make_queue():
            return
        if self.pending is None:
            status, body = self.post("next", {"hold": 1})
            if status != 200 or not body["claims"]:
                return
            claim = body["claims"][0]
            answer = {"choice": self.rng.choice(("1", "2", "tie")), "strength": 1}
            self.pending = {"token": claim["token"], "key": str(uuid.uuid4()), "seconds": 1.0, "answer": answer}, claim["item"]
        sent, item = self.pending
        status, body = self.post("submit", sent)
        if status == 200:
            self.record.labels[body["judgement"]] = (item, sent["key"])
            self.pending = None
        elif status < 500 and status not in (0, 429):
            raise RuntimeError(f"a label was answered {status}: {body}")

    def make_queue(self) -> bool:
        """Pairs of the first rollouts there are; whether there are enough."""
        from itertools import combinations

        from lab.labelling.labels.models import Kind
        from lab.labelling.labels.new_queues import NewItem, make_queue
        from lab.rollouts.trajectories.models import Rollout
        from lab.teams.accounts.models import Team

        groups: dict[Any, list[int]] = defaultdict(list)
        prompts = {}
        rows = Rollout.across_teams.order_by("pk").values_list("pk", "run", "step", "group", "prompt")
        for pk, run, step, group, prompt in rows[:4000]:
            groups[run, step, group].append(pk)
            prompts[run, step, group] = prompt
        items = [NewItem(prompts[key], pair) for key, members in groups.items() for pair in combinations(members, 2)]
        if len(items) < 200:
            return False
        team = Team.objects.get()
        self.queue = make_queue(team, None, name="soak", kind=Kind.PAIR, items=items, overlap=1).pk
        return True

    def post(self, verb: str, data: dict[str, Any]) -> tuple[int, Any]:
        return ask(self.place, self.record, "POST", f"/label/{self.queue}/{verb}/", data)


class Audience(threading.Thread):
    """Viewers of the runs that train, on an event loop of their own: when a run has finished, what they hold is compared with the database."""

    def __init__(self, port: int, cookie: str, record: Record, rng: random.Random) -> None:
        super().__init__(name="audience", daemon=True)
        self.port, self.cookie, self.record, self.rng = port, cookie, record, rng
        self.ended = threading.Event()

    def run(self) -> None:
        asyncio.run(self.watch_runs())

    async def watch_runs(self) -> None:
        watched: dict[str, asyncio.Task[None]] = {}
        while not self.ended.is_set() or any(not task.done() for task in watched.values()):
            await asyncio.sleep(0.5)
            if self.ended.is_set() or sum(not task.done() for task in watched.values()) >= WATCHED:
                continue
            for key in await asyncio.to_thread(list_training):
                if key not in watched:
                    watched[key] = asyncio.create_task(self.watch_run(key))
                    break
        for task in watched.values():
            if error := task.exception():
                self.record.troubles.append(f"viewers: {error!r}")

    async def watch_run(self, run: str) -> None:
        over = asyncio.Event()
        address = Address(self.port, run)
        viewers = [Viewer(address, self.cookie, leaves, random.Random(self.rng.random())) for leaves in (False, True)]
        watching = [asyncio.create_task(viewer.watch(over)) for viewer in viewers]
        while (end := await asyncio.to_thread(read_end, run)) is None:
            await asyncio.sleep(0.5)
        deadline = time.monotonic() + 60
        while any(viewer.cursor < end for viewer in viewers) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        over.set()
        await asyncio.gather(*watching)
        wanted, rollouts = await asyncio.to_thread(read_points, run)
        self.record.viewers += [(run, viewer, viewer.find_missing(wanted, rollouts)) for viewer in viewers]


def read_log_end(run: Any) -> str:
    """What the newest attempt printed last, as far as it is stored."""
    from lab.training.runs.models import LogChunk

    newest = LogChunk.objects.filter(run=run, attempt=run.attempt).order_by("-offset").values_list("text", flat=True)[:2]
    return "".join(reversed(newest))[-1500:]


def list_training() -> list[str]:
    from lab.training.runs.models import ACTIVE, Run

    try:
        return [str(key) for key in Run.across_teams.filter(status__in=ACTIVE).order_by("-created_at").values_list("pk", flat=True)]
    except DatabaseError:
        connection.close()
        return []


def read_end(run: str) -> int | None:
    """Bytes of its spool that are stored, once it has finished."""
    from lab.training.runs.models import Run, Status

    try:
        row: int | None = Run.across_teams.filter(pk=run, status=Status.FINISHED).values_list("ingested", flat=True).first()
        return row
    except DatabaseError:
        connection.close()
        return None


def read_points(run: str) -> tuple[dict[str, dict[int, float]], int]:
    """Every point of the run by metric and step, and its rollouts; once the database answers."""
    from lab.training.runs import metrics
    from lab.training.runs.models import Run

    for _ in range(120):
        try:
            series = metrics.read_metric_series(uuid.UUID(run))  # a text would find no attempt, so that steps done again would count twice
            points = {name: dict(zip(one.steps.tolist(), one.values.tolist(), strict=True)) for name, one in series.items() if name[0] != "@"}
            return points, Run.across_teams.values_list("rollouts", flat=True).get(pk=run)
        except DatabaseError:
            connection.close()
            time.sleep(0.5)
    raise RuntimeError("the database did not come back")


def start_load(place: Place, record: Record, seed: int, pause: float) -> tuple[Researcher, list[Worker], Audience]:
    rng = random.Random(seed)
    researcher = Researcher(place, record, random.Random(rng.random()))
    reader, labeller = Reader(place, record, random.Random(rng.random())), Labeller(place, record, random.Random(rng.random()))
    acts = {"researcher": researcher.act, "reader": reader.act, "labeller": labeller.act}
    workers = [Worker(name, act, record, pause) for name, act in acts.items()]
    audience = Audience(place.port, place.headers["Cookie"], record, random.Random(rng.random()))
    for thread in (*workers, audience):
        thread.start()
    return researcher, workers, audience
