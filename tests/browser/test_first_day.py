"""A new person's first run: from the set-up link through a launch, a stop and a resume to the end, with a real worker and a real trainer."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.lib.processes import ManagedProcess
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts import setup_link
from lab.training.runs.models import Run, Status
from tests.browser.conftest import until
from tests.browser.training import expect_complete, wait_for_status

TRAINING_MS = 300_000  # imports of torch and TRL and some steps, on a busy machine
STEPS = 40  # some 10 s of training: far from done when the stop comes after the third
BATCH = 16


def sign_up(page: Page) -> None:
    page.goto(setup_link.create_setup_link() or "")
    page.get_by_label("Your name").fill("Ada Byron")
    page.get_by_label("E-mail address").fill("ada@example.org")
    page.get_by_label("Password").fill("a long enough secret")
    page.get_by_label("Team name").fill("Engines")
    page.get_by_role("button", name="Create the lab").click()
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()


def launch(page: Page) -> Run:
    page.goto("/launch/grpo/")
    page.get_by_role("radio", name="Tiny, untrained").check()  # needs no cold start; what is learnt does not matter here
    page.get_by_label("Steps", exact=True).fill(str(STEPS))
    page.get_by_label("Per-device batch size").fill(str(BATCH))
    page.get_by_text("Held-out evaluation", exact=True).click()
    page.get_by_label("Held-out prompts").fill("8")
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*-*/")
    return Run.across_teams.get()


@pytest.mark.training
@pytest.mark.timeout(900)
def test_launch_watch_stop_and_save_resume_finish(page: Page, start_process: Callable[..., ManagedProcess]) -> None:
    start_process("worker", "manage.py", "worker")
    sign_up(page)
    run = launch(page)
    page.evaluate("window.loadedOnce = true")

    step = page.locator("[data-live=step]")
    until(page, "Number(document.querySelector('[data-live=step]')?.textContent) >= 3", timeout=TRAINING_MS)
    expect(page.locator("[data-panel=reward] .chart-plot")).to_be_visible()
    page.get_by_role("button", name="Stop and save").click()
    wait_for_status(page, Status.STOPPED, TRAINING_MS)
    expect(page.get_by_role("button", name="Resume")).to_be_enabled()
    run.refresh_from_db()
    stopped_at = run.step
    assert run.status == Status.STOPPED
    assert 3 <= stopped_at < STEPS
    assert (run.folder / f"checkpoints/checkpoint-{stopped_at}").is_dir()

    page.get_by_role("button", name="Resume").click()
    expect(step).to_have_text(str(STEPS), timeout=TRAINING_MS)
    wait_for_status(page, Status.FINISHED, TRAINING_MS)
    expect_complete(page, run)
    assert page.evaluate("window.loadedOnce") is True

    run.refresh_from_db()
    trained = Rollout.objects.current().filter(run=run, phase="train")
    assert list(run.attempts.values_list("from_step", flat=True)) == [0, stopped_at]
    assert trained.count() == BATCH * STEPS
    assert sorted(trained.values_list("step", flat=True).distinct()) == list(range(1, STEPS + 1))

    page.get_by_label("Parts of the run").get_by_role("link", name="Rollouts").click()
    expect(page.locator("#feed")).to_contain_text("group")
    page.get_by_text("Entropy", exact=True).click()
    expect(page.locator("#feed .unit").first).to_be_visible()
