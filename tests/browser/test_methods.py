"""From the catalogue of methods to a stack that can be launched, in a browser: search, a method's page, cards, a conflict and its way out."""

import json
from collections.abc import Callable

from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.catalog.models import RecipeVersion
from lab.training.runs.models import Run

CARD = '[id="id-stages.0.method.{}"]'


def spec_of(page: Page) -> dict[str, object]:
    """The spec as the check panel shows it."""
    text = page.locator("#launch-spec").text_content()
    return dict(json.loads(text or "{}"))


def test_from_the_catalogue_to_a_stack_without_a_conflict(page: Page, owner: User, team: Team, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/")
    page.get_by_role("link", name="Methods").click()
    expect(page.get_by_role("heading", name="Methods", level=1)).to_be_visible()
    page.wait_for_load_state()  # the heading may stand before the script that hears the key
    page.keyboard.press("/")
    page.keyboard.type("risk-sens")
    expect(page.locator(".method-card")).to_have_count(1)
    expect(page).to_have_url("/t/reasoning/methods/?q=risk-sens")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.locator("#facet-trainer-grpo").click()
    expect(page).to_have_url("/t/reasoning/methods/?q=risk-sens&trainer=grpo")
    page.reload()
    expect(page.get_by_role("searchbox")).to_have_value("risk-sens")
    page.get_by_role("link", name="Risk-sensitive GRPO").click()
    assert page.locator("math").first.bounding_box()["height"] > 15  # drawn, not only there
    expect(page.locator("#stacking").locator("..")).to_contain_text("how advantages are computed")
    page.get_by_role("link", name="Add to recipe").click()

    expect(page.locator(CARD.format("rs-grpo"))).to_be_visible()
    expect(page.get_by_text("Ready to launch")).to_be_visible()
    page.get_by_label("Add a method").fill("siren")
    page.get_by_label("Add a method").press("Enter")
    expect(page.locator(CARD.format("siren"))).to_be_visible()
    expect(page.locator("#announcer")).to_have_text("siren added")
    expect(page.get_by_label("Add a method")).to_be_focused()
    page.get_by_label("Risk (beta)").fill("3")
    page.get_by_role("button", name="Move siren up").press("Enter")
    expect(page.locator(".stack-card").first).to_contain_text("siren")
    expect(page.get_by_role("button", name="Move siren up")).to_be_focused()
    expect(page.get_by_label("Risk (beta)")).to_have_value("3")

    page.get_by_label("Base", exact=True).select_option("rloo")
    problem = page.locator("[data-error-for='stages.0.method.rs-grpo']")
    expect(problem).to_contain_text("Both rloo and rs-grpo decide the advantages")
    page.locator("#preflight").get_by_role("link", name="rs-grpo", exact=True).click()
    expect(page.locator(CARD.format("rs-grpo"))).to_be_focused()
    page.get_by_label("Base", exact=True).select_option("gspo")
    expect(problem).to_be_empty()
    expect(page.get_by_text("Ready to launch")).to_be_visible()
    stacked = [{"name": "siren", "config": {}}, {"name": "rs-grpo", "config": {"risk": 3.0}}]
    assert spec_of(page)["methods"] == stacked
    expect(page.locator("#launch-command")).to_contain_text("--base gspo \\\n  --method siren \\\n  --method rs-grpo:risk=3.0")

    page.get_by_text("Save as recipe").click()
    page.get_by_label("Recipe", exact=True).fill("Risk and entropy")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("heading", name="Risk and entropy, version 1")).to_be_visible()
    assert RecipeVersion.objects.of(team).get().methods == ["gspo", "siren", "rs-grpo"]
    expect(page.get_by_text("Ready to launch")).to_be_visible()
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*-*/")
    run = Run.across_teams.get()
    assert (run.name, run.spec["base"]["name"], run.spec["methods"]) == ("Risk and entropy", "gspo", stacked)
    page.goto("/methods/?q=siren")
    expect(page.locator(".method-card").first).to_contain_text("1 run")


def test_what_is_typed_stays_while_the_results_change(page: Page, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/methods/")
    search = page.get_by_role("searchbox")
    search.press_sequentially("entropy regu", delay=90)  # slower than the pause before a search
    expect(search).to_have_value("entropy regu")
    expect(search).to_be_focused()
    expect(page).to_have_url("/t/reasoning/methods/?q=entropy+regu")
    search.fill("there is no such method")
    expect(page.get_by_role("heading", name="No results")).to_be_visible()
    page.get_by_role("link", name="Show all methods").click()
    expect(page.locator(".method-card").nth(5)).to_be_visible()


def test_a_mistyped_method_says_what_is_near_and_keeps_the_form(page: Page, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/launch/grpo/")
    page.get_by_label("Steps", exact=True).fill("44")
    page.get_by_label("Add a method").fill("rs-gpro")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#announcer")).to_have_text("The settings can be launched")  # the check that follows has ended
    problem = page.locator("[data-error-for='stages.0.add']")
    expect(problem).to_contain_text("Did you mean rs-grpo?")
    expect(page.get_by_label("Add a method")).to_have_value("rs-gpro")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390  # with the table of rewards that the check has brought
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_label("Add a method").fill("rs-grpo")
    expect(problem).to_be_empty()
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Remove rs-grpo").click()
    expect(page.locator(".stack-card")).to_have_count(0)
    expect(page.get_by_label("Add a method")).to_be_focused()
    expect(page.get_by_label("Steps", exact=True)).to_have_value("44")
    assert Run.across_teams.count() == 0


def test_it_works_without_scripts(without_scripts: Page, team: Team) -> None:
    page = without_scripts
    page.goto("/methods/?hook=advantages")
    page.get_by_role("searchbox").fill("risk-sensitive")
    page.get_by_role("button", name="Search", exact=True).click()
    page.locator(".method-card a").first.click()
    page.get_by_role("link", name="Add to recipe").click()
    page.get_by_label("Add a method").fill("siren")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Move siren up").click()
    page.get_by_role("button", name="Launch", exact=True).click()
    assert [method["name"] for method in Run.objects.of(team).get().spec["methods"]] == ["siren", "rs-grpo"]
