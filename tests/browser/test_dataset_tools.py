"""A dataset tool in the browser: the preview follows the settings, the version is made while the page waits, and DPO is offered on it."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from lab.data.datasets.freezing import build_version
from lab.data.datasets.models import Dataset, Form, Row, Source, Version, VersionState
from lab.teams.accounts.models import Team, User
from tests.browser.page_checks import AXE_SCRIPT, find_cuts, find_violations


def test_from_right_answers_to_pairs_with_the_preview_beside_the_settings(
    page: Page, sign_in: Callable[[User], None], team: Team, owner: User
) -> None:
    dataset = Dataset.objects.create(team=team, name="Sums", form=Form.COMPLETION, source=Source.IMPORT)
    source = Version.objects.create(dataset=dataset, number=1, state=VersionState.READY, digest="0" * 64)
    for place, answer in enumerate(("Take 3.\nAdd 4.\nSo 7.", "Take 5.\nAdd 1.\nSo 6.", "Hello.")):
        row = {"prompt": [{"role": "user", "content": f"Question {place}?"}], "completion": [{"role": "assistant", "content": answer}]}
        Row.objects.create(version=source, place=place, split="train", row=row, digest=str(place) * 64)
    page.add_init_script(path=AXE_SCRIPT)
    sign_in(owner)
    page.goto(f"/datasets/versions/{source.pk}/")
    page.get_by_role("link", name="Apply a tool").click()
    preview = page.locator("#preview")
    expect(preview.locator(".facts")).to_contain_text("Rows made2")
    page.get_by_label("Pairs per answer").fill("2")
    page.get_by_label("Pairs per answer").press("Tab")
    expect(preview.locator(".facts")).to_contain_text("Rows made4")
    expect(preview).to_contain_text("answers with fewer than two steps")
    expect(preview.locator(".pair-row")).to_have_count(4)
    assert [*find_violations(page), *find_cuts(page)] == []
    page.get_by_label("Seed").fill("")
    page.get_by_role("button", name="Make the version").click()
    expect(page.get_by_text("Nothing was made.")).to_be_visible()
    page.get_by_label("Seed").fill("1")
    page.get_by_role("button", name="Make the version").click()
    expect(page.get_by_text("Waiting for a worker")).to_be_visible()
    version = Version.across_teams.exclude(pk=source.pk).get()
    build_version(version.pk)
    expect(page.locator(".pair-row")).to_have_count(4)
    expect(page.get_by_text("made by a tool").first).to_be_visible()
    assert [*find_violations(page), *find_cuts(page)] == []
    page.get_by_role("link", name="Train", exact=True).click()
    expect(page.locator("a.goal", has_text="DPO").first).to_be_visible()
