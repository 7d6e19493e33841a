"""A task made in the browser, as one file: its first line is a TaskDefinition, every further line a TaskRow. A version of it never changes.

The lab writes it (a version of the team's task), a spec names it with its hash (``task.file``), ``trainers/tasks/file_task.py`` trains on it.
"""

from typing import Any, Literal

from pydantic import Field

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.reward_definitions import RewardColumn

SUFFIX = ".task.jsonl"
ALL_ROWS = "all"  # the one difficulty of such a task
MOST_EXAMPLES = 20  # few-shot examples
MOST_REWARDS = 20
LONGEST_PROMPT = 100_000  # characters of the system prompt


class FewShot(Strict):
    """One exchange that stands before every prompt."""

    user: str = param(..., "What the user says.", title="User", min_length=1)
    assistant: str = param(..., "What the assistant answers.", title="Assistant", min_length=1)


class TaskDefinition(Strict):
    """How rows become prompts, and how completions are scored. The first reward is the task's accuracy."""

    version: Literal[1] = 1
    name: str = param(..., "Name of the task.", title="Name", min_length=1, max_length=100)
    system: str = param("", "System prompt; empty: none.", title="System prompt", max_length=LONGEST_PROMPT)
    examples: list[FewShot] = Field([], max_length=MOST_EXAMPLES)
    rewards: list[RewardColumn] = Field(min_length=1, max_length=MOST_REWARDS)


class TaskRow(Strict):
    """``prompt``: the last user message, or the whole conversation as role/content messages. ``demonstration``: a completion for cold starts.
    Preference pairs are sampled on ``pairs``, where the file has such rows, else on ``train``.
    """

    prompt: str | list[dict[str, str]]
    reference: str = ""
    data: dict[str, Any] = {}
    split: Literal["train", "heldout", "pairs"] = "train"
    demonstration: str | None = None
