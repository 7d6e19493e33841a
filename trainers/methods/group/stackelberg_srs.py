"""SRS: Stackelberg reward shaping, which replaces the reward with a soft threshold (arXiv 2602.02572).

A policy that maximises E[r] - beta KL(pi || base) responds with rho_r(y) ~ base(y) exp(r(y) / beta). Among all rewards in [0, B], the one whose
response has the highest true utility r_U is not r_U itself but a threshold: B above m*, 0 below. m* is the utility that this reward achieves, the
root of F(m) = E_base[w(m) (r_U - m)] with w = 1 below m and exp(B / beta) above. Softened: r^ = B sigmoid(alpha (r_U - m*)).

As in the authors' code, which shapes rewards for decoding, B is at most twice the spread of a prompt's rewards, and B / beta is at most ``cap``; an
earlier summary had neither limit. In training, r^ replaces the reward. Rewards with only two values (correct or wrong) still have two values: with
group-scaled advantages the method is then GRPO itself. It has an effect on graded rewards, or where advantages are not divided by the group's
standard deviation (Dr. GRPO). It assumes a KL penalty of weight beta; without one, m* still lies between the group's mean and its best reward.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch

HALVINGS = 60
STRETCH = 2.0  # a bound is at most this many times the spread of its rewards


def compute_reward_bounds(utilities: Tensor, bound: float) -> Tensor:
    """(N, M) -> (N,): B, or twice the spread of a prompt's utilities if that is smaller."""
    return (STRETCH * (utilities.amax(1) - utilities.amin(1))).clamp(max=bound)


def utility_gap(utilities: Tensor, threshold: Tensor, log_ratios: Tensor) -> Tensor:
    """F(m) of (N, M) base samples at (N,) -> (N,), divided by exp(B / beta) to avoid overflow; decreasing in m. ``log_ratios`` (N,): B / beta."""
    gaps = utilities - threshold[:, None]
    weights = torch.where(gaps < 0, torch.exp(-log_ratios)[:, None], 1.0)
    return (weights * gaps).mean(1)


def solve_utility_threshold(utilities: Tensor, log_ratios: Tensor) -> Tensor:
    """(N, M), (N,) -> (N,): the root m* of F, by bisection between the smallest and the largest utility."""
    low, high = utilities.amin(1), utilities.amax(1)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = utility_gap(utilities, middle, log_ratios) > 0
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (low + high) / 2


def soft_threshold(utilities: Tensor, thresholds: Tensor, bound: Tensor, sharpness: float) -> Tensor:
    """(N, M), (N,), (N,) -> (N, M): B sigmoid(alpha (r_U - m))."""
    return bound[:, None] * torch.sigmoid(sharpness * (utilities - thresholds[:, None]))


class Config(Strict):
    bound: float = param(1.0, "Largest shaped reward.", title="Bound (B)", gt=0, le=1000)
    beta: float = param(
        1.0,
        "Weight of the KL penalty assumed when solving for the threshold: B / beta bounds the log-ratio.",
        title="KL weight (beta)",
        gt=0,
        le=1000,
    )
    sharpness: float = param(
        10.0, "Near 0 the shaped rewards are almost constant; large values give a hard threshold.", title="Sharpness (alpha)", gt=0, le=1e6
    )
    cap: float = param(2.0, "Upper limit of B / beta when solving for the threshold.", title="Max log-ratio", gt=0, le=100)

    def log_ratios(self, bound: Tensor) -> Tensor:
        return (bound / self.beta).clamp(max=self.cap)


class StackelbergSRS(Method):
    card = Card(
        name="stackelberg-srs",
        title="Stackelberg reward shaping",
        arxiv="2602.02572",
        system="SRS",
        base="grpo",
        provenance="code",
        source="github Haichuan23/Stackelberg-Reward-Shaping: cd/util_offline/compute_offline_shaped_reward_soft.py",
        fit="core",
        idea=(
            "Under a KL penalty, the optimal reward is a threshold at the utility it achieves: samples above it earn the full "
            "reward, those below nothing."
        ),
        formula=(
            r"F(m) = E_{\mathrm{base}}\left[w(m)\,(r_U - m)\right] = 0",
            r"\hat r = \frac{B}{1 + e^{-\alpha (r_U - m^*)}}",
        ),
        departures=(
            "Published for decoding; in training, the threshold is solved on the group's own rewards instead of ten samples of the base policy.",
            "The default sharpness of 10 suits rewards of about one; the released commands use 1 to 1.5 for rewards that span ten and more.",
        ),
        claim=("heldout/reward", "higher"),
    )
    Config = Config
    roles = {"rewards": "maps"}
    requires = (
        Requirement(
            "training.beta", "differs from", 0.0, "the threshold is optimal under a KL penalty; without one it is only a heuristic", hard=False
        ),
    )

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, groups = self.config, batch.grouped(rewards)  # (N, G)
        bound = compute_reward_bounds(groups, config.bound)
        cut = solve_utility_threshold(groups, config.log_ratios(bound))
        shaped = soft_threshold(groups, cut, bound, config.sharpness)
        self.log("threshold", cut.mean())
        self.log("mean_utility", groups.mean())
        self.log("above", (groups >= cut[:, None]).float().mean())
        self.log("gap_at_mean", utility_gap(groups, groups.mean(1), config.log_ratios(bound)).mean())
        self.log_histogram("shaped", shaped, 0.0, config.bound)
        return shaped.flatten()

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Threshold and utility",
                (
                    Series("stackelberg-srs/threshold", "threshold m*"),
                    Series("stackelberg-srs/mean_utility", "true reward"),
                    Series("stackelberg-srs/above", "share above the threshold", dashed=True),
                ),
                help="The threshold of a prompt is the utility that the best bounded reward would achieve.",
            ),
            Panel("Shaped rewards", (Series("stackelberg-srs/shaped"),), "histogram", help="Share of a batch by shaped reward, from 0 to B."),
        )
