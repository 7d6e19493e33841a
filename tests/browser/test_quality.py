"""Conflicts, review and humans against the reward in a browser, by keyboard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.labelling.labels.models import Item, ItemState, Judgement, JudgementState, Kind, Queue
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import MetricChunk, Run
from tests.conftest import make_member
from tests.hostile import MARK, PAYLOADS
from tests.lab.quality.labelling import judge, queue_of, scored_run

TEXTS = " ".join(payload for payload in PAYLOADS if "\ud800" not in payload and "\x00" not in payload)


@pytest.fixture
def labellers(team: Team, owner: User, sign_in: Callable[[User], None]) -> tuple[User, User]:
    sign_in(owner)
    return make_member("first@example.org", team, Role.ANNOTATOR), make_member("second@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def queue(team: Team, labellers: tuple[User, User]) -> Queue:
    """Twenty-four pairs of a run, of which the first three are conflicts; the reward rises, and people agree with it only at first."""
    first, second = labellers
    run = scored_run(team, [[step / 30 + 0.5, step / 30] for step in range(24)])
    queue = queue_of(run, overlap=2)
    for place, item in enumerate(queue.items.order_by("place")):
        agreed = "a" if place < 12 else "b"
        judge(item, first, agreed, rationale=TEXTS)
        judge(item, second, "tie" if place < 3 else agreed)
    return queue


def settled(queue: Queue) -> dict[int, str]:
    return {item.pk: item.final["verdict"] for item in queue.items.filter(state=ItemState.SETTLED)}


@pytest.mark.feature(65)
def test_conflicts_are_decided_by_keyboard(page: Page, queue: Queue) -> None:
    first, second, third = queue.items.filter(state=ItemState.CONFLICT).order_by("place")
    page.goto(f"/label/{queue.pk}/conflicts/")
    expect(page.locator("h1")).to_have_text(f"Item {first.pk}")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("Choose an answer first.")
    page.keyboard.press("0")
    page.keyboard.press("c")
    page.keyboard.type("12 decided, b")  # keys are inert while typing
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(f"Item {second.pk}")
    assert settled(queue) == {first.pk: "tie"}
    assert Item.across_teams.get(pk=first.pk).final_comment == "12 decided, b"
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(f"Item {third.pk}")
    page.keyboard.press("u")
    expect(page.locator("h1")).to_have_text(f"Item {second.pk}")
    assert settled(queue) == {first.pk: "tie"}
    page.keyboard.press("v")
    expect(page.locator(".item-answer").first).to_contain_text("reward")
    assert page.evaluate(f"window.{MARK}") is None


def test_a_ranking_is_taken_from_a_vote_and_changed(page: Page, team: Team, labellers: tuple[User, User]) -> None:
    first, second = labellers
    item = queue_of(scored_run(team, [[1.0, 0.5, 0.0]]), kind=Kind.RANKING, overlap=2).items.get()
    judge(item, first, "ranked", tiers=[[0], [1], [2]])
    judge(item, second, "ranked", tiers=[[2], [0, 1]])
    page.goto(f"/label/{item.queue_id}/conflicts/")
    page.keyboard.press("2")
    expect(page.locator("[data-tiers-said]")).to_contain_text("2 pairs")
    page.keyboard.press("1")
    expect(page.locator("[data-tiers-said]")).to_contain_text("3 pairs")
    page.keyboard.press("Enter")
    expect(page.locator(".empty")).to_contain_text("All conflicts resolved")
    item.refresh_from_db()
    assert item.final["tiers"] == [[0], [1], [2]]


@pytest.mark.feature(66)
def test_labels_are_reviewed_by_keyboard(page: Page, queue: Queue) -> None:
    one, two, three = Judgement.objects.filter(queue=queue).order_by("pk")[:3]
    page.goto(f"/label/{queue.pk}/review/")
    page.keyboard.press("a")
    expect(page).to_have_url(f"{page.url.split('?')[0]}?judgement={two.pk}")
    page.keyboard.press("j")
    expect(page).to_have_url(f"{page.url.split('?')[0]}?judgement={three.pk}")
    page.keyboard.press("k")
    expect(page).to_have_url(f"{page.url.split('?')[0]}?judgement={two.pk}")
    page.keyboard.press("x")
    expect(page.locator("[data-comment]")).to_be_focused()
    page.keyboard.type("look at the sum")
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(f"{page.url.split('?')[0]}?judgement={three.pk}")
    states = dict(Judgement.across_teams.filter(pk__in=(one.pk, two.pk, three.pk)).values_list("pk", "state"))
    assert states == {one.pk: JudgementState.ACCEPTED, two.pk: JudgementState.RETURNED, three.pk: JudgementState.SUBMITTED}
    page.keyboard.press("u")
    expect(page.locator(".bench-item")).to_contain_text("look at the sum")
    page.keyboard.press("a")
    expect(page.locator(".toast")).to_contain_text("Accepted.")
    assert Judgement.across_teams.get(pk=two.pk).state == JudgementState.ACCEPTED
    page.goto(f"/label/{queue.pk}/review/?state=accepted")
    ticks = page.locator("[name=judgement]")
    ticks.first.click()
    ticks.last.click(modifiers=["Shift"])
    page.get_by_role("button", name="Send back several…").click()
    expect(page.get_by_label("The 2 ticked labels")).to_be_checked()
    page.locator("#send-back-comment").fill("ties, too")
    page.locator("#send-back").get_by_role("button", name="Send back").click()
    expect(page.locator(".toast")).to_contain_text("2 labels sent back to their authors.")
    assert Judgement.across_teams.filter(pk__in=(one.pk, two.pk), state=JudgementState.RETURNED).count() == 2


@pytest.mark.feature(68, 92)
def test_the_overview_draws_humans_against_the_reward_and_opens_the_step(page: Page, queue: Queue) -> None:
    from lab.rollouts.trajectories.models import Rollout

    item = queue.items.all()[0]
    run = Rollout.across_teams.get(pk=item.rollouts[0]).run
    page.goto(f"/runs/{run.pk}/")
    area = page.locator(".humans-area")
    expect(area.locator(".plotly")).to_have_count(1)
    expect(page.locator("#humans .banner")).to_contain_text("it is not proof")
    area.focus()
    page.keyboard.press("End")
    said = page.locator("[data-said]")
    expect(said).to_contain_text("0 % agree")
    expect(said).to_contain_text("evidence, not proof")
    page.get_by_role("button", name="length").click()
    expect(said).to_contain_text("All steps")
    area.focus()
    page.keyboard.press("Home")
    expect(said).to_contain_text("0 % agree")
    page.keyboard.press("Enter")
    expect(page.locator("#step-panel")).to_be_visible()


def test_without_a_reward_curve_the_agreement_chart_is_as_high_as_it_is_drawn(page: Page, queue: Queue) -> None:
    run = Run.across_teams.get()
    MetricChunk.objects.filter(run=run, name="reward").delete()
    page.goto(f"/runs/{run.pk}/humans/")
    expect(page.locator(".humans-area .plotly")).to_have_count(1)
    heights = page.evaluate("['.humans-area', '.humans-area .main-svg'].map((one) => document.querySelector(one).getBoundingClientRect().height)")
    assert heights[0] == heights[1]
