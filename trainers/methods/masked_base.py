"""Bases of masked diffusion policies, which write by unmasking positions in any order (``trainers/masked``)."""

from typing import TYPE_CHECKING, Any, ClassVar

from trainers.contract.hyperparameters import Strict, param
from trainers.masked.scoring import score_window
from trainers.methods.base import Base
from trainers.methods.card import Requirement

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.masked.scoring import Window


class MaskedConfig(Strict):
    diffusion_steps: int = param(
        20, "Steps in which an answer is unmasked; as many as it has tokens write one at a time.", title="Diffusion steps", ge=1, le=4096
    )


class MaskedBase(Base):
    """A base on the grpo trainer whose policy is a masked one: the built-in policy has a start of its own for it (``masked/cold_start.py``)."""

    Config = MaskedConfig
    trainer = "grpo"
    remasks: ClassVar[bool] = False  # whether its policy takes written tokens back
    requires: ClassVar[tuple[Requirement, ...]] = (
        Requirement("training.generation", "equals", "transformers", "a masked policy is not sampled from left to right"),
        Requirement("training.beta", "equals", 0.0, "there is no reference of a masked policy"),
        Requirement("lora", "equals", None, "adapters of masked policies cannot be loaded again"),
        Requirement("telemetry.alternatives_share", "equals", 0.0, "a position's likeliest tokens depend on when it is asked"),
    )

    def score(self, model: Any, window: "Window", mask_id: int, temperature: float) -> "tuple[Tensor, Tensor]":
        """(B, W) log-probabilities, with gradient, and entropies of a window's tokens."""
        return score_window(model, window, mask_id, temperature)
