"""Why a run may not start although a worker is there, and what it would take, asked of rooms that runs may not know.

A room with such a rule registers it in ``RULES``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from lab.lib.registry import Registry
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from trainers.contract.spec import RunSpec


class HoldRule(Protocol):
    def held(self, runs: Sequence[Run]) -> dict[UUID, str]:
        """Why each of the queued runs that are held waits, a sentence each."""

    def foreseen(self, team: Team, queue: str) -> str:
        """Why a run that is launched now would wait; empty when it would not."""

    def refused(self, team: Team, queue: str) -> str:
        """Why the team may not launch on the queue at all; empty when it may."""

    def estimate(self, team: Team, queue: str, specs: Sequence[RunSpec], runs: int) -> object:
        """What launching the stages ``specs`` so often would take, for usage/estimate.html."""


RULES: Registry[HoldRule] = Registry("rule that holds runs back")


def find_held_reasons(runs: Sequence[Run]) -> dict[UUID, str]:
    reasons: dict[UUID, str] = {}
    for rule in RULES.values():
        reasons |= rule.held(runs)
    return reasons


def predict_hold_reasons(team: Team, queue: str) -> str:
    return " ".join(reason for rule in RULES.values() if (reason := rule.foreseen(team, queue)))


def find_queue_refusal(team: Team, queue: str) -> str:
    return " ".join(refusal for rule in RULES.values() if (refusal := rule.refused(team, queue)))


def estimate_launch_usage(team: Team, queue: str, specs: Sequence[RunSpec], runs: int = 1) -> list[object]:
    return [rule.estimate(team, queue, specs, runs) for rule in RULES.values()]
