"""Coupled GRPO for masked diffusion policies (DiffuCoder, arXiv 2506.20639).

The log-probability of a token is the mean of two: with everything masked, and while one of a pair of complementary masks hides it, divided by how
likely that was. With M of share t, drawn from [0.2, 0.8],
    lp_i = (lp_i(all masked) + [i in M] lp_i(M masked) / t + [i not in M] lp_i(complement masked) / (1 - t)) / 2,
so that every token is scored in every pass, on the same masks for the policy that sampled, the reference and the current one. A_k is the reward
minus the mean of the others in its group, without a standard deviation; the loss is averaged over tokens. It differs from GRPO in the policy, in how
its log-probabilities are estimated and in the advantages. A step has three forward passes in place of one.
"""

from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from trainers.contract.hyperparameters import param
from trainers.masked.likelihood import leave_one_out
from trainers.masked.scoring import score_by_one_mask, score_window
from trainers.methods.card import Card
from trainers.methods.masked_base import MaskedBase, MaskedConfig

if TYPE_CHECKING:
    from trainers.masked.scoring import Window
    from trainers.methods.batch import RolloutBatch


class Config(MaskedConfig):
    estimate: Literal["coupled", "single"] = param(
        "coupled", "coupled: a pair of masks and one of everything. single: one random mask, what the coupled estimate is compared with."
    )


class CoupledGRPO(MaskedBase):
    card = Card(
        name="diffucoder-coupled-grpo",
        title="Coupled GRPO (masked diffusion)",
        arxiv="2506.20639",
        system="DiffuCoder",
        base="grpo",
        provenance="code",
        source="github apple/ml-diffucoder: src/open_r1/coupled_grpo.py, recipes/config_coupled_code.yaml",
        fit="variant",
        idea="GRPO for policies that write in any order: a pair of complementary masks scores every token once while it is masked.",
        formula=(
            r"\log p_i = \frac{1}{2}\left[\log p_i(\emptyset) + \frac{1[i \in M]}{t} \log p_i(\bar M)"
            r" + \frac{1[i \notin M]}{1 - t} \log p_i(M)\right]",
            r"A_k = r_k - \frac{1}{G - 1}\sum_{j \ne k} r_j",
        ),
        departures=(
            "Each completion has a pair of masks of its own, the same in all passes over a batch; the authors draw one a batch and pass.",
            "The policy is the built-in one, started on demonstrations with masked and wrong tokens.",
            "No KL penalty; the authors weigh it with 0.01. The clip range is the run's; theirs is 0.5.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"advantages": "makes"}
    owns = frozenset({"advantages"})
    scale = "none"

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "dapo", "scale_rewards": self.scale}

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        return leave_one_out(batch.shaped, batch.group_size)

    def score(self, model: Any, window: "Window", mask_id: int, temperature: float) -> tuple[Tensor, Tensor]:
        score = score_window if self.config.estimate == "coupled" else score_by_one_mask
        return score(model, window, mask_id, temperature)
