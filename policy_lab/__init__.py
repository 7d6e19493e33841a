"""The client of Policy Lab: read, launch and follow runs from any machine, and send the runs of your own scripts.

from policy_lab import Lab, watch

watch(trainer, name="my run")  # beside any TRL or transformers trainer
for rollout in Lab().rollouts(run=17, filters=["reward:ge:0.5"]):
    print(rollout.step, rollout.reward, rollout.completion)

LAB_URL and LAB_TOKEN say which lab and with which access token.
"""

from typing import Any

from policy_lab.lab import Lab
from policy_lab.records import Update
from policy_lab.rows import Rows
from trainers.outside import LabClient, LabError

__all__ = ["Lab", "LabCallback", "LabClient", "LabError", "Rows", "Update", "watch"]


def __getattr__(name: str) -> Any:
    """``watch`` and ``LabCallback`` need torch and transformers, which everything else does without."""
    if name in ("LabCallback", "watch"):
        from trainers.outside import watching

        return getattr(watching, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
