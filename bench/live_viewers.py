"""Viewers of ``bench/live.py``: websocket clients that keep the protocol of ``static/run/live.js``, and real pages in headless Chromium."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

HELLO_SECONDS = 0.5  # live.js: a page that finds a gap says hello at most so often
RELOAD_SECONDS = (0.3, 1.0)  # overview.js: after a reset the page's data is fetched anew after so long
STAY_SECONDS = (1.0, 3.0)  # how long a viewer that comes and goes stays
AWAY_SECONDS = 0.5  # socket.js: FIRST_WAIT
NEW_PAGE = 3  # of so many returns one is a page opened anew


class BadAnswer(OSError):
    """The lab answered with something other than 200."""


def is_same_point(sent: float | str, stored: float) -> bool:
    """What is no finite number is sent by its name: a standard deviation of a reward that no completion got, for example."""
    value = float(sent)
    return value == stored or (math.isnan(value) and math.isnan(stored))


@dataclass(frozen=True)
class Address:
    """Where the lab is and which run is watched."""

    port: int
    run: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, cookie: str) -> bytes:
        """Raises OSError where there is no answer, or another one than 200."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers={"Cookie": cookie, "Accept": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
        except HTTPException as error:
            raise BadAnswer(f"{path}: {error!r}") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise BadAnswer(f"{path} answered {answer.status}: {body[:200]!r}")
        return body


@dataclass
class Viewer:
    """One page: its points, its place in the spool, and how late each step came (seconds from writing, or from the hello where that was later)."""

    address: Address
    cookie: str
    comes_and_goes: bool
    rng: random.Random
    series: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    cursor: int = 0
    rollouts: int = 0
    repeated: int = 0  # points that were sent though they were there; the page puts them in the place of the old ones
    connects: int = 0
    resets: int = 0
    delays: list[float] = field(default_factory=list)
    made_up: list[float] = field(default_factory=list)  # of steps written while it was away
    hello_at: float = 0.0
    asking: asyncio.Task[None] | None = None  # the next hello
    missing: tuple[int, int] = (0, 0)  # gaps and doubles, once it is over
    wrong: list[str] = field(default_factory=list)  # points that are not what the database holds, in words

    async def open_page(self) -> None:
        body = await asyncio.to_thread(self.address.get, f"/runs/{self.address.run}/metrics.json", self.cookie)
        snapshot = msgspec.json.decode(body)
        self.series = defaultdict(dict)
        for name, one in snapshot["series"].items():
            self.series[name] = dict(zip(one["steps"], one["values"], strict=True))
        self.cursor, self.rollouts = snapshot["cursor"], snapshot["state"]["rollouts"]

    async def watch(self, over: asyncio.Event) -> None:
        """Until ``over``, however often the lab is away."""
        opened = False
        while not over.is_set():
            with suppress(OSError, WebSocketException):
                if not opened or (self.comes_and_goes and self.connects % NEW_PAGE == 0):
                    await self.open_page()
                    opened = True
                await self.keep_connection(self.rng.uniform(*STAY_SECONDS) if self.comes_and_goes else 1e9, over)
            if not over.is_set():
                await asyncio.sleep(AWAY_SECONDS * self.rng.uniform(1, 1.5))

    async def keep_connection(self, seconds: float, over: asyncio.Event) -> None:
        address = f"ws://127.0.0.1:{self.address.port}/ws/runs/{self.address.run}/"
        options: dict[str, Any] = {"additional_headers": {"Cookie": self.cookie}, "origin": self.address.url, "max_size": None, "proxy": None}
        async with connect(address, **options) as socket:  # compressed, as browsers ask for
            self.connects += 1
            await self.say_hello(socket)
            ending = asyncio.create_task(over.wait())
            reading = asyncio.create_task(self.read_messages(socket))
            await asyncio.wait((ending, reading), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in (ending, reading):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await reading
            if self.rng.random() < 0.5:
                socket.transport.abort()  # as a lost network does

    async def read_messages(self, socket: ClientConnection) -> None:
        async for text in socket:
            message = msgspec.json.decode(text)
            if message["type"] == "delta":
                await self.take_delta(socket, message)
            elif message["type"] == "reset":
                self.resets += 1
                await asyncio.sleep(self.rng.uniform(*RELOAD_SECONDS))
                await self.open_page()
                await self.say_hello(socket)

    async def say_hello(self, socket: ClientConnection) -> None:
        self.hello_at = time.time()
        await socket.send(json.dumps({"type": "hello", "cursor": self.cursor}))

    async def say_hello_soon(self, socket: ClientConnection) -> None:
        await asyncio.sleep(max(0.0, self.hello_at + HELLO_SECONDS - time.time()))
        with suppress(WebSocketException):  # closed meanwhile
            await self.say_hello(socket)

    async def take_delta(self, socket: ClientConnection, delta: dict[str, Any]) -> None:
        if delta["to"] <= self.cursor:
            return
        if delta["from"] != self.cursor:
            if self.asking is None or self.asking.done():
                self.asking = asyncio.create_task(self.say_hello_soon(socket))
            return
        now = time.time()
        self.cursor = delta["to"]
        for written in delta["axes"]["time"]:
            if written > self.hello_at:
                self.delays.append(now - written)
            else:
                self.made_up.append(now - self.hello_at)
        self.rollouts += delta["rollouts"]["count"]
        for name, points in delta["points"].items():
            held = self.series[name]
            for step, value in points:
                self.repeated += step in held
                held[step] = value

    def find_missing(self, wanted: dict[str, dict[int, float]], rollouts: int) -> tuple[int, int]:
        """(points and rollouts that are not there, those that should not be there), by what the database holds."""
        gaps = doubles = 0
        for name in wanted.keys() | self.series.keys():
            want, have = wanted.get(name, {}), self.series.get(name, {})
            wrong = [step for step, value in want.items() if step not in have or not is_same_point(have[step], value)]
            self.wrong += [f"{name} of step {step}: {have.get(step)} for {want[step]}" for step in wrong]
            gaps += len(wrong)
            doubles += len(have.keys() - want.keys())
        return gaps + max(0, rollouts - self.rollouts), doubles + max(0, self.rollouts - rollouts)

    def describe(self) -> str:
        """Where it stands, for whoever looks for the reason of a gap."""
        steps = sorted(next(iter(self.series.values()), {}))
        seen = f"cursor {self.cursor}, steps {steps}, {self.rollouts} rollouts"
        stays = f"{self.connects} connections, {self.resets} resets, {self.repeated} points repeated, comes and goes: {self.comes_and_goes}"
        return f"{seen}; {stays}; {self.wrong[:4]}"


# In the page: the newest step of what is shown, and when the frame with it had been painted (a message posted in a frame is read after its paint).
RECORDER = """
() => {
  const seen = window.benchSeen = [];
  const channel = new MessageChannel();
  const waiting = [];
  let last = -1;
  channel.port1.onmessage = () => seen.push([waiting.shift(), Date.now() / 1000]);
  const frame = () => {
    const step = FIND;
    if (Number.isFinite(step) && step > last) { last = step; waiting.push(step); channel.port2.postMessage(0); }
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
"""
SHOWN = {  # what is looked at, by kind of page
    "chart": ("", "document.querySelector('[data-panel=reward] .chart-plot')?.data?.[0]?.x?.at(-1)"),
    "rollouts": ("rollouts/", "Number(document.getElementById('feed')?.dataset.step)"),
}
POINTS = """
import('/static/run/overview.js').then((module) => Object.entries(module.overview.series))
  .then((series) => Object.fromEntries(series.map(([name, one]) => [name, [one.steps, one.values]])))
"""


class BrowserPage:
    """A real page of the run in headless Chromium; ``kind``: one of SHOWN."""

    def __init__(self, kind: str, page: Any) -> None:
        self.kind, self.page, self.errors = kind, page, list[str]()
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    async def open_run(self, address: Address) -> None:
        path, find = SHOWN[self.kind]
        await self.page.goto(f"{address.url}/runs/{address.run}/{path}")
        await self.page.wait_for_selector("#live-badge[data-state=live]", state="attached")
        if self.kind == "chart":
            await self.page.wait_for_selector("[data-panel=reward] .chart-plot .main-svg", state="attached")
        await self.page.evaluate(RECORDER.replace("FIND", find))

    async def read_delays(self, written: dict[int, float]) -> list[float]:
        """Of every step written since the page was there: seconds until a frame with it, or with a later one, was painted."""
        delays, last = [], 0
        for step, painted in await self.page.evaluate("window.benchSeen"):
            if last:
                delays += [painted - written[one] for one in range(last + 1, int(step) + 1)]
            last = int(step)
        return delays

    async def find_missing(self, wanted: dict[str, dict[int, float]]) -> tuple[int, int]:
        """(points that are not there, points that are there twice or should not be)."""
        gaps = doubles = 0
        series = await self.page.evaluate(POINTS)
        for name in wanted.keys() | series.keys():
            steps, values = series.get(name, ([], []))
            have, want = dict(zip(steps, values, strict=True)), wanted.get(name, {})
            gaps += sum(step not in have or not is_same_point(have[step], value) for step, value in want.items())
            doubles += len(steps) - len(have) + len(have.keys() - want.keys())
        return gaps, doubles


async def open_pages(browser: Any, address: Address, cookie: str, kinds: list[str]) -> list[BrowserPage]:
    name, value = cookie.split("; ")[0].split("=", 1)
    context = await browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    await context.add_cookies([{"name": name, "value": value, "url": address.url}])
    pages = [BrowserPage(kind, await context.new_page()) for kind in kinds]
    for page in pages:
        await page.open_run(address)
    return pages
