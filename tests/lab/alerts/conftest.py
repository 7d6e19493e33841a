"""Rules, and a round of the worker's chore at which every watcher is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from lab.teams.accounts.models import Role, Team, User
from lab.watching.alerts import chores
from lab.watching.alerts.models import Rule, Watch
from tests.conftest import make_member


def look() -> None:
    """As a worker does, except that no watcher waits for its next time."""
    Watch.objects.update(next_at=timezone.now())
    chores.run_due_watchers()


@pytest.fixture
def rule(team: Team, owner: User) -> Callable[..., Rule]:
    def made(kind: str, **fields: Any) -> Rule:
        return Rule.objects.create(**{"team": team, "owner": owner, "kind": kind, **fields})

    return made


@pytest.fixture
def annotator(team: Team) -> User:
    return make_member("annotator@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def viewer(team: Team) -> User:
    return make_member("viewer@example.org", team, Role.VIEWER)
