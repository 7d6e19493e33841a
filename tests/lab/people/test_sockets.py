"""Open sockets of somebody whose access ends close at once, not at the next look of the poll."""

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.people import departures
from lab.teams.people.roles import change_role
from lab.training.runs import consumers
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import make_run
from tests.lab.test_consumers import Page, close_code, opened, ws

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(transactional_db: None, team: Team) -> Run:
    return make_run(team, status=Status.RUNNING)


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 600)


async def listening(*pages: Page) -> None:
    """Until each has joined its groups: what a page says is understood after that."""
    for page in pages:
        await page.say(text="nonsense")
        await page.until_type("error")


@pytest.mark.parametrize("how", ["deactivated", "role", "left", "account", "elsewhere"])
async def test_it_closes_when(how: str, run: Run, team: Team, owner: User, teammate: User) -> None:
    member = await Membership.objects.aget(user=teammate)
    async with opened(ws(run), teammate) as page, opened(ws(run), owner) as others:
        await listening(page, others)
        if how == "deactivated":
            await sync_to_async(departures.deactivate_member)(member, owner)
        elif how == "role":
            await sync_to_async(change_role)(member, Role.ANNOTATOR, owner)
        elif how == "left":
            await sync_to_async(departures.leave_team)(member)
        elif how == "account":
            teammate.is_active = False
            await teammate.asave()
        else:
            await sync_to_async(member.delete)()
        assert await close_code(page) == 4404
        assert await others.socket.receive_nothing(0.3)


async def test_signing_out_closes_the_pages_of_that_session(run: Run, teammate: User) -> None:
    client = Client()
    await sync_to_async(client.force_login)(teammate)
    async with opened(ws(run), teammate, session=client.session) as page, opened(ws(run), teammate) as elsewhere:
        await listening(page, elsewhere)
        await sync_to_async(client.post)("/accounts/logout/")
        assert await close_code(page) == 4401
        assert await elsewhere.socket.receive_nothing(0.3)
