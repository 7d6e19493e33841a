"""Signing in with a second factor and with a key, and a session that is ended from another browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from lab.teams.accounts.models import Team, User
from tests.browser.conftest import WebProcess
from tests.lab.accounts.signing_in import PASSWORD, code_of

KEY = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True, "isUserVerified": True}


@pytest.fixture
def by_name(browser: Browser, web: WebProcess) -> Iterator[BrowserContext]:
    """Browsers offer security keys to names, not to numbers: the lab as localhost."""
    made = browser.new_context(base_url=web.url.replace("127.0.0.1", "localhost"), viewport={"width": 1440, "height": 900})
    made.set_default_timeout(30_000)
    yield made
    made.close()


@pytest.fixture
def page(by_name: BrowserContext) -> Iterator[Page]:
    trouble: list[str] = []
    made = by_name.new_page()
    made.on("pageerror", lambda error: trouble.append(f"script error: {error}"))
    made.on("console", lambda message: trouble.append(message.text) if "Content Security Policy" in message.text else None)
    yield made
    assert trouble == []


def enter(page: Page, user: User) -> None:
    page.goto("/accounts/login/")
    page.get_by_label("E-mail address").fill(user.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def leave(page: Page) -> None:
    page.goto("/accounts/logout/")
    page.get_by_role("button", name="Sign out").last.click()
    page.wait_for_url("**/accounts/login/**")


def confirm(page: Page) -> None:
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()


def test_a_team_asks_for_a_second_factor_and_opens_once_there_is_one(page: Page, team: Team, owner: User) -> None:
    team.requires_mfa = True
    team.save()
    enter(page, owner)
    expect(page.get_by_text("Team Reasoning requires a second factor")).to_be_visible()
    page.get_by_role("link", name="Set up an authenticator app").click()
    confirm(page)
    secret = page.locator("[data-secret]").inner_text()
    assert page.locator(".totp-code img").evaluate("image => image.complete && image.naturalWidth > 0")
    page.get_by_label("Authenticator code").fill(code_of(secret))
    page.get_by_role("button", name="Activate").click()
    expect(page.get_by_role("list", name="Unused codes").get_by_role("listitem")).to_have_count(10)
    spare = page.get_by_role("list", name="Unused codes").get_by_role("listitem").first.inner_text()
    page.goto("/")
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()

    leave(page)
    enter(page, owner)
    page.get_by_label("Code").fill("000000")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Incorrect code")).to_be_visible()
    page.get_by_label("Code").fill(spare)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()


@pytest.mark.feature(77)
def test_a_key_is_added_signs_in_alone_and_is_removed(page: Page, by_name: BrowserContext, owner: User) -> None:
    devices = by_name.new_cdp_session(page)
    devices.send("WebAuthn.enable")
    devices.send("WebAuthn.addVirtualAuthenticator", {"options": {**KEY, "automaticPresenceSimulation": True}})
    enter(page, owner)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    page.goto("/account/")
    page.get_by_role("link", name="Set up the second factor").click()
    page.get_by_role("link", name="Add a security key").click()
    confirm(page)
    page.get_by_label("Name").fill("Laptop")
    page.get_by_label("A passkey").check()
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()

    leave(page)
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()

    leave(page)
    enter(page, owner)
    page.get_by_role("button", name="Use a security key").click()
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    page.goto("/accounts/2fa/webauthn/")
    expect(page.get_by_role("row", name="Laptop")).to_contain_text("passkey")
    page.get_by_role("link", name="Remove").click()
    if page.get_by_role("heading", name="Confirm that it is you").is_visible():
        page.get_by_role("link", name="Use your password").or_(page.get_by_role("button", name="Confirm")).first.wait_for()
        confirm(page)
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("heading", name="No security keys yet")).to_be_visible()


def test_a_session_that_is_ended_elsewhere_loses_its_open_page(browser: Browser, page: Page, web: WebProcess, owner: User) -> None:
    other = browser.new_context(base_url=web.url)
    there = other.new_page()
    enter(there, owner)
    expect(there.get_by_role("heading", name="No runs yet")).to_be_visible()
    enter(page, owner)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    page.goto("/accounts/sessions/")
    expect(page.get_by_role("row")).to_have_count(3)
    page.get_by_role("row").filter(has_not_text="this one").get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("That browser was signed out")).to_be_visible()
    expect(page.get_by_role("row")).to_have_count(2)
    expect(there.get_by_text("You are signed out")).to_be_visible()  # the open page learns it without being touched
    there.reload()
    expect(there.get_by_role("heading", name="Sign in")).to_be_visible()
    other.close()
