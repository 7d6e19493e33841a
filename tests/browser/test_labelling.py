"""Labelling pairs in a browser, by keyboard alone: drafts, locks, undo, a network that is slow or away, and hostile texts."""

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from django.conf import settings
from django.db import transaction
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect

from lab.labelling.labels.item_claims import claim_items, clear_expired
from lab.labelling.labels.judgements import submit_judgement
from lab.labelling.labels.models import Change, Claim, Item, Judgement, KeyMap, Kind, Preference, Queue, QueueStatus
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.labelling.labels.settlement import send_back
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from tests.browser.conftest import WebProcess, follow_requests, of_module
from tests.conftest import make_member
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.labels.queues import group_queue, pair_queue
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import Message

Visit = Callable[[User, Queue], Page]
IN_FLIGHT: WeakKeyDictionary[BrowserContext, set[Request]] = WeakKeyDictionary()


@pytest.fixture
def ann(team: Team) -> User:
    return make_member("ann@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def bea(team: Team) -> User:
    return make_member("bea@example.org", team, Role.ANNOTATOR)


def enter(context: BrowserContext, user: User, url: str) -> None:
    """Signs somebody in by a session cookie."""
    client = Client()
    client.force_login(user)
    value = client.cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": url}])


@pytest.fixture
def visit(browser: Browser, web: WebProcess) -> Iterator[Visit]:
    """Opens a queue for somebody, in a browser context of their own; a script error fails the test."""
    contexts: list[BrowserContext] = []
    trouble: list[str] = []

    def visited(user: User, queue: Queue, query: str = "") -> Page:
        context = browser.new_context(base_url=web.url, viewport={"width": 1440, "height": 900})
        contexts.append(context)
        context.set_default_timeout(30_000)
        IN_FLIGHT[context] = follow_requests(context)
        enter(context, user, web.url)
        page = context.new_page()
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.goto(f"/label/{queue.pk}/work/{query}")
        return page

    yield visited
    for context in contexts:
        context.close()
    assert trouble == []


def shown(page: Page) -> int:
    """The item in sight."""
    expect(page.locator("[data-stage] .item")).to_be_visible()
    return int(page.locator("#labelling").get_attribute("data-item") or 0)


def expect_item(page: Page, item: int) -> None:
    expect(page.locator("#labelling")).to_have_attribute("data-item", str(item))
    expect(page.locator("[data-stage] .item")).to_be_visible()


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def eventually(page: Page, holds: Callable[[], Any]) -> None:
    for _ in range(150):
        if holds():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not happen")


def wait_for_answers(page: Page) -> None:
    """Until everything the page asked for is answered, and what it made of the last answer has asked for nothing more."""
    idle = 0
    while idle < 3:
        page.wait_for_timeout(50)
        idle = 0 if IN_FLIGHT[page.context] else idle + 1


def said(queue: Queue, user: User) -> list[str]:
    return list(Judgement.objects.filter(queue=queue, user=user).counting().order_by("item__place").values_list("verdict", flat=True))


def chosen(page: Page) -> list[str]:
    return [str(one.get_attribute("data-choice")) for one in page.locator('[data-choices] [aria-pressed="true"]').all()]


@pytest.mark.feature(60)
def test_two_people_label_by_keyboard_and_one_takes_an_answer_back(visit: Visit, team: Team, ann: User, bea: User) -> None:
    queue = pair_queue(team, 3, overlap=2)
    first, second, third = queue.items.order_by("place").values_list("pk", flat=True)
    one, other = visit(ann, queue), visit(bea, queue)
    expect_item(one, first)
    order = Claim.across_teams.get(item=first, user=ann).order
    press(one, "1", "e", "r")
    one.keyboard.type("1 and 2 are typed, not chosen")
    press(one, "Escape", "Enter")
    expect_item(one, second)
    press(one, "2", "Enter")
    expect_item(one, third)
    eventually(one, lambda: len(said(queue, ann)) == 2)
    judged = Judgement.across_teams.get(item=first, user=ann)
    assert (judged.verdict, judged.strength, judged.rationale) == ("ab"[order[0]], 3, "1 and 2 are typed, not chosen")
    rollouts = Item.across_teams.get(pk=first).rollouts
    assert list(Preference.across_teams.filter(judgement=judged).values_list("chosen", "rejected")) == [(rollouts[order[0]], rollouts[order[1]])]

    press(one, "u")
    expect_item(one, second)
    assert chosen(one) == ["second"]
    press(one, "0", "Enter")
    expect_item(one, third)
    press(one, "b", "Enter")
    expect(one.locator('[data-state="done"]')).to_be_visible()
    assert said(queue, ann)[1:] == ["tie", "bad"]
    changes = Change.across_teams.filter(item=second, user=ann).order_by("pk").values_list("what", flat=True)
    assert list(changes) == ["submitted", "undone", "submitted"]
    expect(one.locator("[data-mine]")).to_have_text("3 yours")

    for _ in range(3):
        shown(other)
        press(other, "ArrowLeft", "Enter")
    expect(other.locator('[data-state="done"]')).to_be_visible()
    assert len(said(queue, bea)) == 3
    expect(other.locator("[data-done]")).to_have_text("3/3")
    assert Judgement.objects.filter(queue=queue).count() == 6


def test_the_next_item_is_there_before_the_server_has_answered(visit: Visit, team: Team, ann: User) -> None:
    queue = pair_queue(team, 3)
    first, second, third = queue.items.order_by("place").values_list("pk", flat=True)
    page = visit(ann, queue)
    expect_item(page, first)
    page.wait_for_load_state("networkidle")
    waiting: list[Route] = []
    page.route("**/label/**", lambda route: waiting.append(route))
    press(page, "1", "Enter")
    expect_item(page, second)
    assert chosen(page) == []
    assert said(queue, ann) == [], "nothing has reached the server"
    for route in waiting:
        route.continue_()
    page.unroute("**/label/**")
    eventually(page, lambda: len(said(queue, ann)) == 1)
    press(page, "2", "Enter")
    expect_item(page, third)
    eventually(page, lambda: len(said(queue, ann)) == 2)


@pytest.mark.feature(61)
def test_a_draft_survives_a_reload_even_without_the_browsers_memory(visit: Visit, team: Team, ann: User) -> None:
    queue = pair_queue(team, 2, correction=True)
    page = visit(ann, queue)
    item = shown(page)
    press(page, "2", "w", "c")
    page.keyboard.type(" and more")
    press(page, "Escape", "Control+s")
    eventually(page, lambda: Claim.across_teams.get(item=item).draft.get("correction", "").endswith(" and more"))
    page.evaluate("localStorage.clear()")
    page.reload()
    expect_item(page, item)
    assert chosen(page) == ["second", "strength-2"]
    better = page.locator(".answer-panel.chosen .answer-text").inner_text()
    expect(page.locator(".correction textarea")).to_have_value(f"{better} and more")
    expect(page.locator(".correction-diff ins")).to_have_text(" and more")
    press(page, "Enter")
    eventually(page, lambda: Judgement.across_teams.filter(item=item, correction=f"{better} and more").exists())


def test_an_answer_that_comes_too_late_says_who_has_the_item_and_is_kept(visit: Visit, team: Team, ann: User, bea: User) -> None:
    queue = pair_queue(team, 2)
    first = queue.items.order_by("place").values_list("pk", flat=True)[0]
    page = visit(ann, queue)
    expect_item(page, first)
    Claim.across_teams.filter(item=first).update(expires_at=timezone.now() - timedelta(minutes=1))
    taken = claim_items(queue, bea, hold=1)[0]
    assert taken.item_id == first
    press(page, "1", "r")
    page.keyboard.type("worked on for long")
    press(page, "Control+Enter")
    card = page.locator("[data-lost] .lost-card")
    expect(card).to_contain_text("bea")
    expect(card.locator("textarea")).to_have_value("worked on for long")
    card.get_by_role("button", name="Claim again").click()
    expect(page.locator(".toast")).to_contain_text("no longer available")
    page.reload()
    expect(card.locator("textarea")).to_have_value("worked on for long")
    Claim.across_teams.filter(pk=taken.pk).update(expires_at=timezone.now() - timedelta(minutes=1))
    with transaction.atomic():
        clear_expired(queue)
    card.get_by_role("button", name="Claim again").click()
    expect_item(page, first)
    expect(card).to_have_count(0)
    expect(page.locator("[data-stage]").get_by_label("Why?")).to_have_value("worked on for long")
    press(page, "Enter")
    eventually(page, lambda: said(queue, ann) == ["a"] or said(queue, ann) == ["b"])
    assert Judgement.across_teams.get(item=first).rationale == "worked on for long"


def test_answers_given_without_a_network_arrive_exactly_once(visit: Visit, team: Team, ann: User) -> None:
    queue = pair_queue(team, 4)
    page = visit(ann, queue)
    first = shown(page)
    page.wait_for_load_state("networkidle")
    page.context.set_offline(True)
    press(page, "1", "Enter")
    expect(page.locator("#labelling")).not_to_have_attribute("data-item", str(first))
    expect(page.locator("[data-offline]")).to_contain_text("1 answer is kept")
    press(page, "0", "Enter")
    expect(page.locator("[data-offline]")).to_contain_text("2 answers are kept")
    assert said(queue, ann) == []
    page.context.set_offline(False)
    eventually(page, lambda: len(said(queue, ann)) == 2)
    expect(page.locator("[data-offline]")).to_be_hidden()

    def cut(route: Route) -> None:
        """The answer arrives, its confirmation does not."""
        route.fetch()
        route.abort()

    page.route("**/submit/", cut, times=1)
    shown(page)
    press(page, "2", "Enter")
    eventually(page, lambda: len(said(queue, ann)) == 3)
    shown(page)
    press(page, "b", "Enter")
    expect(page.locator('[data-state="done"]')).to_be_visible()
    assert Judgement.objects.filter(queue=queue).count() == len(said(queue, ann)) == 4
    assert Change.across_teams.filter(item__queue=queue).count() == 4
    assert page.evaluate("Object.keys(localStorage).filter((key) => key.includes('outbox')).map((key) => localStorage[key])") in ([], ["[]"])


def test_an_answer_that_waits_is_sent_by_the_next_visit(visit: Visit, team: Team, ann: User) -> None:
    queue = pair_queue(team, 2)
    page = visit(ann, queue)
    first = shown(page)
    page.wait_for_load_state("networkidle")
    page.route("**/submit/", lambda route: route.abort())
    press(page, "1", "Enter")
    expect(page.locator("[data-offline]")).to_be_visible()
    page.unroute("**/submit/")
    page.reload()
    eventually(page, lambda: len(said(queue, ann)) == 1)
    expect(page.locator("#labelling")).not_to_have_attribute("data-item", str(first))  # the next one is asked for once the answer has arrived


@pytest.mark.feature(66)
def test_what_a_reviewer_sent_back_is_found_and_revised(visit: Visit, team: Team, owner: User, ann: User) -> None:
    queue = pair_queue(team, 2, reviewed=True)
    held = claim_items(queue, ann, hold=1)[0]
    judgement = submit_judgement(queue, ann, held.token, uuid.uuid4(), {"choice": "1", "rationale": "short"}, 1.0)
    send_back(judgement, owner, "Look at the <b>units</b>")
    page = visit(ann, queue)
    page.get_by_text("1 sent back").click()
    page.get_by_role("link", name=f"Item {held.item_id}").click()
    expect_item(page, held.item_id)
    expect(page.locator("[data-returned]")).to_contain_text("Look at the <b>units</b>")
    assert chosen(page) == ["first"]
    press(page, "2", "Enter")
    eventually(page, lambda: Judgement.across_teams.filter(pk=judgement.pk, state="submitted").exists())
    judgement.refresh_from_db()
    assert judgement.verdict == "ab"[held.order[1]]
    expect(page.locator("#labelling")).not_to_have_attribute("data-item", str(held.item_id))


@pytest.mark.feature(56)
def test_skipping_asks_for_a_reason_by_one_more_key_and_a_rubric_takes_numbers(visit: Visit, team: Team, ann: User) -> None:
    rubric = [
        {"name": "tone", "label": "Tone", "kind": "scale", "choices": [], "required": True},
        {"name": "true", "label": "True?", "kind": "yesno", "choices": [], "required": False},
    ]
    queue = pair_queue(team, 3, rubric=rubric)
    page = visit(ann, queue)
    first = shown(page)
    press(page, "s", "2")
    expect(page.locator("#labelling")).not_to_have_attribute("data-item", str(first))
    eventually(page, lambda: Judgement.across_teams.filter(item=first, verdict="skip", rationale__contains="subject").exists())
    second = shown(page)
    press(page, "1", "Enter")
    expect(page.locator("[data-say]")).to_contain_text("Tone")
    press(page, "4", "o", "4", "Enter")
    eventually(page, lambda: Judgement.across_teams.filter(item=second).exists())
    assert Judgement.across_teams.get(item=second).rubric == {"tone": 4}


def test_keys_can_be_mapped_and_wrong_ones_are_refused(visit: Visit, team: Team, ann: User) -> None:
    queue = pair_queue(team, 2)
    page = visit(ann, queue)
    shown(page)
    page.get_by_role("button", name="Change keys").click()
    field = page.locator('#key-map [data-action="first"]')
    for wrong in ("2", "?", ""):
        field.fill(wrong)
        page.get_by_role("button", name="Save").click()
        expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("a")
    skip = page.locator('#key-map [data-action="skip"]')
    skip.fill("4")  # in a question it would answer, not skip
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#key-map .key-row", has=page.locator('[data-action="skip"]'))).to_contain_text(
        "answers the extra questions of a queue. Choose a letter"
    )
    skip.fill("s")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#key-map")).to_be_hidden()
    press(page, "1")
    assert chosen(page) == []
    press(page, "a")
    assert chosen(page) == ["first"]
    page.reload()
    shown(page)
    expect(page.locator('[data-choice="first"] kbd')).to_have_text("a")
    press(page, "?")
    expect(page.locator("#key-sheet")).to_contain_text("Answer 1 is better")


def test_hostile_texts_stand_as_they_were_written(visit: Visit, team: Team, ann: User) -> None:
    run = make_run(team)
    texts = [stored(text) for text in PAYLOADS]
    events = [rollout(1, group, sample, prompt=[Message("user", text)], completion=text) for group, text in enumerate(texts) for sample in range(2)]
    store(run, started(), *events)
    groups: dict[int, list[Rollout]] = {}
    for row in Rollout.objects.filter(run=run).order_by("group", "sample"):
        groups.setdefault(row.group, []).append(row)
    items = [NewItem(rows[0].prompt_id, (rows[0].pk, rows[1].pk)) for rows in groups.values()]
    hostile = "<img src=x onerror=window.hostileRan=1>"
    queue = make_queue(team, None, name=hostile, guidelines=f"{hostile}\n\n[x](javascript:window.hostileRan=1)", kind=Kind.PAIR, items=items)
    page = visit(ann, queue)
    for rows in groups.values():
        shown(page)
        text = page.evaluate("[...document.querySelectorAll('[data-stage] .answer-text')].map((box) => box.textContent)")
        word = max(rows[0].completion.split() or [""], key=len)
        if word.isascii() and word.isprintable() and not set(word) & set("`*#"):
            assert all(word in one for one in text), (word, text)
        page.evaluate(of_module("labelling/frame.js", "module.frame.held[0].item.keys().find((key) => key.id === 'diff').run()"))
        assert page.evaluate("document.querySelectorAll('[data-stage] :is(script, img, iframe, svg, a, b)').length") == 0
        item = shown(page)
        press(page, "0", "Enter")
        expect(page.locator("#labelling")).not_to_have_attribute("data-item", str(item))
    expect(page.locator('[data-state="done"]')).to_be_visible()
    assert page.evaluate(f"window.{MARK}") is None
    assert page.locator(".guidelines img, .guidelines a[href^=javascript]").count() == 0


def test_the_clearer_of_two_pairs_is_stored_by_the_pairs_as_they_lie(visit: Visit, team: Team, ann: User) -> None:
    queue = group_queue(team, Kind.CLEARER, 1, 4)
    page = visit(ann, queue)
    item = shown(page)
    order = Claim.across_teams.get(item=item).order
    expect(page.locator(".answer-panel")).to_have_count(4)
    press(page, "2", "Enter")
    eventually(page, lambda: Judgement.across_teams.filter(item=item).exists())
    assert Judgement.across_teams.get(item=item).verdict == ("first" if order[2] in (0, 1) else "second")


@pytest.mark.feature(67)
def test_a_known_answer_is_told_after_ones_own_and_a_pause_says_why(visit: Visit, team: Team, ann: User) -> None:
    queue = pair_queue(team, 3)
    queue.items.update(gold={"verdict": "a"})
    page = visit(ann, queue)
    for count in (1, 2):
        item = shown(page)
        wrong = Claim.across_teams.get(item=item).order.index(1) + 1
        assert page.locator(".toast").count() == count - 1
        press(page, str(wrong), "Enter")
        expect(page.locator(".toast")).to_have_count(count)
        expect(page.locator(".toast").last).to_contain_text("This was a gold item. The correct answer: the")
    press(page, "1", "r")
    page.keyboard.type("kept")
    Queue.across_teams.filter(pk=queue.pk).update(status=QueueStatus.PAUSED)
    press(page, "Escape", "Enter")
    refused = page.locator('[data-state="refused"]')
    expect(refused).to_contain_text("This queue is paused.")
    wait_for_answers(page)  # the label is refused, too: one that came after the queue was opened again would be stored
    Queue.across_teams.filter(pk=queue.pk).update(status=QueueStatus.OPEN)
    refused.get_by_role("button", name="Refresh").click()
    shown(page)
    expect(page.locator("[data-stage]").get_by_label("Why?")).to_have_value("kept")
    press(page, "Enter")
    expect(page.locator('[data-state="done"]')).to_be_visible()
    assert Judgement.objects.get(queue=queue, rationale="kept").verdict in "ab"


def test_a_lock_lost_while_writing_stops_the_work_and_keeps_the_words(visit: Visit, team: Team, ann: User, bea: User) -> None:
    queue = pair_queue(team, 3)
    page = visit(ann, queue)
    item = shown(page)
    page.wait_for_load_state("networkidle")
    Claim.across_teams.filter(item=item).update(expires_at=timezone.now() - timedelta(minutes=1))
    assert claim_items(queue, bea, hold=1)[0].item_id == item
    press(page, "1", "r")
    page.keyboard.type("half a sentence")
    card = page.locator("[data-lost] .lost-card")  # the draft comes too late and is told so
    expect(card).to_contain_text("bea@example.org has it now")
    expect(card.get_by_role("button", name="Claim again")).to_be_focused()
    press(page, "Escape", "Tab", "Enter")
    expect(card).to_have_count(0)
    expect(page.locator("#labelling")).not_to_have_attribute("data-item", str(item))
    assert said(queue, ann) == []
    assert Change.across_teams.filter(item=item, what="submitted").count() == 0


def test_an_answer_the_server_refuses_comes_back_with_the_field_marked(visit: Visit, team: Team, ann: User) -> None:
    queue = pair_queue(team, 3)
    page = visit(ann, queue)
    item = shown(page)
    Queue.across_teams.filter(pk=queue.pk).update(rationale="required")
    press(page, "2", "Enter")
    expect(page.locator("[data-stage] [aria-invalid=true]")).to_be_focused()
    expect_item(page, item)
    assert chosen(page) == ["second"]
    expect(page.locator("[data-stage] .field-error")).to_contain_text("rationale")
    page.keyboard.type("now with words")
    press(page, "Control+Enter")
    eventually(page, lambda: Judgement.across_teams.filter(item=item, rationale="now with words").exists())
    assert Judgement.across_teams.count() == 1


def test_signed_out_meanwhile_answers_wait_until_one_is_back(visit: Visit, web: WebProcess, team: Team, ann: User) -> None:
    queue = pair_queue(team, 3)
    page = visit(ann, queue)
    first = shown(page)
    page.wait_for_load_state("networkidle")
    page.context.clear_cookies()
    press(page, "1", "Enter")
    expect(page.locator("[data-offline]")).to_contain_text("You are signed out")
    expect(page.locator("#labelling")).not_to_have_attribute("data-item", str(first))
    door = page.context.new_page()
    enter(page.context, ann, web.url)
    door.goto("/runs/")  # brings the new token, as signing in does
    eventually(page, lambda: len(said(queue, ann)) == 1)
    expect(page.locator("[data-offline]")).to_be_hidden()


def test_the_spans_of_a_diff_are_the_two_texts(visit: Visit, team: Team, ann: User) -> None:
    page = visit(ann, pair_queue(team, 1))
    texts = [stored(text)[:3000] for text in PAYLOADS] + ["a b c d", "a c d e", "a  b\nc", "数据 结构", "数 据结构 x"]
    wrong = page.evaluate(
        """texts => import("/static/labelling/diff.js").then(({ diffTexts }) => texts.flatMap((before, at) => texts.slice(at).flatMap((after) => {
            const spans = diffTexts(before, after);
            const side = (left) => spans.filter((span) => span.kind !== left).map((span) => span.text).join("");
            return side("added") === before && side("removed") === after ? [] : [[before, after, spans]];
        })))""",
        texts,
    )
    assert wrong == []
    assert page.evaluate(of_module("labelling/diff.js", "module.diffTexts('one two three', 'one 2 three')")) == [
        {"kind": "same", "text": "one"},
        {"kind": "removed", "text": " two"},
        {"kind": "added", "text": " 2"},
        {"kind": "same", "text": " three"},
    ]


def test_long_thinking_is_folded_in_both_panels_and_stays_so(visit: Visit, team: Team, ann: User) -> None:
    prompt = pair_queue(team, 1).items.get().prompt_id
    texts = tuple(f"<think>{'word ' * 100}</think>the end of {place} <b>" for place in range(2))
    queue = make_queue(team, None, name="q", kind=Kind.PAIR, items=[NewItem(prompt, texts=texts) for _ in range(2)])
    page = visit(ann, queue)
    first = shown(page)
    folds = page.locator("[data-stage] details.thinking")
    expect(folds).to_have_count(2)
    expect(page.locator("[data-stage] details.thinking[open]")).to_have_count(2)
    press(page, "f", "1", "Enter")
    expect(page.locator("#labelling")).not_to_have_attribute("data-item", str(first))
    expect(folds).to_have_count(2)
    expect(page.locator("[data-stage] details.thinking[open]")).to_have_count(0)
    folds.first.locator("summary").click()
    expect(page.locator("[data-stage] details.thinking[open]")).to_have_count(2)
    expect(page.locator("[data-stage] .answer-text").first).to_contain_text("<b>")
    eventually(page, lambda: len(said(queue, ann)) == 1)


def test_a_second_window_that_is_closed_takes_nothing_from_the_first(visit: Visit, team: Team, ann: User) -> None:
    queue = pair_queue(team, 4)
    page = visit(ann, queue)
    first = shown(page)
    tokens = set(Claim.objects.filter(queue=queue).values_list("token", flat=True))
    other = page.context.new_page()
    other.goto(page.url)
    expect_item(other, first)
    other.wait_for_load_state("networkidle")
    other.goto("/runs/")
    other.wait_for_load_state("networkidle")
    assert set(Claim.objects.filter(queue=queue).values_list("token", flat=True)) == tokens
    other.close()
    press(page, "1", "Enter")
    expect(page.locator("#labelling")).not_to_have_attribute("data-item", str(first))
    press(page, "2", "Enter")
    eventually(page, lambda: len(said(queue, ann)) == 2)
    wait_for_answers(page)
    assert Claim.objects.filter(queue=queue, seated=True).count() == 2
    page.reload()
    shown(page)
    page.wait_for_load_state("networkidle")
    page.goto("/runs/")
    eventually(page, lambda: Claim.objects.filter(queue=queue, seated=True).count() == 1)  # the item in sight is kept, the next one given back


def lit_keys(page: Page) -> list[str]:
    """The keys that the verdict and the questions show, as far as a person sees them."""
    return [text for one in page.locator(".labelling :is([data-choices], .rubric) .kbd:visible").all() for text in [one.inner_text()]]


def answers_of(page: Page) -> list[str]:
    return page.evaluate("[...document.querySelectorAll('.rubric-option:has(:checked)')].map((one) => one.querySelector('span').textContent)")


def test_a_question_and_the_verdict_never_share_a_key(visit: Visit, team: Team, ann: User) -> None:
    KeyMap.objects.create(user=ann, kind=Kind.PAIR, keys={"first": "3", "bad": "9"})
    questions = [("Tone", "scale", []), ("Clear?", "yesno", []), ("Style", "choice", [f"style {number}" for number in range(12)])]
    rubric = [
        {"name": label[:4].lower(), "label": label, "kind": kind, "choices": choices, "required": kind != "choice"}
        for label, kind, choices in questions
    ]
    page = visit(ann, pair_queue(team, 1, rubric=rubric, strength=False))
    shown(page)
    assert lit_keys(page) == ["o", "3", "2", "0", "9"]
    press(page, "2", "o")
    clear = page.get_by_role("group", name="Clear?")
    assert lit_keys(page) == ["1–5", "Esc", "o"]  # the verdict waits, and shows no key that it would not take
    press(page, "3")
    expect(clear.get_by_role("radio").first).to_be_focused()  # an answer leads to the next open question
    expect(page.locator("#announcer")).to_have_text("Clear?, required. Keys 1–2 answer it. Escape goes back to the verdict.")
    press(page, "3", "9", "=")  # of no option: not the verdict's either, whatever the person has mapped
    expect(page.locator("[data-say]")).to_contain_text("“Clear?” has 2 options")
    assert chosen(page) == ["second"]
    press(page, "2", "=")
    assert answers_of(page) == ["3", "No", "style 11"]
    assert lit_keys(page) == ["o", "3", "2", "0", "9"]  # after the last answer the keys are the verdict's again
    press(page, "3")
    assert chosen(page) == ["first"]
    press(page, "o", "o", "o", "1", "o", "Escape", "0")
    assert answers_of(page) == ["3", "No", "style 0"]
    assert chosen(page) == ["tie"]
    press(page, "?")
    expect(page.locator("#key-sheet")).to_contain_text("Options of “Clear?”, while it has the focus")
    press(page, "Escape", "Enter")
    expect(page.locator('[data-state="done"]')).to_be_visible()
    assert Judgement.across_teams.get().rubric == {"tone": 3, "clea": "no", "styl": "style 0"}


def test_auto_advance_submits_the_verdict_when_nothing_required_is_missing(visit: Visit, team: Team, ann: User) -> None:
    queue = pair_queue(team, 4, rubric=[{"name": "tone", "label": "Tone", "kind": "scale", "choices": [], "required": True}])
    first, second, third, fourth = queue.items.order_by("place").values_list("pk", flat=True)
    page = visit(ann, queue)
    expect_item(page, first)
    press(page, "o", "4", "1")
    expect_item(page, first)  # off, as it always was: Enter submits
    press(page, "1")
    page.get_by_label("Auto-advance").check()
    page.wait_for_timeout(350)  # an item that has just come is not answered by a key pressed twice
    press(page, "1")
    expect_item(page, second)
    press(page, "2")
    expect(page.locator("[data-say]")).to_contain_text("Marked only")
    press(page, "Enter")
    expect(page.locator("[data-say]")).to_contain_text("Tone")
    page.wait_for_timeout(350)
    press(page, "3")  # the last required answer
    expect_item(page, third)
    press(page, "u")
    expect_item(page, second)
    assert (chosen(page), answers_of(page)) == (["second"], ["3"])
    page.wait_for_timeout(350)
    press(page, "0")
    expect_item(page, third)
    page.reload()
    expect_item(page, third)
    expect(page.get_by_label("Auto-advance")).to_be_checked()
    page.locator(".rubric-option", has_text="5").click()
    page.wait_for_timeout(350)
    page.get_by_role("button", name="Both bad").click()
    expect_item(page, fourth)
    eventually(page, lambda: said(queue, ann)[1:] == ["tie", "bad"])
