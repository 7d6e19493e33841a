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
class QueueAssignment:
    """Names of the queues somebody labels in from now on, and of those that take nobody any more."""

    to: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        words = f" You can label in {', '.join(self.to)}." if self.to else ""
        return words + (f" Not in {', '.join(self.left_out)}: closed since you were invited." if self.left_out else "")


@dataclass(frozen=True)
class QueueAssigner:
    """``choices``: the open queues of a team with their names. ``assign``: puts somebody into those of the ids that take people still."""

    choices: Callable[[Team], list[tuple[int, str]]]
    assign: Callable[[Team, User, Collection[int]], QueueAssignment]


ASSIGNERS: Registry[QueueAssigner] = Registry("room that assigns queues")


def open_queues(team: Team) -> list[tuple[int, str]]:
    return [choice for assigner in ASSIGNERS.values() for choice in assigner.choices(team)]


def check_assignable_queues(team: Team, role: str, queues: Collection[int]) -> dict[int, str]:
    """The queues by id, with their names. Raises Refusal, with the field at fault."""
    names = dict(open_queues(team)) if queues else {}
    if queues and role not in LABELLERS:
        raise Refusal(f"The role {role} cannot label.", "Choose another role, or no queue.", field="queues")
    if gone := set(queues) - names.keys():
        raise Refusal(f"{len(gone)} of these queues {'is' if len(gone) == 1 else 'are'} not open.", "Choose open queues.", field="queues")
    return {pk: names[pk] for pk in sorted(queues)}


def assign_queues(team: Team, user: User, queues: Collection[int]) -> QueueAssignment:
    assignments = [assigner.assign(team, user, queues) for assigner in ASSIGNERS.values()] if queues else []
    return QueueAssignment(
        tuple(name for assignment in assignments for name in assignment.to), tuple(name for assignment in assignments for name in assignment.left_out)
    )
