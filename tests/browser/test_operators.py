"""An operator's first visit to /admin/: a second factor first, then the pages."""

from playwright.sync_api import Page, expect

from lab.teams.accounts.models import User
from tests.lab.accounts.signing_in import PASSWORD, code_of


def test_staff_set_up_a_second_factor_and_then_the_operators_pages_open(page: Page, owner: User) -> None:
    User.objects.filter(pk=owner.pk).update(is_staff=True, is_superuser=True)
    page.goto("/accounts/login/")
    page.get_by_label("E-mail address").fill(owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    page.goto("/admin/")
    expect(page.get_by_text("The operators' pages require a second factor")).to_be_visible()
    page.get_by_role("link", name="Set up an authenticator app").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    page.get_by_label("Authenticator code").fill(code_of(page.locator("[data-secret]").inner_text()))
    page.get_by_role("button", name="Activate").click()
    expect(page.get_by_role("list", name="Unused codes")).to_be_visible()
    page.goto("/admin/")
    expect(page.get_by_role("heading", name="Waiting runs")).to_be_visible()
