"""Humanline: token log-ratios clipped against a reference that follows the policy (arXiv 2509.24207).

d_t = log pi(y_t) - log pi_ref(y_t), clipped to [lP, lR], so that a token outside has no gradient. Every k steps, after the backward pass and before
the optimiser step, the policy is copied into the reference, which therefore stays one update behind. The method is motivated by how people perceive
probability. DPO: R(y) is the sum of the clipped d_t, and the base's loss is applied to beta (R_w - R_l). GRPO: the ratio is exp(clipped d_t), against
the reference instead of the sampling policy, followed by the base's clipped objective; kl times the k3 estimate of the *unclipped* d_t is added. It
differs from its parents in these two changes. The default bounds of -1.5 and 1.5 are those of the released runs; the repository's default
configuration has -1 and 1.5. For GRPO, the reference's log-probabilities are computed when the batch is sampled. Step time: for GRPO, one forward
pass of the reference.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.batch import LossBatch
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch

WIDEST = 3.0  # nats; ends of the histogram


def clip_log_ratios(ratios: Tensor, lowest: float, highest: float) -> Tensor:
    """(B, T) -> (B, T): log-ratios clipped to [lowest, highest], without gradient outside."""
    return ratios.clamp(lowest, highest)


def mask_ratios_in_bounds(ratios: Tensor, lowest: float, highest: float) -> Tensor:
    """(B, T) float: 1 where a log-ratio keeps its gradient."""
    return ((ratios >= lowest) & (ratios <= highest)).to(ratios.dtype)


def estimate_k3_kl(ratios: Tensor) -> Tensor:
    """(B, T) -> (B, T): the estimate exp(-d) + d - 1 of KL(pi || pi_ref)."""
    return torch.expm1(-ratios) + ratios


class Config(Strict):
    lowest: float = param(-1.5, "Lower bound of a token's log-ratio.", title="Lower bound (lP)", le=0, ge=-100)
    highest: float = param(1.5, "Upper bound of a token's log-ratio.", title="Upper bound (lR)", ge=0, le=100)
    every: int = param(4, "Steps between two copies of the policy into the reference; 0 never copies.", title="Sync every (k)", ge=0)
    kl: float = param(0.01, "GRPO only: weight of the KL estimate on unclipped log-ratios.", title="KL weight", ge=0, le=100)


class Humanline(Method):
    card = Card(
        name="humanline",
        title="Humanline alignment",
        arxiv="2509.24207",
        system="Humanline (DPO, GRPO)",
        base="dpo",
        provenance="code",
        source="github ContextualAI/HALOs: train/trainers.py, config/config.yaml; k from notes on the ICLR 2026 paper",
        fit="core",
        idea=(
            "Make training on offline completions behave like on-policy training: let the reference follow the policy, and "
            "ignore tokens whose probability changed more than people would perceive."
        ),
        formula=(
            r"\hat d_t = \mathrm{clip}\left(\log \frac{\pi_\theta(y_t)}{\pi_{ref}(y_t)},\, l_P,\, l_R\right)",
            r"L_{DPO} = -\log \sigma\left(\beta \left(\sum_t \hat d_t^{\,w} - \sum_t \hat d_t^{\,l}\right)\right)",
            r"\rho_t = e^{\hat d_t} \quad (GRPO)",
        ),
        departures=(
            "By default, the reference is synchronised every 4 steps; the released code does so every step.",
            "The clip range is the base's; the paper's is 0.01.",
            "The advantage is the base's; the authors' code divides by the population standard deviation + 0.01.",
            "KTO and the sampling variant are not implemented.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"pair_ratios": "maps"}
    trains = frozenset({"grpo", "dpo"})
    owns = frozenset({"log ratio", "reference"})
    needs = frozenset({"reference"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.age = 0  # steps since the reference was the policy

    def clip(self, ratios: Tensor) -> Tensor:
        return clip_log_ratios(ratios, self.config.lowest, self.config.highest)

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        for name, ratios, mask in (("chosen", chosen, batch.chosen_mask), ("rejected", rejected, batch.rejected_mask)):
            self.report(name, ratios.detach(), mask)
        self.log_histogram("ratios", torch.cat([chosen[batch.chosen_mask > 0], rejected[batch.rejected_mask > 0]]), -WIDEST, WIDEST)
        return self.clip(chosen), self.clip(rejected)

    def log_ratios(self, batch: LossBatch) -> Tensor:
        ratios = self.unclipped(batch)
        self.report("sampled", ratios.detach(), batch.mask)
        self.log_histogram("ratios", ratios[batch.mask > 0], -WIDEST, WIDEST)
        return self.clip(ratios)

    def loss(self, batch: "LossBatch | PairBatch") -> Tensor | None:  # type: ignore[override]
        if not isinstance(batch, LossBatch) or self.config.kl == 0.0:
            return None
        return self.config.kl * batch.token_mean(estimate_k3_kl(self.unclipped(batch)))

    def unclipped(self, batch: LossBatch) -> Tensor:
        assert batch.reference_logprobs is not None
        return (batch.logprobs - batch.reference_logprobs) * batch.mask

    def report(self, name: str, ratios: Tensor, mask: Tensor) -> None:
        self.log(f"unclipped_{name}", masked_mean(mask_ratios_in_bounds(ratios, self.config.lowest, self.config.highest), mask))
        self.log(f"ratio_{name}", masked_mean(ratios.abs(), mask))

    def reference(self, step: int, policy: Any, reference: Any) -> bool:
        due = self.config.every > 0 and step % self.config.every == 0
        self.age = 0 if due else self.age + 1
        self.log("age", float(self.age))
        if due:
            with torch.no_grad():
                for own, theirs in zip(policy.parameters(), reference.parameters(), strict=True):
                    theirs.copy_(own)
        return due

    def state(self) -> dict[str, Any]:
        return {"age": self.age}

    def restore(self, state: dict[str, Any]) -> None:
        self.age = state["age"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        shares = (("chosen", "chosen answers"), ("rejected", "rejected answers"), ("sampled", "sampled answers"))
        return (
            Panel(
                "Tokens inside the bounds",
                tuple(Series(f"humanline/unclipped_{name}", label) for name, label in shares),
                help="Share of tokens whose log-ratio keeps its gradient.",
            ),
            Panel("Age of the reference", (Series("humanline/age"),), unit="steps"),
            Panel("Log-ratios of tokens", (Series("humanline/ratios"),), "histogram", unit="nats", low=-WIDEST, high=WIDEST),
        )
