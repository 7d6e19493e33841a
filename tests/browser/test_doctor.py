"""The doctor in a browser: its panel on the overview, and the way from a finding to the rollouts it is about."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Status
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, measured, rollout, started, store


@pytest.fixture
def me(owner: User, sign_in: Callable[[User], None]) -> User:
    sign_in(owner)
    return owner


@pytest.mark.feature(105)
def test_a_finding_on_the_overview_leads_to_its_rollouts(page: Page, team: Team, me: User) -> None:
    run = make_run(team, status=Status.RUNNING)
    values = {"loss": 0.0, "grad_norm": 0.0, "reward": 0.0, "frac_reward_zero_std": 1.0}
    store(run, started(), *(rollout(30, sample=sample) for sample in range(4)), *(measured(step, values=values) for step in range(1, 31)))
    page.goto(f"/runs/{run.pk}/")
    panel = page.locator("#doctor")
    finding = panel.locator("#finding-zero-variance")
    expect(finding).to_contain_text("100 % of the groups had zero reward variance over steps 21 to 30.")
    finding.get_by_text("Evidence and what to try").click()
    expect(finding.get_by_text("So in nearly every group all members fail.")).to_be_visible()
    page.evaluate("htmx.trigger('#doctor', 'load')")  # what comes every minute leaves it unfolded
    page.wait_for_timeout(500)
    expect(finding.get_by_text("So in nearly every group all members fail.")).to_be_visible()
    panel.get_by_role("link", name="All checks").click()
    expect(page.get_by_role("heading", name="Passed")).to_be_visible()
    expect(page.get_by_text("This run does not log logps/chosen and logps/rejected.")).to_be_visible()


def test_names_of_rewards_run_nothing(page: Page, team: Team, me: User) -> None:
    run = make_run(team, status=Status.FINISHED, name=stored(PAYLOADS[0])[:90])
    rewards = {stored(payload)[:90]: 0.001 for payload in PAYLOADS[1:6]} | {PAYLOADS[0]: 1.0}
    events = [rollout(1, group, sample, rewards=rewards) for group in range(10) for sample in range(4)]
    store(run, started(), *events, *(measured(step) for step in range(1, 31)))
    for address in (f"/runs/{run.pk}/doctor/", f"/runs/{run.pk}/"):
        page.goto(address)
        expect(page.locator("#finding-one-component")).to_contain_text("One component makes up")
        assert page.evaluate(f"window.{MARK}") is None
