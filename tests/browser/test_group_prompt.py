"""The group page and the prompt page in a browser: keys, the diff, scrolling together, charts, hostile text."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.rollouts.trajectories.models import Prompt
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.conftest import until
from tests.browser.training import add
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, rollout, started
from trainers.contract.events import Message

ASKED = [Message("user", "Count to a hundred")]


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    sign_in(owner)
    run = make_run(team, status=Status.FINISHED, spec={"recipe": "grpo", "training": {"trainer": "grpo"}})
    long = "\n".join(str(number) for number in range(100))
    texts = {0: f"{long} end", 1: f"{long}\nend", 2: long.replace("50", "fifty"), 3: "no"}
    rewards = {0: 0.5, 1: 0.25, 2: 1.0, 3: 0.0}
    add(
        run,
        [
            started(),
            *(
                rollout(
                    step,
                    group,
                    sample,
                    prompt=ASKED,
                    reference="100",
                    completion=texts[sample],
                    reward=rewards[sample],
                    advantage=rewards[sample] - 0.4375,
                )
                for step in (1, 2)
                for group in (0, 1)
                for sample in range(4)
            ),
        ],
    )
    return run


def group_url(run: Run, step: int = 1, group: int = 0) -> str:
    return f"/runs/{run.pk}/groups/train/{step}/{group}/"


@pytest.mark.feature(37)
def test_keys_walk_members_groups_and_steps_and_switch_the_diff(page: Page, run: Run) -> None:
    page.goto(group_url(run))
    members = page.locator(".member")
    expect(members).to_have_count(4)
    assert [members.nth(place).get_attribute("id") for place in range(4)] == ["member-2", "member-0", "member-1", "member-3"]
    page.keyboard.press("n")
    expect(members.nth(0)).to_be_focused()
    page.keyboard.press("n")
    page.keyboard.press("w")
    expect(page.locator("#columns")).to_have_attribute("data-view", "diff")
    expect(members.nth(1)).to_be_focused()  # still where the reader was
    expect(members.nth(1).locator("del").first).to_have_text("fifty")
    assert page.url.endswith("?view=diff")
    page.locator("#target").select_option("0")
    expect(page.locator("#columns")).to_have_attribute("data-target", "0")
    expect(members.nth(2).locator("ins")).to_have_count(1)  # a line end for a space
    page.locator("#ignore-space").check()
    expect(members.nth(2).locator("ins")).to_have_count(0)
    page.reload()
    expect(page.locator("#ignore-space")).to_be_checked()
    expect(page.locator("#target")).to_have_value("0")
    page.keyboard.press("j")
    page.wait_for_url("**/groups/train/1/1/?view=diff&space=ignore")
    page.keyboard.press("]")
    page.wait_for_url("**/groups/train/2/1/*")
    page.keyboard.press("n")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rollouts/*/")


@pytest.mark.feature(45)
def test_columns_scroll_together_until_they_are_let_go(page: Page, run: Run) -> None:
    page.goto(group_url(run))
    tops = "[...document.querySelectorAll('.column-text')].map((one) => Math.round(one.scrollTop))"
    page.locator(".column-text").nth(0).evaluate("(one) => { one.scrollTop = 500; }")
    until(page, f"{tops}[1] > 400")
    page.locator("#scroll-lock").uncheck()
    assert "lock=0" in page.url
    page.wait_for_timeout(200)
    page.locator(".column-text").nth(0).evaluate("(one) => { one.scrollTop = 0; }")
    page.wait_for_timeout(200)
    assert page.evaluate(tops)[:2] == [0, page.evaluate(tops)[1]]
    assert page.evaluate(tops)[1] > 400


def test_tokens_are_coloured_in_the_columns(page: Page, run: Run) -> None:
    page.goto(group_url(run) + "?view=entropy")
    expect(page.locator("#legend")).to_contain_text("Entropy")
    expect(page.locator("#member-2 [data-units] .level-9").first).to_be_visible()
    page.keyboard.press("o")
    expect(page.locator("#legend")).to_contain_text("log-probability", ignore_case=True)
    page.keyboard.press("o")
    expect(page.locator("#columns")).to_have_attribute("data-view", "")


def test_the_charts_of_a_prompt_draw_its_runs_and_hide_them(page: Page, run: Run) -> None:
    page.goto(f"/prompts/{Prompt.across_teams.get().pk}/")
    expect(page.locator("#story .scatterlayer .trace").first).to_be_visible()
    drawn = page.locator('#story [data-measure="passed"] .scatterlayer .trace')
    expect(drawn).to_have_count(1)
    page.locator("[data-series]").click()
    expect(drawn).to_have_count(0)
    assert "hide=1-train" in page.url
    page.reload()
    expect(page.locator("[data-series]")).to_have_attribute("aria-pressed", "false")


def test_ranges_of_rewards_are_drawn_as_long_as_they_do_not_hide_each_other(page: Page, team: Team, run: Run) -> None:
    for _ in range(3):
        add(make_run(team, status=Status.FINISHED), [started(), *(rollout(step, prompt=ASKED, reference="100", reward=0.5) for step in (1, 2))])
    page.goto(f"/prompts/{Prompt.across_teams.get().pk}/")
    reward = page.locator('#story [data-measure="mean"]')
    expect(reward.locator(".scatterlayer .trace")).to_have_count(4)
    expect(reward.locator("[data-statistic]")).to_have_text("mean")
    page.locator("[data-series]").first.click()
    expect(reward.locator(".scatterlayer .trace")).to_have_count(9)  # of each series the mean and the two edges of its range
    expect(reward.locator("[data-statistic]")).to_have_text("mean, from least to most")


def test_no_page_grows_wider_than_a_phone(page: Page, run: Run) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for address in (group_url(run), f"/runs/{run.pk}/groups/", f"/prompts/{Prompt.across_teams.get().pk}/", f"/prompts/?run={run.number}"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address


def test_nothing_a_model_wrote_runs(page: Page, team: Team, run: Run) -> None:
    texts = [stored(payload) for payload in PAYLOADS]
    hostile = make_run(team, status=Status.FINISHED, name=PAYLOADS[1], spec={"training": {"trainer": "grpo"}})
    prompt = [Message("user", PAYLOADS[0])]
    add(
        hostile,
        [
            started(),
            *(
                rollout(1, 0, sample, prompt=prompt, reference=PAYLOADS[2], completion=text, reward=float(-sample), rewards={text[:40] or "x": 1.0})
                for sample, text in enumerate(texts)
            ),
        ],
    )
    prompt_id = Prompt.across_teams.get(text=PAYLOADS[0]).pk
    here = group_url(hostile)
    for address in (
        here,
        f"{here}?view=diff",
        f"{here}?view=entropy",
        f"/runs/{hostile.pk}/groups/",
        f"/prompts/{prompt_id}/",
        f"/prompts/?run={hostile.number}",
    ):
        page.goto(address)
        page.wait_for_load_state("networkidle")
        assert page.evaluate(f"window.{MARK}") is None, address
        assert page.locator(".completion img, .completion iframe, .completion script, .prompt-text img").count() == 0
