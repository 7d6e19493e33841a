"""RLSP: a reward for exploring beside the reward for being right (arXiv 2502.06773).

R = alpha r + (1 - alpha) e with r the reward so far (the outcome verifier: 1 for a right answer) and e = min(1, steps / reference) for any answer.
With alpha > 1/2 no wrong answer earns as much as a right one, however long it is; below that length pays more than being right, and is hacked.

Our reading of the abstract, which names three stages (demonstrations, exploration reward, outcome verifier) and no formula: the mixture and the count
of steps are ours. A step is one equation of the working, or one search. The paper trains with PPO; here both rewards go into the group's advantage.
``target`` pays for exploring only while fewer answers than that are right. Differs from GRPO in the reward alone.
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
    alpha: float = param(0.8, "Weight of the outcome; 1 is the base. From 0.5 down, wrong answers can earn more than right ones.", ge=0, le=1)
    reference: int = param(6, "Steps that earn the whole exploration reward; 20 for long reasoning.", title="Reference steps", ge=1, le=100_000)
    target: float = param(1.0, "Pay for exploring while the batch's share of right answers is at most this; 1 = always.", advanced=True, ge=0, le=1)


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
        idea="Pay a little for every step of working whether or not the answer is right, and much more for a right answer.",
        formula=(r"R = \alpha\, r + (1 - \alpha) \min\left(1, \frac{n_{steps}}{n_{ref}}\right)",),
        reading="the mixture and the form of the exploration reward are ours; the abstract has no formula",
        departures=("The paper trains with PPO; here both rewards go into the group's advantage.",),
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
                "Exploring and being right",
                (
                    Series(f"{name}/exploration", "exploration reward"),
                    Series(f"{name}/outcome", "right answers"),
                    Series(f"{name}/hacked", "groups where a wrong answer earns most", dashed=True),
                ),
            ),
            Panel("Steps", (Series(f"{name}/steps", "steps in an answer"), Series(f"{name}/repeated", "share of repeated steps", dashed=True))),
        )


def hacked_groups(mixture: Tensor, right: Tensor, group_size: int) -> Tensor:
    """Scalar: share of the groups in which some wrong answer earns more than some right one."""
    least = mixture.masked_fill(~right, float("inf")).view(-1, group_size).amin(1)
    most = mixture.masked_fill(right, -float("inf")).view(-1, group_size).amax(1)
    return (most > least).float().mean()
