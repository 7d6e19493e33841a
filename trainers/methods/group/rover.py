"""ROVER: random policy valuation (arXiv 2509.24981).

In a tree of tokens with rewards at the leaves, a softmax over the values of the *uniform* policy already finds every rewarded leaf. Training is
therefore a Bellman regression: a squared error pulls Q(a_t|s_t) = rho (log pi(a_t|s_t) - log pi_old(a_t|s_t)) towards the detached target r~ + rho
mean over the vocabulary of (log pi - log pi_old)(.|s_{t+1}), without the second term at the last token; r~ = reward minus the group's mean. It
differs from GRPO: there is no importance ratio, no clipping, no KL term and no standard deviation. In the first pass Q = 0, the target is r~ and the
gradient is -2 rho r~ grad log pi, the plain policy gradient; the next-state term acts only in later passes.

Two details of the authors' code are easy to get wrong. Only the Countdown code does not divide by the standard deviation; the released maths script
does (``normalise``). Only the maths script multiplies Q and the next term by rho; Countdown has rho = 1. The old policy's vocabulary means are those
of the first pass over a batch. That is the sampling policy if the whole batch is passed before the weights are updated; with more micro-batches per
generation than accumulated ones, later slices would use a policy that is some updates newer. The method needs the logits, which TRL's fused head does
not build: the forward pass materialises (B, T, V); this is no slower on a small vocabulary.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import centre_by_group, z_score
from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch


def vocabulary_mean(logits: Tensor) -> Tensor:
    """(..., V) -> (...): mean over the vocabulary of log pi."""
    return logits.mean(-1) - torch.logsumexp(logits, -1)


def next_term(now: Tensor, old: Tensor, mask: Tensor, rho: float) -> Tensor:
    """(B, T) vocabulary means at the state before each token -> (B, T): the uniform policy's value of the state after it, 0 at the end."""
    value = rho * (now - old) * mask
    return torch.nn.functional.pad(value[:, 1:], (0, 1))


def bellman_errors(log_ratio: Tensor, gaps: Tensor, following: Tensor, rho: float) -> Tensor:
    """(B, T), (B, 1) or (B, T), (B, T) -> (B, T): squared distance of Q from its target."""
    return (rho * log_ratio - (gaps + following).detach()) ** 2


class Config(Strict):
    rho: float = param(1.0, "Temperature of the values: how far the policy moves for a given reward.", title="Temperature (rho)", gt=0, le=100)
    normalise: bool = param(False, "Divide by the group's standard deviation, as the maths script does.", title="Divide by the std")


class ROVER(Method):
    card = Card(
        name="rover",
        title="Random policy valuation",
        arxiv="2509.24981",
        system="ROVER",
        base="grpo",
        provenance="code",
        source="github tinnerhrhe/ROVER: Countdown and Math, verl/workers/actor/dp_actor.py, trainer/ppo/core_algos.py",
        fit="core",
        idea="Regress the token values of a uniformly random policy; a softmax over them finds all correct answers, not only the most likely.",
        formula=(
            r"Q_t = \rho \left(\log \pi_\theta(a_t|s_t) - \log \pi_{old}(a_t|s_t)\right)",
            r"y_t = \tilde r + \frac{\rho}{|V|}\sum_a \log \frac{\pi_\theta(a|s_{t+1})}{\pi_{old}(a|s_{t+1})}",
            r"L = \left(Q_t - \mathrm{sg}[y_t]\right)^2",
        ),
        departures=(
            "A group of one gets advantage 0; the authors' code keeps the raw reward.",
            "Both scripts share one rho, 1 by default; the maths script's division by the standard deviation is a setting.",
        ),
        claim=("entropy", "higher"),
    )
    Config = Config
    roles = {"advantages": "makes"}
    owns = frozenset({"advantages", "policy loss"})
    needs = frozenset({"logits"})
    requires = (
        Requirement(
            "training.num_iterations",
            "at least",
            2,
            "in a single pass this is the plain policy gradient, because the next-state term is 0",
            hard=False,
        ),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.source: RolloutBatch | None = None  # the sampled batch that ``old`` belongs to
        self.old = torch.empty(0)  # (B, T) vocabulary means of the policy that sampled it

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        right = batch.correct.tolist()
        answers = [(example, text) for example, text, is_right in zip(batch.example_ids, batch.texts, right, strict=True) if is_right]
        if answers:
            self.log("distinct_right", len(set(answers)) / len(answers))
        return (z_score if self.config.normalise else centre_by_group)(batch.shaped, batch.group_size)

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        assert batch.logits is not None
        with torch.no_grad():
            now = vocabulary_mean(batch.logits)
            following = next_term(now, self.old_means(batch, now), batch.mask, self.config.rho)
        log_ratio, gaps = batch.logprobs - batch.old_logprobs, batch.token_advantages()
        self.log("q", masked_mean(self.config.rho * log_ratio, batch.mask))
        self.log("target", masked_mean(gaps + following, batch.mask))
        self.log("next_term", masked_mean(following, batch.mask))
        self.log("next_term_size", masked_mean(following.abs(), batch.mask))
        return batch.token_mean(bellman_errors(log_ratio, gaps, following, self.config.rho))

    def old_means(self, batch: "LossBatch", now: Tensor) -> Tensor:
        """(B, T) of this micro-batch's rows, stored in their first pass."""
        rows = batch.rows.to(now.device)
        if self.source is not batch.rollout:
            self.source, self.old = batch.rollout, now.new_zeros(batch.rollout.mask.shape)
        if batch.first_pass:
            self.old[rows] = now
        return self.old[rows]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Q values and targets",
                (Series("rover/q", "Q"), Series("rover/target", "target"), Series("rover/next_term", "next-state term", dashed=True)),
            ),
            Panel("Magnitude of the next-state term", (Series("rover/next_term_size"),), help="0 in the first pass over a batch."),
            Panel("Diversity", (Series("rover/distinct_right", "share of distinct correct answers"), Series("entropy", "token entropy"))),
        )
