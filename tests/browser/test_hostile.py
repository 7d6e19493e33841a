"""Every page of the lab with texts of tests/hostile.py in every place a model, a task or a person can write: shown as text, and nothing runs."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.urls import NoReverseMatch
from playwright.sync_api import Page, Request

from lab.rollouts.annotations import verbs
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.teams.accounts.permissions import OUTSIDE_TEAMS, find_route_access
from lab.training.runs.models import LogChunk
from tests.browser import page_checks
from tests.browser.conftest import follow_requests, until
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.accounts.signing_in import give_app
from tests.lab.cast import Address, Cast, addresses, make_cast
from tests.lab.supervisor.spools import measured, rollout
from tests.security.people import routes
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import AnyEvent, Message

NAME = PAYLOADS[1]  # an image whose loading fails: runs wherever it becomes an element, and fits into every name
MARKUP = [text for text in PAYLOADS if MARK in text or "example.org" in text]
# What no page of ours has, and every payload that became markup leaves behind.
ALIEN = (
    'img:not([src^="/static/"]), iframe, object, embed, base, script:not([src], [type="application/json"]), svg[onload], b[hx-get], '
    'a[href^="javascript" i], [onerror], [onclick], [onfocus], [onload], [onmouseover], [ontoggle]'
)
# Pages that show no text of the cast without being asked for more; every other must show its name.
SILENT = {"atlas-tokens", "compare-rollouts", "method", "methods", "rollouts-histograms", "run-queue", "workers"}
SILENT |= {"dataset-import", "dataset-preview", "recall", "run-wins", "version-since", "alert-preview", "api-docs", "policy-files", "usage-left"}
SILENT |= {"runs-columns", "systems", "worlds", "world", "version-tool-preview"}  # names of columns, settings and worlds; counts
SILENT |= {"bin", "bin-put"}  # the cast's run is in use, and so not in the bin
# Every page tells what its content policy kept it from; nothing of ours may need to be kept from anything.
COLLECTOR = """window.kept = [];
document.addEventListener("securitypolicyviolation", (event) => window.kept.push(
  `${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber} ${event.sample}`));"""
TOLD = """([alien, mark]) => ({ kept: window.kept, ran: (window[mark] ?? null) !== null, text: document.body.textContent,
  found: [...document.querySelectorAll(alien)].map((one) => one.outerHTML.slice(0, 160)) })"""


def attacks(step: int) -> Iterator[AnyEvent]:
    """A group of two for every payload, as prompt, role, answer, completion, reason, reward name and metric name."""
    for group, text in enumerate(map(stored, PAYLOADS)):
        count = max(1, min(len(text), 40))
        lengths = [1] * (count - 1) + [max(0, min(len(text), 3000) - count + 1)]
        arrays = {"ids": pack_ids(range(10, 10 + count)), "lengths": pack_array(lengths, "H"), "length": count}
        values = {"logprobs": pack_array([-0.5] * count, "e"), "entropies": pack_array([0.5] * count, "e")}
        words = {"prompt": [Message(text[:40] or "user", text[:3000])], "reference": text[:500], "completion": text[:3000], "filtered": text[:200]}
        for sample in range(2):
            yield rollout(step, group, sample, rewards={text[:60] or "empty": float(sample)}, reward=float(sample), **words, **arrays, **values)
    yield measured(step, values={f"rewards/{text[:60]}/mean": 0.5 for text in MARKUP[:6]} | {"reward": 0.5})


@pytest.fixture
def cast(team: Team, owner: User, page: Page, sign_in: Callable[[User], None]) -> Cast:
    sign_in(owner)
    owner.first_name = PAYLOADS[2]
    owner.save()
    made = make_cast(team, owner, NAME, list(attacks(2)))
    LogChunk.objects.create(run=made.run, attempt=1, offset=0, text="\n".join(map(stored, PAYLOADS)))
    verbs.tag_rollout(team, owner, made.rollout, "</b><script>")
    for text in PAYLOADS:
        if stored(text).strip():
            verbs.start_comment_thread(team, owner, made.rollout, stored(text)[:9000], "0", "2")
    for text in MARKUP:
        verbs.tag_rollout(team, owner, made.other_rollout, stored(text)[: verbs.TAG_LENGTH])
    return made


class Watch:
    """Collects what a page asks for that no page of ours would."""

    def __init__(self, page: Page, host: str) -> None:
        self.page, self.host, self.where, self.trouble = page, host, "", list[str]()
        self.stirred = 0.0
        self.flying = follow_requests(page)
        page.add_init_script(COLLECTOR)
        page.on("request", self.look)

    def look(self, request: Request) -> None:
        self.stirred = time.monotonic()
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and (parts.netloc != self.host or parts.path.rsplit("/", 1)[-1] == "x"):
            self.trouble.append(f"{self.where} asked for {request.url[:200]}")

    def visit(self, path: str) -> str:
        """Opens a page, goes over it with the pointer, and gives its text."""
        self.where = path
        self.flying.clear()
        response = self.page.goto(path)
        assert response is not None
        assert response.status == 200, f"{path}: {response.status}"
        self.settle()
        for selector in (".js-plotly-plot .nsewdrag", "[data-first]", "[data-unit]", "main [title]"):
            for item in self.page.locator(f"{selector}:visible").all()[:2]:
                item.hover(force=True, no_wait_after=True, timeout=3000)
        return self.check()

    def settle(self) -> None:
        """Until nothing was asked for in a while; pages that stay in touch with the lab are given up on."""
        began = self.stirred = time.monotonic()
        while (left := min(began + 4, self.stirred + 0.15) - time.monotonic()) > 0:
            self.page.wait_for_timeout(max(left * 1000, 10))
            if self.flying:
                self.stirred = time.monotonic()

    def check(self) -> str:
        """What the page may not have done or hold; gives its text."""
        told = self.page.evaluate(TOLD, [ALIEN, MARK])
        self.trouble += [f"{self.where} was kept from {one}" for one in told["kept"]]
        if told["ran"] or any(frame.evaluate(f"window.{MARK}") is not None for frame in self.page.frames if frame != self.page.main_frame):
            self.trouble.append(f"{self.where} ran a payload")
        self.trouble += [f"{self.where} holds {one}" for one in told["found"]]
        return str(told["text"])


@pytest.fixture
def watch(page: Page, web: Any) -> Watch:
    return Watch(page, urlsplit(web.url).netloc)


def path_of(address: Address, cast: Cast) -> str:
    """Empty where only a link of a mail leads, and where opening the page would end the session."""
    try:
        return "" if address.name == "account_logout" else address.of(cast)
    except (NoReverseMatch, KeyError):
        if not address.public:
            raise
        return ""


def html_pages(cast: Cast, owner: User) -> Iterator[tuple[str, str, bytes]]:
    """(name, path, body) of every page of the project that answers a GET with HTML; what else answers may not be taken for HTML."""
    client = Client()
    client.force_login(owner)
    for address in addresses():
        path = path_of(address, cast)
        if not path:
            continue
        response = client.get(path)
        response.close()  # what is sent in pieces holds one of the person's places for long requests until then
        if response.status_code != 200:
            continue  # redirects, forms that are only sent, and questions without their parameters
        saved = response.get("Content-Disposition", "").startswith("attachment")  # by the browser, which shows nothing of it
        if response["Content-Type"].startswith("text/html") and not saved:
            yield address.name, path, response.content
        else:
            assert response["X-Content-Type-Options"] == "nosniff", path


def shown(text: str) -> bool:
    """Whether the name of something of the cast, or of its owner, stands on the page as it was written."""
    return NAME in text or PAYLOADS[2] in text


def about_oneself(name: str) -> bool:
    found = find_route_access(name)
    return found is not None and found.read in OUTSIDE_TEAMS


@pytest.mark.feature(89)
@pytest.mark.timeout(900)
def test_every_page_shows_names_that_are_markup_as_text_and_can_be_seen_read_and_used(watch: Watch, cast: Cast, owner: User) -> None:
    """One walk for two questions, because opening the pages takes most of the time: nothing of what is shown runs; axe-core finds nothing in either
    theme, and nothing is cut at three widths.
    """
    watch.page.add_init_script(path=page_checks.AXE_SCRIPT)
    hidden, trouble = set[str](), dict[str, list[str]]()
    for name, path, body in html_pages(cast, owner):
        if not shown(watch.visit(path)) and not about_oneself(name):
            hidden.add(name)
        if b"<html" not in body[:2000]:
            continue  # a part of a page
        until(watch.page, "!document.querySelector('.htmx-request')")
        if found := [*page_checks.find_violations(watch.page), *page_checks.find_cuts(watch.page)]:
            trouble[f"{name} {path}"] = found
    assert watch.trouble == []
    assert not hidden - SILENT, f"say in SILENT that these show no name, or show it: {' '.join(sorted(hidden - SILENT))}"
    assert not trouble, "\n".join(f"{page}\n  " + "\n  ".join(found) for page, found in trouble.items())


def test_the_policy_would_stop_a_payload_that_became_markup(watch: Watch, cast: Cast) -> None:
    """Without this, a page without violations would prove nothing."""
    watch.visit("/runs/")
    watch.page.evaluate("(payload) => document.body.insertAdjacentHTML('beforeend', payload)", "".join(MARKUP[:8]) + '<b style="color:red">x</b>')
    watch.page.evaluate("document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.hostileRan = 1' }))")
    until(watch.page, "() => window.kept.length > 3")
    kept = " ".join(watch.page.evaluate("window.kept"))
    for directive in ("script-src-attr", "script-src-elem", "style-src-attr"):
        assert directive in kept, directive
    assert watch.page.evaluate(f"window.{MARK}") is None


def test_pages_of_rollouts_show_every_payload_as_text(watch: Watch, cast: Cast) -> None:
    run, number = f"/runs/{cast.run.pk}", cast.run.number
    first = Rollout.objects.filter(run=cast.run, step=2).order_by("group", "sample")
    one, other = first[0].pk, first[1].pk
    paths = [f"{run}/rollouts/?step=2", f"{run}/rollouts/?step=2&tokens=entropy", f"/rollouts/?run={number}&f=step:eq:2&size=100"]
    paths += [f"{run}/groups/train/2/{group}/" for group in (0, 3, 15)] + [f"/rollouts/{pk}/?tokens=entropy" for pk in (one, other)]
    paths += [
        f"/compare/rollouts/?a={one}&b={other}",
        f"/compare/?run={number}",
        f"{run}/atlas/?step=2",
        f"{run}/atlas/tokens/?steps=2-2&positions=0-3000",
        f"{run}/what-if/?step=2",
        f"{run}/logs/",
        "/comments/",
    ]
    texts = {path: watch.visit(path) for path in paths}
    assert watch.trouble == []
    for payload in MARKUP[:10]:
        assert payload in texts["/comments/"], payload
        assert payload in texts[paths[0]], payload
        assert payload in texts[f"{run}/logs/"], payload
    assert PAYLOADS[0] in texts[f"{run}/groups/train/2/0/"]
    assert PAYLOADS[0] in texts[f"/compare/rollouts/?a={one}&b={other}"]
    for path, text in texts.items():
        assert "\u202e" not in text, path


def test_the_operators_pages_keep_to_theirs_and_show_names_as_text(watch: Watch, cast: Cast, owner: User) -> None:
    owner.is_staff = owner.is_superuser = True
    owner.save()
    give_app(owner)
    client = Client()
    client.force_login(owner)
    seen = 0
    for route in routes():
        path = route.path(cast) if route.name.startswith("admin:") and not route.parameters else ""
        answer = client.get(path) if path else None
        if answer is None or answer.headers.get("Content-Type", "").split(";")[0] != "text/html" or answer.status_code != 200:
            continue
        watch.visit(path)
        seen += 1
    assert watch.trouble == []
    assert seen > 5
