"""A dataset in the browser: the preview follows the rule, a version is built by a real worker while the page waits, a file is brought in."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lab.data.datasets.models import Dataset, Version, VersionState
from lab.labelling.labels.models import Queue
from lab.lib.processes import ManagedProcess
from lab.teams.accounts.models import Team, User
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.datasets.labelled import groups_of, judge_all, queue_of, run_with


@pytest.fixture
def queue(team: Team, owner: User) -> Queue:
    made = queue_of(team, owner, groups_of(run_with(team, steps=4)))
    judge_all(made, [owner])
    return made


@pytest.mark.feature(110)
def test_a_version_is_frozen_while_the_page_waits_and_compared_with_the_next(
    page: Page, sign_in: Callable[[User], None], owner: User, queue: Queue, start_process: Callable[..., ManagedProcess]
) -> None:
    sign_in(owner)
    page.goto("/datasets/")
    page.keyboard.press("n")
    page.get_by_label("Name").fill("Good answers")
    page.locator(f"input[name=queue][value='{queue.pk}']").check()
    page.get_by_role("button", name="Create dataset").click()
    preview = page.locator("#preview")
    expect(preview.locator(".facts")).to_contain_text("Items processed")
    page.get_by_label("Test split (share of prompts)").fill("0")
    page.get_by_text("Policy age").click()
    page.get_by_label("Last step").fill("3")
    page.get_by_label("Last step").press("Tab")
    expect(preview).to_contain_text("answers of other steps")
    expect(page).to_have_url(re.compile("last_step=3"))
    page.reload()
    expect(page.get_by_label("Last step")).to_have_value("3")

    page.keyboard.press("f")
    expect(page.get_by_text("Waiting for a worker")).to_be_visible()
    start_process("worker", "manage.py", "worker", "--queues", "analysis", LAB_SWEEP_SECONDS="1")
    expect(page.locator("#version-digest")).to_be_visible(timeout=40_000)
    version = Version.across_teams.get()
    assert (version.state, version.counts["train"]) == (VersionState.READY, 6)
    expect(page.locator("#version-digest")).to_have_text(version.digest)
    expect(page.locator(".pair-row")).to_have_count(6)
    expect(page.locator(".since")).to_contain_text("the same rows")

    page.goto(f"/datasets/{version.dataset_id}/")
    page.get_by_text("Policy age").scroll_into_view_if_needed()
    page.get_by_label("Last step").fill("")
    page.get_by_label("Last step").press("Tab")
    page.locator("#preview").get_by_role("link", name="2 rows differ from v1").click()
    expect(page.locator(".difference.added")).to_have_count(2)


def test_a_file_is_brought_in_and_its_texts_stay_texts(page: Page, sign_in: Callable[[User], None], owner: User, tmp_path: Path) -> None:
    file = tmp_path / "theirs.jsonl"
    rows = [
        {"chosen": f"\n\nHuman: {n}?\n\nAssistant: {stored(text)}", "rejected": f"\n\nHuman: {n}?\n\nAssistant: no"}
        for n, text in enumerate(PAYLOADS[:12])
    ]
    file.write_text("\n".join([*map(json.dumps, rows), "broken"]), encoding="utf-8")
    sign_in(owner)
    page.goto("/datasets/import/")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload and review").click()
    expect(page.get_by_text("Recognized as HH-RLHF")).to_be_visible()
    expect(page.locator(".broken")).to_contain_text("13")
    expect(page.locator(".pair-row")).to_have_count(3)
    page.locator("#id-format").select_option("pairs")
    expect(page.locator("#id-column-prompt")).to_have_value("")
    expect(page.locator("#id-column-chosen")).to_have_value("chosen")
    page.locator("#id-format").select_option("hh-rlhf")
    expect(page.locator(".column-map")).to_contain_text("the better answer")
    page.get_by_role("button", name="Import 12 rows").click()
    expect(page.get_by_text("1 row is invalid")).to_be_visible()
    page.get_by_label("Skip this row").check()
    page.get_by_role("button", name="Import 12 rows").click()
    expect(page.get_by_text("Waiting for a worker")).to_be_visible()
    assert Dataset.across_teams.get().name == "theirs"
    assert page.evaluate(f"window.{MARK}") is None


def test_what_an_import_leaves_out_or_would_ignore_is_seen_before_it_is_stored(
    page: Page, sign_in: Callable[[User], None], owner: User, tmp_path: Path
) -> None:
    file = tmp_path / "judged.jsonl"
    rows = [{"id": n, "question": f"{n} + 1?", "one": str(n), "two": str(n + 1), "verdict": "two"} for n in range(5)]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    sign_in(owner)
    page.goto("/datasets/import/")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload and review").click()
    page.locator("#id-format").select_option("pairs")
    page.locator("#id-column-chosen").select_option("one")
    page.locator("#id-column-rejected").select_option("two")
    expect(page.get_by_text("which answer is better and would be ignored")).to_be_visible()
    page.locator("#id-format").select_option("compared")
    page.locator("#id-column-first").select_option("one")
    page.locator("#id-column-second").select_option("two")
    expect(page.get_by_text("Missing: Value that prefers the first answer")).to_be_visible()
    page.get_by_label("Value that prefers the first answer").fill("one")
    page.get_by_label("Value that prefers the second answer").fill("two")
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator(".pair-row")).to_have_count(3)
    expect(page.locator(".pair-answer.chosen").first).to_contain_text("1")
    expect(page.locator(".left-columns")).to_have_text(re.compile("id 5 rows"))
    page.get_by_role("button", name="Import 5 rows").click()
    expect(page.get_by_text("1 column is unused: id")).to_be_visible()
    page.get_by_label("Import without this column").check()
    page.get_by_role("button", name="Import 5 rows").click()
    expect(page.get_by_text("Waiting for a worker")).to_be_visible()
    assert Version.across_teams.get().rule["import"]["left_out"] == ["id"]
