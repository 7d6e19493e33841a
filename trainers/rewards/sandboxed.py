"""What the functions share that run what policies wrote: the sandbox, several rows at once, and code blocks of an answer."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trainers.contract.problems import Problem
from trainers.rewards.base import RewardFunction
from trainers.rewards.scores import RewardFailed, Score, score_each

if TYPE_CHECKING:
    from trainers.rewards.scores import Rows
    from trainers.tasks.base import Example

BLOCK = re.compile(r"```[ \t]*[A-Za-z0-9+]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


def find_missing_sandbox() -> list[Problem]:
    """Fields are relative to whatever needs it."""
    from trainers.sandbox import probe_sandbox

    probe = probe_sandbox()
    return [] if probe.holds else [Problem("", None, probe.explain(), "train on a machine that can hold programs", given=False)]


def read_code(answer: str | None) -> str:
    """The last ``` block of an answer, also one that never closes; all of an answer without any."""
    blocks = BLOCK.findall(answer or "")
    return str(blocks[-1] if blocks else answer or "").strip("\n")


class SandboxedReward(RewardFunction):
    """A function whose ``score`` runs something in the sandbox."""

    @classmethod
    def find_missing(cls, parameters: Any) -> list[Problem]:
        return find_missing_sandbox()

    def score_batch(self, rows: Rows) -> list[Score]:
        """As many rows at once as the sandbox runs forks. Raises RewardFailed on a machine without a sandbox."""
        from trainers.sandbox import SandboxUnavailable, get_shared_sandbox

        def score_row(text: str, example: Example) -> float | None:
            try:
                return self.score(text, example)
            except SandboxUnavailable as error:
                raise RewardFailed(f"code cannot be run on this machine: {error}") from error

        with ThreadPoolExecutor(get_shared_sandbox().at_once) as threads:
            return [score for [score] in threads.map(lambda row: score_each([row], score_row), rows)]


def build_limits(seconds: float, megabytes: int) -> Any:
    from trainers.sandbox import ProgramLimits

    return ProgramLimits(seconds=seconds, memory=megabytes << 20)
