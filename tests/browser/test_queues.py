"""Making a queue in the browser, and finding one's way from the list by keys."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.labelling.labels.models import Queue
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.hostile import MARK, PAYLOADS
from tests.lab.supervisor.spools import make_run, rollout, started, store


@pytest.fixture
def run(team: Team) -> Run:
    run = make_run(team)
    texts = [f"{at} {payload}" for at, payload in enumerate(PAYLOADS[:8])]
    events = [
        rollout(step, 0, at, completion=text, reward=float(at), rewards={"correct": float(at > 3)})
        for step in range(4)
        for at, text in enumerate(texts)
    ]
    store(run, started(), *events)
    return run


def test_a_queue_is_made_from_the_table_and_labelling_starts_by_a_key(page: Page, sign_in: Callable[[User], None], owner: User, run: Run) -> None:
    sign_in(owner)
    page.goto(f"/rollouts/?run={run.number}&f=step:lt:3")
    page.keyboard.press("l")
    preview = page.locator("#preview")
    expect(preview).to_contain_text("3 pairs")
    expect(preview.locator(".sample")).to_have_count(3)

    page.locator("#id_kind").select_option("ranking")
    expect(preview).to_contain_text("3 rankings")
    expect(page).to_have_url(re.compile("kind=ranking"))
    expect(page.locator("#id_how")).to_be_hidden()
    page.reload()
    expect(page.locator("#id_kind")).to_have_value("ranking")
    page.locator("#id_kind").select_option("pair")
    page.locator("#id_how").select_option("time")
    page.locator("#id_late_from").fill("")
    expect(preview).to_contain_text("Enter a step.")
    page.locator("#id_how").select_option("group")
    page.locator("#id_gold").fill("2")
    page.locator("#id_gold_by").select_option("correct")
    expect(preview).to_contain_text("2 gold")

    page.locator("#id_guidelines").fill(f"# Rules\n\n{PAYLOADS[0]} **fair**")
    expect(page.locator("#guidelines-preview strong")).to_have_text("fair")
    page.get_by_role("button", name="Add question").click()
    page.locator("[name=rubric_label]").fill("Polite?")
    page.locator("#id_name").fill("")
    page.get_by_role("button", name="Create queue").click()
    expect(page.get_by_text("Enter a name for the queue.")).to_be_visible()
    expect(page.locator("#id_name")).to_be_focused()
    expect(page.locator("[name=rubric_label]")).to_have_value("Polite?")
    expect(page.locator("#id_gold")).to_have_value("2")
    page.locator("#id_name").fill("Mine")
    page.get_by_role("button", name="Create queue").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Mine")
    made = Queue.across_teams.get()
    assert [one["label"] for one in made.rubric] == ["Polite?"]
    expect(page.locator("#forecast")).to_contain_text("more labels until it is narrower than 10 points")
    page.get_by_role("link", name="30 points").click()
    expect(page.locator("#forecast")).to_contain_text("narrower than 30 points")
    expect(page).to_have_url(re.compile("width=0.3"))
    page.get_by_role("link", name="Gold", exact=True).click()
    expect(page.locator("#items tbody tr")).to_have_count(2)
    expect(page).to_have_url(re.compile("state=gold"))

    page.goto("/label/")
    expect(page.locator(".to-label [data-row]").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/label/{made.pk}/work/"))
    assert page.evaluate(f"window.{MARK}") is None
