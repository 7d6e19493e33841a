"""Headless Chromium against a real web process on the test database."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Error, Page, Request, expect, sync_playwright

from lab.teams.accounts.models import User
from lab.training.runs.local_lab import SERVER_OPTIONS
from tests.conftest import environment

# Playwright's synchronous interface keeps an event loop in this thread, which Django would take for asynchronous code.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"

# The shell is Chromium without the windows around the pages: a page costs it a sixth of the processor time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
# One process for all pages of the lab: what it has compiled is there for the next page, and none is started for each.
FLAGS += ["--disable-sync", "--renderer-process-limit=1"]
START_SECONDS = 240

expect.set_options(timeout=30_000)  # a busy machine is not a broken page


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def until(page: Page, expression: str, timeout: float = 30_000, arg: object = None) -> None:
    """Waits until the expression is true in the page; the policy of the pages refuses the evaluation inside the page of `wait_for_function`."""
    deadline = time.monotonic() + timeout / 1000
    while True:
        try:
            if page.evaluate(expression, arg):
                return
            last = "it is not true"
        except Error as error:  # an element that is not there yet, a page on its way to another
            last = error.message
        assert time.monotonic() < deadline, f"waited {timeout / 1000:g} s for {expression}: {last}"
        page.wait_for_timeout(100)


def of_module(path: str, expression: str) -> str:
    """The expression over ``module``, the one of static/ that the page runs too: a module is loaded once under its address."""
    return f"import('/static/{path}').then((module) => {expression})"


def others_at_work() -> bool:
    """Whether another connection to the test database is in a query or a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'")
        return bool(cursor.fetchone()[0])


class WebProcess:
    """uvicorn with the lab on a port of its own; can be stopped and started again on the same port."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.env, self.log = env, log
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "uvicorn", "lab.asgi:application", "--host", "127.0.0.1", "--port", str(self.port), "--log-level", "warning"]
        command += [*SERVER_OPTIONS]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, env=self.env, cwd=settings.BASE, stdout=out, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the web process did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.1)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health/", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def freeze(self) -> None:
        """Holds the process at a moment at which it holds no lock in the database."""
        deadline = time.monotonic() + START_SECONDS
        while self.running():
            self.signal(signal.SIGSTOP)
            if not others_at_work():
                return
            self.thaw()
            assert time.monotonic() < deadline, "the web process does not come to rest"
            time.sleep(0.05)

    def thaw(self) -> None:
        if self.running():
            self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        self.thaw()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web")


@pytest.fixture(autouse=True)
def run_folders(shared_folder: Path) -> Path:
    """One folder for all browser tests, because they share a web process; runs have a folder each by their id."""
    settings.RUNS_ROOT = shared_folder / "runs"
    return settings.RUNS_ROOT


@pytest.fixture(scope="session")
def shared_web(django_db_setup: None, shared_folder: Path) -> Iterator[WebProcess]:
    process = WebProcess(environment(shared_folder / "runs"), shared_folder / "web.log")
    yield process
    process.stop()


@pytest.fixture
def web(process_env: dict[str, str], shared_web: WebProcess) -> Iterator[WebProcess]:
    """The web process, running; a test may stop it and start it again. It stands still while the tables are emptied after the test."""
    shared_web.thaw()
    if not shared_web.answers():
        shared_web.stop()
        shared_web.start()
    yield shared_web
    shared_web.freeze()


@pytest.fixture(scope="package")
def profile(shared_web: WebProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """A browser with a person's profile, which keeps scripts compiled from page to page: in a context of its own each page compiles Plotly anew,
    0.8 s. Not for the session: Playwright's event loop would still run in this thread when asynchronous tests follow.
    """
    chromium = next((path for path in map(shutil.which, BROWSERS) if path), "/usr/bin/chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=chromium,
            args=FLAGS,
            base_url=shared_web.url,
            viewport={"width": 1440, "height": 900},
            reduced_motion="reduce",  # the dot of a running run pulses: 60 pictures a second, drawn by the processor
        )
        yield running
        running.close()


@pytest.fixture
def browser(profile: BrowserContext) -> Browser:
    """For contexts beside the profile: other people's, or other settings."""
    assert profile.browser is not None
    return profile.browser


@pytest.fixture
def context(request: pytest.FixtureRequest, profile: BrowserContext, browser: Browser, web: WebProcess) -> Iterator[BrowserContext]:
    """The profile; what a test left in it is gone for the next one. A test marked ``own_context`` leaves something that cannot be taken back."""
    if request.node.get_closest_marker("own_context"):
        made = browser.new_context(base_url=web.url, viewport={"width": 1440, "height": 900})
        made.set_default_timeout(30_000)
        yield made
        made.close()
        return
    profile.set_default_timeout(30_000)
    yield profile
    clear_profile(profile, web.url)


def clear_profile(profile: BrowserContext, origin: str) -> None:
    blank, *used = profile.pages  # the browser ends with its last page: the one it started with stays
    for page in used:
        page.close()
    assert not blank.evaluate("'__pwClock' in globalThis"), "a clock stays: mark the test with own_context"
    profile.unroute_all()
    profile.set_offline(False)
    profile.clear_permissions()
    profile.clear_cookies()
    session = profile.new_cdp_session(blank)
    session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "local_storage,indexeddb,service_workers,cache_storage"})
    session.detach()


def follow_requests(source: Page | BrowserContext) -> set[Request]:
    """What it has asked for and not been answered, from now on."""
    in_flight: set[Request] = set()
    source.on("request", lambda request: in_flight.add(request))
    for ending in ("requestfinished", "requestfailed"):
        source.on(ending, lambda request: in_flight.discard(request))
    return in_flight


def wait_with_keys_for_load(page: Page) -> None:
    """Holds keys back until the page has loaded: a click on a link returns before the scripts of the next page have run, and a key would be lost."""

    def wait_before(act: Callable[..., None]) -> Callable[..., None]:
        def act_on_loaded_page(*args: object, **options: object) -> None:
            page.wait_for_load_state()
            act(*args, **options)

        return act_on_loaded_page

    keyboard = page.keyboard
    keyboard.press, keyboard.type = wait_before(keyboard.press), wait_before(keyboard.type)  # type: ignore[method-assign]


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that fails the test when a script of it failed or a dialog of the browser opened."""
    trouble: list[str] = []
    made = context.new_page()
    made.on("pageerror", lambda error: trouble.append(f"script error: {error}"))
    made.on("dialog", lambda dialog: (trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    wait_with_keys_for_load(made)
    yield made
    assert trouble == []


@pytest.fixture
def sign_in(context: BrowserContext, web: WebProcess) -> Callable[[User], None]:
    """Signs a person in by a session cookie, without the form."""

    def signed_in(user: User) -> None:
        client = Client()
        client.force_login(user)
        value = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": web.url}])

    return signed_in


@pytest.fixture
def without_scripts(browser: Browser, web: WebProcess, owner: User) -> Iterator[Page]:
    """A page of the owner's in a browser that runs no script."""
    client = Client()
    client.force_login(owner)
    made = browser.new_context(base_url=web.url, java_script_enabled=False, viewport={"width": 1440, "height": 900})
    value = client.cookies[settings.SESSION_COOKIE_NAME].value
    made.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": web.url}])
    yield made.new_page()
    made.close()
