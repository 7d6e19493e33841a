"""RLPT: RL on promising tokens only (arXiv 2602.03195), our interpretation of the abstract and second-hand notes.

At every position, the K most likely tokens of the sampling policy are the action space: the completion is sampled from them, and old and new
probabilities are renormalised on the same stored set P_t, rho_t = pi(y_t; P_t) / pi_old(y_t; P_t). Logits outside P_t get no gradient, and there is
no mismatch between a truncated sampler and a full softmax. It differs from GRPO only in the sampling and the ratio; advantage and clipping are the
base's. The set is that of the sampling policy (a review says the current policy): it is computed in the first pass, where that is still the policy in
training, and kept for later passes. All micro-batches of one generation must therefore belong to one optimiser step. Ties at rank K: the sampler
keeps all of them, the stored set keeps K; the sampled token is always in it and replaces the last one if needed. Step time: completions come from the
lab's own sampler, and the loss builds the logits (B, T, V) that TRL's fused head avoids.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion


def select_promising_tokens(logits: Tensor, ids: Tensor, count: int) -> Tensor:
    """(B, T, V), (B, T) -> (B, T, K) int64: the most likely ``count`` tokens, including the sampled one."""
    best = logits.topk(min(count, logits.shape[-1]), -1).indices
    found = (best == ids[..., None]).any(-1)
    best[..., -1] = torch.where(found, best[..., -1], ids)
    return best


def on_support(logits: Tensor, ids: Tensor, support: Tensor) -> Tensor:
    """(B, T): log-probability of the sampled tokens, renormalised on ``support`` (B, T, K)."""
    own = logits.gather(-1, ids[..., None])[..., 0]
    return own - torch.logsumexp(logits.gather(-1, support), -1)


def compute_support_coverage(logits: Tensor, support: Tensor) -> Tensor:
    """(B, T): probability mass of the full softmax that lies in ``support``."""
    return torch.exp(torch.logsumexp(logits.gather(-1, support), -1) - torch.logsumexp(logits, -1))


class Config(Strict):
    tokens: int = param(
        32, "Number of most likely tokens that completions are sampled from and the ratio is renormalised on.", title="Promising tokens (K)", ge=1
    )


class RLPT(Method):
    card = Card(
        name="rlpt",
        title="Promising tokens only",
        arxiv="2602.03195",
        system="RLPT",
        base="grpo",
        provenance="abstract",
        source="abstract; an excerpt in a review (definition of the set, top-32 and top-8 figures); a third-party note on reusing the stored set",
        fit="core",
        idea=(
            "Sample from the K most likely tokens and compare old and new probabilities on exactly those, so that the tail of "
            "the vocabulary adds no gradient noise."
        ),
        formula=(
            r"\tilde\pi(v \mid s_t) = \frac{1[v \in P_t]\, e^{l_v}}{\sum_{u \in P_t} e^{l_u}}",
            r"\rho_t = \frac{\tilde\pi_\theta(y_t \mid s_t; P_t)}{\tilde\pi_{old}(y_t \mid s_t; P_t)}",
        ),
        reading="the set is that of the sampling policy and stays fixed for all passes over a batch; the paper's text was not read",
        departures=("With ties at the last rank, the sampler keeps all of them, the stored set only K tokens.",),
        claim=("grad_norm", "lower"),
    )
    Config = Config
    owns = frozenset({"rollout", "log ratio"})
    needs = frozenset({"logits"})
    requires = (
        Requirement(
            "training.steps_per_generation", "equals", None, "the stored set must be that of the sampling policy; leave the field empty (null)"
        ),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.support: Tensor | None = None  # (B, T, K) of the sampled batch
        self.old: Tensor | None = None  # (B, T) renormalised log-probabilities of the policy that sampled

    def rollout(self, session: "Session") -> "list[Completion]":
        return session.complete(top_k=self.config.tokens)

    def observe(self, batch: "RolloutBatch") -> None:
        self.support = self.old = None  # those of the batch before

    def log_ratios(self, batch: "LossBatch") -> Tensor:
        assert batch.logits is not None
        if batch.first_pass:
            self.store(batch, batch.logits.detach())
        assert self.support is not None
        assert self.old is not None
        return on_support(batch.logits, batch.ids, self.support[batch.rows]) - self.old[batch.rows]

    def store(self, batch: "LossBatch", logits: Tensor) -> None:
        """Fills the rows of this micro-batch."""
        support = select_promising_tokens(logits, batch.ids, self.config.tokens)
        if self.support is None or self.old is None:
            shape = batch.rollout.ids.shape
            self.support = support.new_zeros(*shape, support.shape[-1])
            self.old = logits.new_zeros(shape)
        self.support[batch.rows] = support
        self.old[batch.rows] = on_support(logits, batch.ids, support)
        covered = compute_support_coverage(logits, support)
        self.log("coverage", masked_mean(covered, batch.mask))
        self.log("coverage_lowest", torch.where(batch.mask > 0, covered, torch.ones_like(covered)).min())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Coverage of the promising tokens",
                (Series("rlpt/coverage", "mean"), Series("rlpt/coverage_lowest", "lowest in the step", dashed=True)),
                help="Probability mass that the full softmax assigns to the K most likely tokens.",
            ),
            Panel("Gradient norm", (Series("grad_norm", "before clipping"),)),
        )
