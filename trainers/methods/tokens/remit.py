"""ReMiT: an RL-tuned model re-weights the tokens of next-token training (arXiv 2602.03075), our interpretation of the abstract and second-hand
descriptions.

D_t = log p_RL(x_t) - log p(x_t), centred over the loss tokens of its sequence; w_t = clip(2 sigmoid(D_t - mean D), 1 - eps, 1 + eps), detached; loss
= mean of w_t times the negative log-likelihood. Tokens that the RL model finds more likely than the learner does, relative to the rest of the
sequence, get more weight; where the two agree, w = 1 and it is plain fine-tuning. It differs from SFT only in the weights. The factor 2, the bound
eps and the detached learner are our choices (one of three descriptions has an L2 distance, which contradicts the other two and was not followed). The
RL model is the folder of a policy with the same vocabulary, such as that of a finished GRPO run; if empty, it is the policy the run starts from,
which makes sense only if that policy was already trained with RL. Step time: one forward pass of the RL model.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.reduce import masked_mean, masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import TokenBatch
    from trainers.methods.context import RunContext


def guided_weights(expert: Tensor, learner: Tensor, mask: Tensor, bound: float) -> Tensor:
    """Log-probabilities (B, T) of the RL model and the learner -> (B, T) weights in [1 - bound, 1 + bound]; 1 where masked."""
    gap = (expert - learner) * mask
    centred = gap - masked_row_mean(gap, mask)[:, None]
    return torch.where(mask > 0, (2 * torch.sigmoid(centred)).clamp(1 - bound, 1 + bound), torch.ones_like(gap))


class Config(Strict):
    model: str = param("", "Folder of the RL-tuned policy; empty = the policy the run starts from.", title="RL model")
    bound: float = param(0.2, "Weights stay within 1 plus or minus this; 0 is plain fine-tuning.", title="Bound (eps)", ge=0, le=1)


class ReMiT(Method):
    card = Card(
        name="remit",
        title="RL-guided mid-training",
        arxiv="2602.03075",
        system="ReMiT",
        base="sft",
        provenance="abstract",
        source="abstract; two independent second-hand descriptions of the weight",
        fit="core",
        idea="Let an RL-trained model decide which tokens of ordinary training text matter, and weight each token's loss accordingly.",
        formula=(
            r"D_t = \log p_{RL}(x_t \mid x_{<t}) - \log p_\theta(x_t \mid x_{<t})",
            r"w_t = \mathrm{clip}\left(2\,\sigma(D_t - \bar D),\, 1 - \epsilon,\, 1 + \epsilon\right)",
            r"L = -\frac{1}{T} \sum_t w_t \log p_\theta(x_t \mid x_{<t})",
        ),
        reading="the factor 2, the value of the bound and the detached learner are our choices; the paper's text was not read",
        departures=("A second-hand description with an L2 distance was not followed.",),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    trains = frozenset({"sft"})

    def prepare(self, run: "RunContext") -> None:
        self.expert = run.frozen(self.config.model)

    def sft_weights(self, batch: "TokenBatch") -> Tensor:
        learner = batch.logprobs.detach()
        weights = guided_weights(self.expert_logprobs(batch), learner, batch.mask, self.config.bound)
        self.report(batch, learner, weights)
        return weights

    @torch.no_grad()
    def expert_logprobs(self, batch: "TokenBatch") -> Tensor:
        """(B, T) of the RL model."""
        logits = self.expert(**batch.model_inputs, use_cache=False).logits[:, :-1]
        logprobs: Tensor = torch.log_softmax(logits.float(), -1).gather(2, batch.ids[..., None])[..., 0]
        return logprobs

    def report(self, batch: "TokenBatch", learner: Tensor, weights: Tensor) -> None:
        at_bound = (weights - 1).abs() >= self.config.bound - 1e-6
        self.log("at_bound", masked_mean(at_bound.float(), batch.mask))
        for name, chosen in (("up", weights > 1), ("down", weights < 1)):
            self.log(f"{name}_weighted_loss", masked_mean(-learner, batch.mask * chosen))
            self.log(f"{name}_weighted", masked_mean(chosen.float(), batch.mask))
        self.log_histogram("weights", weights[batch.mask > 0], 0.0, 2.0)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Loss of up- and down-weighted tokens",
                (Series("remit/up_weighted_loss", "weight above 1"), Series("remit/down_weighted_loss", "weight below 1")),
                unit="nats",
            ),
            Panel("Weights at the bound", (Series("remit/at_bound", "share of tokens"),)),
            Panel("Token weights", (Series("remit/weights"),), "histogram", low=0.0, high=2.0),
        )
