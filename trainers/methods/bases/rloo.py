"""RLOO (Back to Basics, arXiv 2402.14740, eq. 8): REINFORCE whose baseline is the mean reward of the *other* members of the group."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainers.maths.advantages import centre_by_group
from trainers.methods.base import Base
from trainers.methods.card import Card

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch


def leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """(B,) -> (B,): reward minus the mean of the group's other members, which is G / (G - 1) times the distance to the group's mean."""
    if group_size == 1:
        return rewards.new_zeros(rewards.shape)
    return centre_by_group(rewards, group_size) * group_size / (group_size - 1)


class RLOO(Base):
    card = Card(
        name="rloo",
        title="RLOO",
        arxiv="2402.14740",
        system="REINFORCE leave-one-out",
        base="",
        provenance="paper",
        source="arXiv 2402.14740, section 3.3",
        fit="core",
        idea=(
            "REINFORCE on whole completions; the baseline of each one is the mean reward of the others in its group, which keeps "
            "the estimate unbiased."
        ),
        formula=(r"A_i = r_i - \frac{1}{G-1}\sum_{j \neq i} r_j", r"\nabla J = \frac{1}{G}\sum_i A_i \nabla \log \pi_\theta(o_i)"),
        departures=(
            (
                "The loss clips the ratio and sums over tokens with a constant normaliser, as in Dr. GRPO, so that several passes "
                "over a batch stay stable."
            ),
            "A group of one has no other members to compare with, so its advantage is 0.",
        ),
    )
    trainer = "grpo"
    scale = "leave-one-out"
    owns = frozenset({"advantages"})
    roles = {"advantages": "makes"}

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "dr_grpo", "scale_rewards": "none"}

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        return leave_one_out(batch.shaped, batch.group_size)
