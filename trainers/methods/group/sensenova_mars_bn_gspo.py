"""BN-GSPO of SenseNova-MARS: the group's advantages are standardised again over the whole batch, and the ratio is GSPO's (arXiv 2512.24330).

a = (R - mean_group) / (std_group + 1e-6) with the sample standard deviation; A = (a - mean_batch) / (std_batch + 1e-9) with the population standard
deviation, over all completions of the step. Zero-variance groups have a = 0 and are included, so the remaining signal keeps its magnitude as prompts
get solved. s_i = exp(mean_t [log pi - log pi_old]); loss = -mean_i mean_t min(s A, clip(s, 1 - e_low, 1 + e_high) A), where a token has the detached
value s_i and the gradient of its own log-probability. R also adds ``format_weight`` for a correct format. The KL penalty stays with the base. It
differs from GSPO in the second standardisation and in clip ranges about a thousand times wider, taken from GRPO.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import z_score
from trainers.maths.reduce import masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch


def batch_normalised(advantages: Tensor, epsilon: float = 1e-9) -> Tensor:
    """(B,) -> (B,): mean 0 and standard deviation 1 over the batch; zeros if all are equal."""
    if advantages.amax() == advantages.amin():
        return torch.zeros_like(advantages)
    return (advantages - advantages.mean()) / (advantages.std(correction=0) + epsilon)


def sequence_ratios(logprobs: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """(B, T) x 3 -> (B, T): each completion's ratio as the value of all its tokens, with the gradient of each token's own log-probability."""
    ratio = masked_row_mean(logprobs.detach() - old, mask).exp()[:, None]  # (B, 1)
    return ratio * (logprobs - logprobs.detach()).exp()


def clipped_loss(ratios: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float) -> Tensor:
    """(B, T), (B, T) or (B, 1), (B, T) -> scalar: mean over tokens, then over completions."""
    gain = torch.minimum(ratios * advantages, ratios.clamp(1 - low, 1 + high) * advantages)
    return -masked_row_mean(gain, mask).mean()


class Config(Strict):
    batch_norm: bool = param(True, "Standardise advantages again over the batch; off is GSPO.", title="Batch normalisation")
    epsilon_low: float = param(0.2, "Clip range of the sequence ratio below 1.", title="Clip ε low", gt=0, lt=1)
    epsilon_high: float = param(0.28, "Clip range of the sequence ratio above 1.", title="Clip ε high", gt=0, lt=10)
    format_weight: float = param(0.5, "Added to the reward for a correct format, in tasks that check it.", ge=0, le=10)


class BNGSPO(Method):
    card = Card(
        name="sensenova-mars-bn-gspo",
        title="Batch-normalised GSPO",
        arxiv="2512.24330",
        system="SenseNova-MARS",
        base="grpo",
        provenance="code",
        source="github OpenSenseNova/SenseNova-MARS: verl/verl/trainer/ppo/core_algos.py; arXiv id recalled",
        fit="core",
        idea="Standardise advantages in each group and then over the batch, so that updates keep their magnitude as more prompts get solved.",
        formula=(
            r"a_i = \frac{R_i - \mathrm{mean}_{g}}{\mathrm{std}_{g}}",
            r"A_i = \frac{a_i - \mathrm{mean}_{batch}(a)}{\mathrm{std}_{batch}(a)}",
            r"J = \frac{1}{B}\sum_i \min\left(s_i A_i,\ \mathrm{clip}(s_i, 1 - \epsilon_{low}, 1 + \epsilon_{high}) A_i\right)",
        ),
        departures=(
            "A group of one has a = 0; the authors' code keeps the raw reward.",
            "Equal rewards are detected by their range; the authors' code divides rounding noise by 1e-6.",
            "The format is checked by the task's own format function.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"rewards": "maps", "advantages": "makes"}
    owns = frozenset({"advantages", "policy loss"})

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        if "format" not in batch.reward_names:
            return rewards
        return rewards + self.config.format_weight * batch.rewards[:, batch.reward_names.index("format")].nan_to_num(0.0)

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        own = z_score(batch.shaped, batch.group_size, epsilon=1e-6)
        groups = batch.grouped(batch.shaped)
        self.log("saturated", (groups.amax(1) == groups.amin(1)).float().mean())
        self.log("std_before", own.std(correction=0))
        made = batch_normalised(own) if self.config.batch_norm else own
        self.log("std_after", made.std(correction=0))
        self.log_histogram("advantages_before", own, -3, 3)
        self.log_histogram("advantages_after", made, -3, 3)
        return made

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        low, high = self.config.epsilon_low, self.config.epsilon_high
        ratios, advantages = sequence_ratios(batch.logprobs, batch.old_logprobs, batch.mask), batch.token_advantages()
        cut = ((ratios > 1 + high) & (advantages > 0)) | ((ratios < 1 - low) & (advantages < 0))
        self.log("clipped", masked_row_mean(cut.float().expand_as(batch.mask), batch.mask).mean())
        self.log("ratio", masked_row_mean(ratios.detach(), batch.mask).mean())
        return clipped_loss(ratios, advantages, batch.mask, low, high)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Magnitude of the advantages",
                (
                    Series(f"{name}/std_before", "std over the batch, before"),
                    Series(f"{name}/std_after", "after"),
                    Series(f"{name}/saturated", "zero-variance groups", dashed=True),
                ),
                help="The more zero-variance groups, the smaller the batch's standard deviation; the second standardisation compensates for this.",
            ),
            Panel("Sequence ratio", (Series(f"{name}/ratio", "mean ratio"), Series(f"{name}/clipped", "share clipped", dashed=True))),
            Panel("Advantages before", (Series(f"{name}/advantages_before"),), "histogram", low=-3, high=3),
            Panel("Advantages after", (Series(f"{name}/advantages_after"),), "histogram", low=-3, high=3),
        )
