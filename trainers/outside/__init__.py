"""Runs of your own scripts in a Policy Lab: two lines beside any TRL or transformers trainer.

from trainers.outside import watch

trainer = GRPOTrainer(...)
watch(trainer, name="my run")  # LAB_URL and LAB_TOKEN say where to
trainer.train()
"""

from typing import Any

from trainers.outside.client import LabClient, LabError

__all__ = ["LabCallback", "LabClient", "LabError", "watch"]


def __getattr__(name: str) -> Any:
    """``watch`` and ``LabCallback`` need transformers, which sending alone does without."""
    if name in ("LabCallback", "watch"):
        from trainers.outside import watching

        return getattr(watching, name)
    raise AttributeError(name)
