"""RLSP: a reward for exploration in addition to the reward for correctness (arXiv 2502.06773).

R = alpha r + (1 - alpha) e, where r is the reward so far (the outcome verifier: 1 for a correct completion) and e = min(1, steps / reference) for any
completion. With alpha > 1/2, no wrong completion earns as much as a correct one, however long it is; with a smaller alpha, length pays more than
correctness and the reward is hacked.

This is our interpretation of the abstract, which names three stages (demonstrations, exploration reward, outcome verifier) and no formula: the
mixture and the way steps are counted are our choices. A step is one equation of the reasoning, or one search. The paper trains with PPO; here, both
rewards go into the group's advantage. With ``target``, exploration is rewarded only while the share of correct completions is at most that value.
Differs from GRPO only in the reward.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.thresholds import is_above
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.texts.segments import step_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch


def compute_exploration_reward(counts: Tensor, reference: int) -> Tensor:
    """(B,) numbers of steps -> (B,) in [0, 1]."""
    return (counts / reference).clamp(max=1.0)


def mix_exploration_rewards(outcome: Tensor, exploration: Tensor, alpha: float) -> Tensor:
    """(B,), (B,) -> (B,)."""
    return alpha * outcome + (1 - alpha) * exploration


class Config(Strict):
    alpha: float = param(
        0.8, "Weight of the outcome reward; 1 is the base. At 0.5 and below, wrong completions can earn more than correct ones.", ge=0, le=1
    )
    reference: int = param(
        6, "Number of steps that earns the full exploration reward; 20 for long reasoning.", title="Reference steps", ge=1, le=100_000
    )
    target: float = param(
        1.0, "Reward exploration while the batch's share of correct completions is at most this; 1 = always.", advanced=True, ge=0, le=1
    )


class RLSP(Method):
    card = Card(
        name="rlsp",
        title="Search via self-play rewards",
        arxiv="2502.06773",
        system="RLSP",
        base="grpo",
        provenance="abstract",
        source="abstract only",
        fit="core",
        idea="Pay a little for every reasoning step, whether or not the answer is correct, and much more for a correct answer.",
        formula=(r"R = \alpha\, r + (1 - \alpha) \min\left(1, \frac{n_{steps}}{n_{ref}}\right)",),
        reading="the mixture and the form of the exploration reward are our choices; the abstract has no formula",
        departures=("The paper trains with PPO; here, both rewards go into the group's advantage.",),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"rewards": "maps"}

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        found = [step_texts(text) for text in batch.texts]
        counts = torch.tensor([float(len(steps)) for steps in found], device=rewards.device, dtype=rewards.dtype)
        exploration = compute_exploration_reward(counts, self.config.reference)
        share = float(batch.correct.double().mean())
        paying = not is_above(share, self.config.target)
        self.log("steps", counts.mean())
        self.log("repeated", sum(len(steps) - len(set(steps)) for steps in found) / max(1.0, float(counts.sum())))
        self.log("exploration", exploration.mean())
        self.log("outcome", share)
        self.log(
            "hacked",
            hacked_groups(mix_exploration_rewards(batch.correct.to(rewards.dtype), exploration, self.config.alpha), batch.correct, batch.group_size),
        )
        return mix_exploration_rewards(rewards, exploration, self.config.alpha) if paying else rewards

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Exploration and correctness",
                (
                    Series(f"{name}/exploration", "exploration reward"),
                    Series(f"{name}/outcome", "share correct"),
                    Series(f"{name}/hacked", "groups where a wrong completion earns most", dashed=True),
                ),
            ),
            Panel("Steps", (Series(f"{name}/steps", "steps per completion"), Series(f"{name}/repeated", "share of repeated steps", dashed=True))),
        )


def hacked_groups(mixture: Tensor, right: Tensor, group_size: int) -> Tensor:
    """Scalar: share of the groups in which some wrong completion earns more than some correct one."""
    least = mixture.masked_fill(~right, float("inf")).view(-1, group_size).amin(1)
    most = mixture.masked_fill(right, -float("inf")).view(-1, group_size).amax(1)
    return (most > least).float().mean()
