"""Tokens coloured by what methods gave them."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Status
from tests.browser.training import add
from tests.lab.supervisor.spools import make_run, rollout, started
from trainers.contract.arrays import pack_array

SPEC = {"recipe": "grpo", "training": {"trainer": "grpo"}, "methods": [{"name": "siren"}]}


def test_token_weights_and_advantages_are_views_of_the_tokens(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    run = make_run(team, status=Status.RUNNING, spec=SPEC)
    given = {"token_advantages": pack_array([1.0, -1.0, 0.25, 0.0], "e"), "weights": pack_array([0.0, 1.0, 2.0, 1.0], "e")}
    add(run, [started(), rollout(sample=0, **given), rollout(sample=1)])
    page.goto(f"/runs/{run.pk}/rollouts/")
    page.get_by_role("link", name="Token advantage").click()
    units = page.locator("[data-rollout]").first.locator("[data-unit]")
    expect(units.nth(0)).to_have_class("unit level-9")
    expect(units.nth(1)).to_have_class("unit level-9 negative")
    expect(page.locator("[data-rollout]").nth(1).locator("[data-unit]").first).to_have_class("unit")  # it has none of its own
    units.nth(1).hover()
    expect(page.locator("#token-card")).to_contain_text("advantage-1")
    page.get_by_role("link", name="Token weight").click()
    expect(units.nth(0)).to_have_class("unit level-0")
    expect(units.nth(2)).to_have_class("unit level-9")
    expect(page.locator("#token-legend")).to_contain_text("2+")
    assert page.url.endswith("tokens=weight")
