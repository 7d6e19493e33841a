"""Whether a team's storage has room for the bytes of a dataset, asked of rooms that datasets may not know: they register their rule in ``RULES``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import transaction

from lab.lib.refusals import Problem, Refusal
from lab.lib.registry import Registry
from lab.teams.accounts.models import Team

# By room; a rule may lock what it counts by until the transaction ends.
RULES: Registry[Callable[[Team, int], Problem | None]] = Registry("rule of storage")


def find_storage_problem(team: Team, more: int) -> Problem | None:
    """Why ``more`` bytes beside what is stored cannot be kept. Needs a transaction."""
    return next((problem for rule in RULES.values() if (problem := rule(team, more))), None)


@contextmanager
def reserve_storage(team: Team, more: int) -> Iterator[None]:
    """For writing so many more bytes: of two who write at once the second sees what the first has written. Raises Refusal, then nothing is."""
    with transaction.atomic():
        if problem := find_storage_problem(team, more):
            raise Refusal(f"{problem.message[:1].upper()}{problem.message[1:]}.", f"{problem.fix[:1].upper()}{problem.fix[1:]}.")
        yield
