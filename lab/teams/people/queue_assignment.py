"""Labelling queues that an invitation assigns somebody to, asked of the room that holds queues: people may not know it, so it
``register_queue_hooks``s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from lab.lib.refusals import Refusal
from lab.lib.registry import Registry
from lab.teams.accounts.models import Team, User
from lab.teams.accounts.permissions import LABELLERS


@dataclass(frozen=True)
class Assigned:
    """Names of the queues somebody labels in from now on, and of those that take nobody any more."""

    to: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        said = f" You can label in {', '.join(self.to)}." if self.to else ""
        return said + (f" Not in {', '.join(self.left_out)}: closed since you were invited." if self.left_out else "")


@dataclass(frozen=True)
class Assigner:
    """``choices``: the open queues of a team with their names. ``assign``: puts somebody into those of the ids that take people still."""

    choices: Callable[[Team], list[tuple[int, str]]]
    assign: Callable[[Team, User, Collection[int]], Assigned]


ASSIGNERS: Registry[Assigner] = Registry("room that assigns queues")


def open_queues(team: Team) -> list[tuple[int, str]]:
    return [choice for one in ASSIGNERS.values() for choice in one.choices(team)]


def check_assignable_queues(team: Team, role: str, queues: Collection[int]) -> dict[int, str]:
    """The queues by id, with their names. Raises Refusal, with the field at fault."""
    names = dict(open_queues(team)) if queues else {}
    if queues and role not in LABELLERS:
        raise Refusal(f"The role {role} cannot label.", "Choose another role, or no queue.", field="queues")
    if gone := set(queues) - names.keys():
        raise Refusal(f"{len(gone)} of these queues {'is' if len(gone) == 1 else 'are'} not open.", "Choose open queues.", field="queues")
    return {pk: names[pk] for pk in sorted(queues)}


def assign_queues(team: Team, user: User, queues: Collection[int]) -> Assigned:
    found = [one.assign(team, user, queues) for one in ASSIGNERS.values()] if queues else []
    return Assigned(tuple(name for one in found for name in one.to), tuple(name for one in found for name in one.left_out))
