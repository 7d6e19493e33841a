"""Two annotators of the team."""

import pytest

from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member


@pytest.fixture
def ann(team: Team) -> User:
    return make_member("ann@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def bob(team: Team) -> User:
    return make_member("bob@example.org", team, Role.ANNOTATOR)
