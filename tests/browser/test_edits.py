"""Editing a running run in its page: the dialog with an error beside its input, what waits, and the mark once the trainer reports it."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.edits.models import RunEdit
from tests.browser.training import add, open_overview, running
from tests.lab.supervisor.spools import steps
from trainers.contract.events import Edited
from trainers.contract.spec import parse_spec

RATE = "training.learning_rate"
SPEC = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo", "max_steps": 200}, "output": "-"}


@pytest.mark.feature(29, 104)
def test_an_edit_is_asked_for_in_a_dialog_and_marked_when_it_holds(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    run = running(team, spec=parse_spec(SPEC).model_dump(mode="json"))
    open_overview(page, run)
    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Edit run").click()
    dialog = page.get_by_role("dialog", name="Edit run")
    rate = dialog.get_by_label("Learning rate")
    expect(rate).to_have_value("0.0003")
    expect(rate).to_be_focused()
    rate.fill("2")
    dialog.get_by_label("Reason").fill("loss spikes")
    dialog.get_by_role("button", name="Apply at the next step").click()
    expect(dialog.locator(f"[data-error-for='{RATE}']")).to_contain_text("Must be at most 1")
    expect(rate).to_be_focused()
    rate.fill("1e-5")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("#edits-pending")).to_contain_text("learning rate 0.0003 → 1e-05")
    edit = RunEdit.objects.get(run=run)
    add(run, [Edited(attempt=1, time=1.7e9, key=edit.key, step=4, changes=edit.changes, before=edit.before), *steps(4, 6)])
    expect(page.locator("#marks-key .edit")).to_have_text(f"edit by {owner} from step 4: learning rate 0.0003 → 1e-05 (loss spikes)")
    expect(page.locator("[data-panel=reward] .annotation-text")).to_have_text("◆")
    expect(page.locator("#edits-pending .banner")).to_have_count(0)
    assert page.evaluate("window.loadedOnce") is True
    page.get_by_role("link", name="Config", exact=True).click()
    expect(page.locator("#edits-list").get_by_role("button", name="Fork without the edit")).to_be_visible()
