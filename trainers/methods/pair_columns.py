"""Optional columns of a preference dataset: ``weight`` multiplies a pair's loss, ``margin`` is the required distance between chosen and rejected."""

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.data.datasets import MARGIN, WEIGHT
from trainers.methods.base import Base
from trainers.methods.batch import PairBatch


class Config(Strict):
    use_margins: bool = param(
        False,
        "Subtract the dataset's margin column from the score of each pair before the loss; rows without one have margin 0.",
        title="Use margins",
        advanced=True,
    )


class PairColumns(Base):
    """A base on pairs that reads both columns. If the rows have neither, it is exactly TRL's own trainer."""

    Config = Config
    trainer = "dpo"
    trains = frozenset({"dpo"})
    idle = {"pair_margins": ("use_margins", False)}

    def pair_margins(self, batch: PairBatch) -> Tensor | None:
        """(B,) in units of the score: nats of the scaled log-ratio for DPO, of the mean log-ratio for IPO."""
        return read_pair_column(batch, MARGIN, 0.0) if self.config.use_margins else None

    def pair_weights(self, batch: PairBatch, losses: Tensor) -> Tensor | None:  # type: ignore[override]
        return read_pair_column(batch, WEIGHT, 1.0)


def read_pair_column(batch: PairBatch, name: str, default: float) -> Tensor | None:
    """(B,) values of a numeric column, ``default`` where a row lacks it; None if every row lacks it."""
    values = batch.column(name)
    if all(value is None for value in values):
        return None
    return torch.tensor([default if value is None else float(value) for value in values], device=batch.chosen_logprobs.device)
