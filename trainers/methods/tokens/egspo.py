"""EGSPO: entropy-gated token weights plus an imitation term that fades out (arXiv 2602.03309), our interpretation of the abstract.

H_t is the entropy of the sampling policy, and tau its q quantile over the tokens of the sampled batch (or a fixed number). A token at or above tau
keeps its full gradient; one below gets the share phi_t = p_t (1 - p_t) of it, where p_t is the probability of the sampled token, detached (or a
constant share). Loss = (1 - mu) clipped policy loss with these weights + mu cross-entropy on the gold answers; mu falls linearly over the first part
of the run. The sign of the advantage is kept, so a confident mistake is still pushed down, only more gently; masking it (share 0) would leave it
unchanged. It differs from GRPO in the weights and the imitation term. The abstract says "attenuated" and compares with CHORD-phi: the use of CHORD's
phi as attenuation, tau as a quantile and the schedule of mu are our choices; p is that of the rollout policy (the first pass), which our paper
summary leaves open. The SFT warm-up before RL is the lab's cold start or an earlier SFT stage. The expert is the task's gold answer; a prompt without
one has no imitation term. Step time: one more forward and backward pass over one gold answer per prompt (B / G rows); if the sampled batch is split
into micro-batches, one forward pass over it for tau.
"""

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.distributions import sampled_logprobs
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.imitation import gold_loss

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext

LARGEST_DRAWN = 3.0  # nats; the histogram's upper end


def compute_entropy_threshold(entropies: Tensor, mask: Tensor, quantile: float) -> Tensor:
    """Scalar: the quantile of the entropies (B, T) of unmasked tokens; 0 without any."""
    own = entropies[mask > 0]
    return torch.quantile(own.float(), quantile) if own.numel() else entropies.new_zeros(())


def compute_attenuation(logprobs: Tensor) -> Tensor:
    """(B, T) -> (B, T): phi = p (1 - p), at most 1/4."""
    probabilities = logprobs.exp()
    return probabilities * (1 - probabilities)


def gated_weights(entropies: Tensor, tau: Tensor, share: Tensor) -> Tensor:
    """(B, T): 1 where the entropy is at least ``tau``, else ``share`` (B, T)."""
    return torch.where(entropies >= tau, torch.ones_like(share), share)


def imitation_share(step: int, total_steps: int, first: float, last: float, part: float) -> float:
    """mu: linear from ``first`` in step 1 to ``last`` after the fraction ``part`` of the run."""
    way = min(1.0, (step - 1) / max(1.0, part * total_steps))
    return first + (last - first) * way


class Config(Strict):
    gate: Literal["quantile", "fixed"] = param(
        "quantile", "Whether the entropy threshold is a quantile of the batch or a fixed number.", title="Gate"
    )
    quantile: float = param(0.8, "Tokens at or above this entropy quantile keep their full gradient; 0 = all.", title="Quantile (q)", ge=0, le=1)
    nats: float = param(0.5, "Entropy threshold of the fixed gate.", title="Threshold (tau)", unit="nats", ge=0, le=20)
    attenuation: Literal["phi", "constant"] = param(
        "phi", "Share of the gradient kept below the threshold: p (1 - p) or a constant.", title="Attenuation"
    )
    share: float = param(0.1, "The share if it is constant.", title="Constant share", ge=0, le=1)
    first: float = param(0.9, "Imitation share (mu) in the first step.", title="Initial imitation", ge=0, le=1)
    last: float = param(0.05, "Imitation share (mu) after it has fallen.", title="Final imitation", ge=0, le=1)
    part: float = param(0.5, "Fraction of the run over which the imitation share falls.", title="Fade-out", ge=0, le=1)


class EGSPO(Method):
    card = Card(
        name="egspo",
        title="Entropy-gated selective policy optimisation",
        arxiv="2602.03309",
        system="EGSPO",
        base="grpo",
        provenance="abstract",
        source="abstract of v1; the EGSPO baseline in the first author's github huyuelin/EGSPO-CA; CHORD for phi and mu",
        fit="core",
        idea=(
            "High-entropy tokens, where the policy makes real choices, keep their full gradient; confident tokens keep a small "
            "share with the same sign. An imitation term that fades out stabilises training."
        ),
        formula=(
            r"w_t = 1[H_t \ge \tau] + 1[H_t < \tau]\, p_t (1 - p_t)",
            r"L = (1 - \mu)\, L_{PG}(w_t A_i) + \mu\, L_{SFT}",
        ),
        reading="the quantile threshold, phi as the attenuation and the linear fall of mu are our choices; the abstract names none of them",
        departures=("The warm-up before RL is the lab's cold start or an earlier stage.",),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.source: RolloutBatch | None = None  # the sampled batch that ``tau`` belongs to
        self.tau = torch.zeros(())

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def tau_of(self, batch: "LossBatch") -> Tensor:
        """Scalar: the threshold of the sampled batch. Takes one more forward pass if the batch is split into micro-batches and its entropies are not
        known.
        """
        whole = batch.rollout
        if self.config.gate == "fixed":
            return batch.entropies.new_tensor(self.config.nats)
        if batch.slices == 1:
            return compute_entropy_threshold(batch.entropies.detach(), batch.mask, self.config.quantile)
        if self.source is not whole:
            entropies = whole.entropies
            if entropies is None:
                entropies = torch.cat([-(found.exp() * found).sum(-1) for found in sampled_logprobs(self.run, whole, len(batch.rows))])
            self.source, self.tau = whole, compute_entropy_threshold(entropies, whole.mask, self.config.quantile)
        return self.tau

    def mu(self, batch: "LossBatch") -> float:
        return imitation_share(batch.step, batch.total_steps, self.config.first, self.config.last, self.config.part)

    def token_weights(self, batch: "LossBatch") -> Tensor:
        config, entropies = self.config, batch.entropies.detach()
        tau = self.tau_of(batch)
        phi = compute_attenuation(batch.logprobs.detach())
        weights = gated_weights(entropies, tau, phi if config.attenuation == "phi" else torch.full_like(phi, config.share))
        self.report(batch, entropies, tau, weights)
        return weights * (1 - self.mu(batch))

    def report(self, batch: "LossBatch", entropies: Tensor, tau: Tensor, weights: Tensor) -> None:
        below = (entropies < tau).to(batch.mask.dtype)
        mass = (weights * batch.token_advantages().abs() * batch.mask).detach()
        self.log("threshold", tau)
        self.log("gated_tokens", (below * batch.mask).sum() / batch.mask.sum().clamp(min=1.0))
        if mass.any():
            self.log("gated_mass", (mass * below).sum() / mass.sum())
        self.log_histogram("entropies", entropies[batch.mask > 0], 0.0, LARGEST_DRAWN)

    def loss(self, batch: "LossBatch") -> Tensor | None:  # type: ignore[override]
        mu = self.mu(batch)
        self.log("imitation_share", mu)
        if mu == 0.0 or (imitation := gold_loss(self.run, batch)) is None:
            return None
        self.log("imitation_loss", imitation)
        return mu * imitation

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Gated tokens",
                (Series("egspo/gated_tokens", "share of tokens"), Series("egspo/gated_mass", "share of weighted advantage")),
                help="Tokens below the entropy threshold, and their share of the policy gradient's total weight.",
            ),
            Panel("Imitation", (Series("egspo/imitation_share", "mu"), Series("egspo/imitation_loss", "cross-entropy on gold answers"))),
            Panel(
                "Token entropies",
                (Series("egspo/entropies"),),
                "histogram",
                unit="nats",
                low=0.0,
                high=LARGEST_DRAWN,
                help="The threshold is the metric egspo/threshold.",
            ),
        )
