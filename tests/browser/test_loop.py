"""The whole loop with two labellers and a reviewer, each in a browser of their own: a run's answers are labelled by keyboard, a conflict is decided,
a version is frozen, the next run is trained from it by the button, and people say blindly whether it got better. Real worker, real trainings.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, expect

from lab.data.datasets.models import Row, Version
from lab.data.loop.models import Match
from lab.labelling.labels.models import Claim, Item, ItemState, Judgement, Kind, Preference, Purpose, Queue
from lab.lib.processes import ManagedProcess
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Run, Status
from tests.browser.conftest import WebProcess
from tests.browser.training import wait_for_status
from tests.conftest import make_member
from tests.lab.labels.queues import pair_queue
from trainers.data.identity import row_digest

TRAINING_MS = 150_000  # imports of torch and TRL and some steps, on a busy machine
PAIRS, ASKED = 6, 12

SMALL = {
    "policy": {"kind": "tiny", "cold_start": False},
    "training": {"max_steps": 4, "per_device_train_batch_size": 16, "num_generations": 4, "prompts": 32},
    "evaluation": {"prompts": 16, "every": 0},
    "limits": {"save_every": 1, "keep_checkpoints": 4},
}


@pytest.fixture
def ann(team: Team) -> User:
    return make_member("ann@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def ben(team: Team) -> User:
    return make_member("ben@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def browse(browser: Browser, web: WebProcess) -> Iterator[Callable[[User], Page]]:
    """A browser of one's own for each person; a script error in any of them fails the test."""
    contexts: list[BrowserContext] = []
    trouble: list[str] = []

    def signed_in(user: User) -> Page:
        client = Client()
        client.force_login(user)
        context = browser.new_context(base_url=web.url, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        contexts.append(context)
        context.set_default_timeout(20_000)
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": client.cookies[settings.SESSION_COOKIE_NAME].value, "url": web.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: trouble.append(str(error)))
        return page

    yield signed_in
    for context in contexts:
        context.close()
    assert trouble == []


def until(page: Page, holds: Callable[[], Any], what: str, milliseconds: int = 20_000) -> None:
    for _ in range(milliseconds // 200):
        if holds():
            return
        page.wait_for_timeout(200)
    raise AssertionError(f"{what}: not within {milliseconds / 1000:.0f} s")


def label_all(page: Page, queue: Queue, user: User, wanted: Callable[[Item], str]) -> None:
    """Everything the queue has for the user, by keyboard alone; ``wanted`` says which stored side ("a", "b") of an item is better."""
    page.goto(f"/label/{queue.pk}/work/")
    root = page.locator("#labelling")
    for _ in range(queue.items.count()):
        expect(page.locator("[data-stage] .item")).to_be_visible()
        shown = root.get_attribute("data-item") or ""
        item = Item.across_teams.get(pk=int(shown))
        order = Claim.objects.get(item=item, user=user).order
        page.keyboard.press(str(order.index("ab".index(wanted(item))) + 1))
        page.keyboard.press("e")
        page.keyboard.press("Enter")
        expect(root).not_to_have_attribute("data-item", shown)
    expect(page.locator('[data-state="done"]')).to_be_visible()
    until(page, lambda: Judgement.objects.filter(queue=queue, user=user).count() == queue.items.count(), "every label is stored")


def make_queue_of(run: Run, page: Page) -> Queue:
    page.goto(f"/label/new/?run={run.number}&f=phase:is:train")
    page.get_by_label("Name", exact=True).fill("First pairs")
    page.get_by_label("Items", exact=False).and_(page.locator("#id_most")).fill(str(PAIRS))
    page.locator("#id_overlap").fill("2")
    page.wait_for_load_state("networkidle")  # the preview has come: nothing moves under the pointer any more
    page.get_by_role("button", name="Create queue").click()
    page.wait_for_url("**/label/*/")
    queue = Queue.across_teams.get()
    assert (queue.kind, queue.purpose, queue.blind, queue.overlap, queue.items.count()) == (Kind.PAIR, Purpose.LABELS, True, 2, PAIRS)
    mine = set(Rollout.objects.filter(run=run, phase="train").values_list("pk", flat=True))
    assert all(set(item.rollouts) <= mine for item in queue.items.all())
    return queue


def adjudicate(page: Page, conflict: Item, side: str) -> None:
    page.goto(f"/label/{conflict.queue_id}/conflicts/")
    expect(page.locator("[data-bench=conflict]")).to_be_visible()
    order = json.loads("[" + (page.locator("#decide input[name=order]").input_value().strip("[]")) + "]")
    page.keyboard.press(str(order.index("ab".index(side)) + 1))
    page.keyboard.press("Enter")
    expect(page.get_by_text("All conflicts resolved")).to_be_visible()
    conflict.refresh_from_db()
    assert conflict.state == ItemState.SETTLED
    assert conflict.final is not None
    assert conflict.final["verdict"] == side


def freeze(page: Page, queue: Queue) -> Version:
    page.goto("/datasets/new/")
    page.get_by_label("Name", exact=True).fill("Pairs of people")
    page.locator(f'input[name=queue][value="{queue.pk}"]').check()
    page.get_by_role("button", name="Create dataset").click()
    page.get_by_label("Test split (share of prompts)").fill("0")
    page.get_by_role("button", name="Freeze version 1").click()
    page.wait_for_url("**/datasets/versions/*/")
    expect(page.locator("#version-digest")).to_be_visible(timeout=60_000)
    return Version.across_teams.get()


def texts(row: dict[str, Any]) -> tuple[str, str]:
    return row["chosen"][-1]["content"], row["rejected"][-1]["content"]


def test_nobody_is_shown_an_item_twice_however_fast_they_answer(browse: Callable[[User], Page], team: Team, ann: User) -> None:
    queue = pair_queue(team, 12)
    label_all(browse(ann), queue, ann, lambda item: "a")
    assert Preference.objects.filter(judgement__queue=queue).count() == 12


@pytest.mark.feature(93)
@pytest.mark.training
@pytest.mark.timeout(900)
def test_labels_become_the_next_run_and_people_say_whether_it_is_better(
    browse: Callable[[User], Page], start_process: Callable[..., ManagedProcess], team: Team, owner: User, ann: User, ben: User
) -> None:
    start_process("worker", "manage.py", "worker", "--queues", "gpu,analysis")
    reviewer = browse(owner)
    [source] = launch_recipe(team, owner, "grpo", SMALL)
    reviewer.goto(f"/runs/{source.pk}/")
    wait_for_status(reviewer, Status.FINISHED, TRAINING_MS)

    queue = make_queue_of(source, reviewer)
    disputed = queue.items.order_by("place").first()
    assert disputed is not None
    label_all(browse(ann), queue, ann, lambda item: "a")
    label_all(browse(ben), queue, ben, lambda item: "b" if item == disputed else "a")
    states = dict(queue.items.values_list("pk", "state"))
    assert states.pop(disputed.pk) == ItemState.CONFLICT
    assert set(states.values()) == {ItemState.DONE}
    assert Judgement.objects.filter(queue=queue, strength=3).count() == 2 * PAIRS
    adjudicate(reviewer, disputed, "b")

    version = freeze(reviewer, queue)
    wanted = {}
    for item in queue.items.all():
        one, other = (Rollout.across_teams.get(pk=pk) for pk in item.rollouts)
        wanted[item.pk] = (other, one) if item == disputed else (one, other)
    rows = list(Row.objects.filter(version=version, split="train").order_by("place"))
    assert {row.item: texts(row.row) for row in rows} == {pk: (good.completion, bad.completion) for pk, (good, bad) in wanted.items()}
    assert {row.item: row.rollouts for row in rows} == {pk: [good.pk, bad.pk] for pk, (good, bad) in wanted.items()}
    assert all(sorted(row.labellers) == sorted([ann.pk, ben.pk]) for row in rows if row.item != disputed.pk)
    assert [json.loads(line) for line in version.path().read_text().splitlines()] == [row.row for row in rows]

    child = train(reviewer, version, source)
    told = json.loads((child.folder / "dataset.json").read_text())
    assert told["digests"] == [row_digest(row.row, "dpo") for row in rows]
    judge_blindly(reviewer, browse(ben), child, ben)


def train(page: Page, version: Version, source: Run) -> Run:
    page.get_by_role("link", name="Train", exact=True).click()
    page.get_by_label("Learning rate").fill("0.001")
    page.get_by_label("Steps", exact=True).fill("6")
    page.get_by_label("Rows per batch").fill("4")
    page.get_by_label("Held-out prompts").fill("16")
    page.get_by_label("Prompts to compare").fill(str(ASKED))
    page.get_by_role("button", name="Train DPO").click()
    page.wait_for_url("**/runs/*-*/")
    child = Run.across_teams.exclude(pk=source.pk).get()
    sampled_at = sorted(Rollout.across_teams.filter(pk__in=[pk for row in version.rows.all() for pk in row.rollouts]).values_list("step", flat=True))
    policy = child.spec["policy"]
    assert (policy["kind"], policy["folder"]) == ("run", str(source.folder))
    assert sampled_at[0] - 1 <= policy["checkpoint"] <= sampled_at[-1]
    assert child.spec["dataset"]["path"] == str(version.path())
    assert child.trainer == "dpo"
    wait_for_status(page, Status.FINISHED, TRAINING_MS)
    child.refresh_from_db()
    assert (child.status, child.step) == (Status.FINISHED, 6)
    return child


def judge_blindly(lead: Page, labeller: Page, child: Run, user: User) -> None:
    """The match comes by itself; the labeller prefers the child's answer in all but two prompts, and the page says how often."""
    until(lead, lambda: Match.objects.filter(child=child, queue__isnull=False).exists(), "the blind match is queued", 60_000)
    queue = Match.objects.get(child=child).queue
    assert queue is not None
    assert (queue.purpose, queue.blind) == (Purpose.AB, True)
    items = list(queue.items.order_by("place"))
    assert 10 <= len(items) <= ASKED
    newest = set(Rollout.objects.filter(run=child, phase="heldout", step=child.step).values_list("pk", flat=True))
    assert all(len(newest & set(item.rollouts)) == 1 for item in items)
    lost = {item.pk for item in items[:2]}

    def better(item: Item) -> str:
        ours = item.rollouts[0] in newest
        return "a" if ours != (item.pk in lost) else "b"

    label_all(labeller, queue, user, better)
    expect(labeller.locator("[data-stage]")).not_to_contain_text(child.name)
    wins = Preference.objects.filter(judgement__queue=queue, chosen__in=newest).count()
    assert wins == len(items) - 2
    lead.goto(f"/runs/{child.pk}/")
    panel = lead.locator("#wins")
    expect(panel).to_contain_text(f"{wins} wins")
    expect(panel).to_contain_text(f"{wins / len(items):.0%}".replace("%", " %"))
    expect(panel).to_contain_text("2 losses")
