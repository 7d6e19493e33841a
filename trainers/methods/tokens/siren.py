"""SIREN: entropy regularisation of a meaningful subset of tokens towards an anchor (arXiv 2509.25133).

H_t is the entropy of the nucleus of each next-token distribution (the leading tokens while the cumulative probability stays below p, renormalised).
Peaks are positions whose H_t is above the 0.8 quantile of their completion; Hbar is the mean over completions of the mean peak entropy. Loss term =
lambda (Hbar - H0)^2; the anchor H0 is the value of the first sampled batch and stays constant (it is saved in checkpoints, because a resumed run must
not set a new anchor). It differs from an entropy bonus, which raises the entropy of every position without limit.

Hbar is computed over the whole sampled batch at each update: if the batch is split into micro-batches, it is measured without gradient in one more
forward pass, and the micro-batches add up to its gradient. It needs the logits, which TRL's fused head does not build: the loss's forward pass
materialises (B, T, V), a few per cent on a small vocabulary.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.distributions import sampled_logprobs
from trainers.maths.reduce import masked_mean, masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext

LARGEST_NUCLEUS = 10_000


def nucleus_entropy(logits: Tensor, top_p: float) -> Tensor:
    """(..., V) -> (...) nats: entropy of the renormalised leading tokens whose cumulative probability is below ``top_p``; 0 if there is none."""
    probabilities = torch.softmax(logits, -1).topk(min(LARGEST_NUCLEUS, logits.shape[-1]), -1).values
    kept = (probabilities.cumsum(-1) < top_p).to(probabilities.dtype)
    mass = (probabilities * kept).sum(-1, keepdim=True)
    renormalised = probabilities * kept / torch.where(mass > 0, mass, torch.ones_like(mass))
    safe = torch.where(renormalised > 0, renormalised, torch.ones_like(renormalised))  # log 1 = 0, with a finite gradient
    return -(renormalised * safe.log()).sum(-1)


def peak_mask(entropies: Tensor, mask: Tensor, quantile: float) -> Tensor:
    """(B, T) -> (B, T) float: 1 where a token's entropy is above the quantile of its completion's."""
    own = entropies.detach().masked_fill(mask == 0, float("nan"))
    threshold = torch.nanquantile(own, quantile, dim=1, keepdim=True)
    return ((own > threshold) & (mask > 0)).to(mask.dtype)


def peak_entropy(entropies: Tensor, peaks: Tensor, count: Tensor | None = None) -> Tensor:
    """Scalar: mean over the rows with peaks of their mean peak entropy; 0 if no row has one. ``count``: divide by this instead of the number of such
    rows.
    """
    rows = peaks.sum(1) > 0
    return masked_mean(masked_row_mean(entropies, peaks), rows.to(entropies.dtype), count)


class Config(Strict):
    top_p: float = param(0.8, "Probability mass of the nucleus whose entropy counts.", title="Nucleus (p)", gt=0, le=1)
    quantile: float = param(0.8, "Positions above this quantile of their completion's entropies are peaks.", title="Peak quantile", ge=0, lt=1)
    weight: float = param(0.005, "Weight of the squared distance to the anchor.", title="Weight (lambda)", ge=0, le=100)


class SIREN(Method):
    card = Card(
        name="siren",
        title="Selective entropy regularisation",
        arxiv="2509.25133",
        system="SIREN",
        base="dr-grpo",
        provenance="code",
        source="github Linn3a/siren: verl/workers/actor/dp_actor.py, ppo/ray_trainer.py, exp_scripts/siren.sh",
        fit="core",
        idea="Keep the entropy of the few positions where the policy makes real choices near its initial value, and leave all other positions alone.",
        formula=(
            r"\bar H = \frac{1}{B}\sum_i \frac{\sum_t M_{it} H_{it}}{\sum_t M_{it}}",
            r"L = L_{PG} + \lambda (\bar H - H_0)^2",
        ),
        departures=(
            "The squared distance is computed on the whole batch; the authors' code squares it in each micro-batch.",
            "A completion without a peak is excluded from the mean; the authors' code divides 0 by 0.",
            "In a small vocabulary all logits are used; the authors' code falls back to the full entropy.",
            "The clip range is the base's; the released run clips at 0.8 and 1.2.",
        ),
        claim=("entropy", "higher"),
        parallel=False,
    )
    Config = Config
    needs = frozenset({"logits"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.anchor: float | None = None
        self.measured: tuple[RolloutBatch, int] | None = None  # sampled batch and step that ``mean`` and ``count`` belong to
        self.mean = self.count = torch.zeros(())  # of the whole sampled batch: peak entropy, rows with peaks

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def loss(self, batch: "LossBatch") -> Tensor:  # type: ignore[override]
        assert batch.logits is not None
        entropies = nucleus_entropy(batch.logits, self.config.top_p)  # (B, T)
        peaks = peak_mask(entropies, batch.mask, self.config.quantile)
        if batch.slices == 1 or self.measured is None or self.measured[0] is not batch.rollout or self.measured[1] != batch.step:
            self.measure(batch, entropies.detach(), peaks)
        part = peak_entropy(entropies, peaks, self.count / batch.slices)  # averaged over the micro-batches: the whole batch's
        anchor = self.anchor = float(self.mean) if self.anchor is None else self.anchor
        self.log("peak_entropy", self.mean)
        self.log("anchor", anchor)
        self.log("anchor_low", 0.8 * anchor)
        self.log("anchor_high", 1.2 * anchor)
        distance = self.mean - anchor
        return self.config.weight * (distance**2 + 2 * distance * (part - part.detach()))

    def measure(self, batch: "LossBatch", entropies: Tensor, peaks: Tensor) -> None:
        """Peak entropy of the whole sampled batch under the policy of this update; ``entropies`` and ``peaks`` (B, T) are those of the
        micro-batch.
        """
        whole = batch.rollout
        if batch.slices > 1:
            entropies = torch.cat([nucleus_entropy(found, self.config.top_p) for found in sampled_logprobs(self.run, whole, len(batch.rows))])
            peaks = peak_mask(entropies, whole.mask * ~whole.left_out[:, None], self.config.quantile)
        self.measured = (whole, batch.step)
        self.mean, self.count = peak_entropy(entropies, peaks), (peaks.sum(1) > 0).sum()

    def state(self) -> dict[str, Any]:
        return {"anchor": self.anchor}

    def restore(self, state: dict[str, Any]) -> None:
        self.anchor = state["anchor"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Peak entropy and its anchor",
                (
                    Series("siren/peak_entropy", "peaks, nucleus only"),
                    Series("siren/anchor", "anchor", dashed=True),
                    Series("entropy", "all tokens"),
                ),
                unit="nats",
                band=("siren/anchor_low", "siren/anchor_high"),
                help="The band is 20 % around the anchor. Without the term, peak entropy collapses with the rest.",
            ),
        )
