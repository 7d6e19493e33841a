"""VERL: a bonus on the advantage from the effective rank of a response's hidden states (arXiv 2509.23808).

ER = exp(entropy of the normalised singular values) of the centred last-layer states of a response; it measures exploration. With m_j = ER of the
first j s + 1 tokens (s = stride) and delta_j = m_j - mean(m_1 .. m_{j-1}), ERV = mean delta_j is its velocity, a measure of exploitation, and ERA =
mean (delta_j - delta_{j-1}) its acceleration. Relative to running means mu (0 at first), d_X = clip((X - mu_X) / (|mu_X| + 1e-8), -5, 5), w =
sigmoid(g d_ERA), Phi = w tanh(d_ER) + (1 - w) tanh(d_ERV), and A' = A + min(relu(lambda Phi), |A| / kappa). It differs from GRPO only in that bonus,
which is never negative and never changes the sign of an advantage; it is off in the first step. The means lag one step behind: the update after step
t uses the batch of t - 1.

Two details of the authors' code are easy to get wrong. T >= 2 s is not enough: ERV needs T > 2 s (ERA: T > 3 s), otherwise they are 0. lambda is
multiplied by 1 - (running score + 1) / 2 unless ``aux_fix`` is set, which the released training does; here, this factor is off by default. It costs
one forward pass for the hidden states and about fifteen small SVDs per response: about 1.2 times a GRPO step on the tiny policy.
"""

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.spectrum import effective_rank
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch

LIMIT, EPSILON = 5.0, 1e-8
NAMES = ("er", "erv", "era")


def prefix_ranks(hidden: Tensor, mask: Tensor, stride: int) -> Tensor:
    """(B, T, D), (B, T) -> (B, K): effective rank of the first j * stride + 1 tokens, j = 1..K; nan where a row has no more than j * stride."""
    place, lengths = mask.cumsum(1), mask.sum(1)
    found = []
    for tokens in range(stride, int(lengths.max()), stride):
        ranks = effective_rank(hidden, mask * (place <= tokens + 1))
        found.append(ranks.masked_fill(lengths <= tokens, float("nan")))
    return torch.stack(found, 1) if found else lengths.new_zeros(len(mask), 0).double()


def velocity_and_acceleration(ranks: Tensor) -> tuple[Tensor, Tensor]:
    """(B, K), nan at the end of shorter rows -> ERV (B,), ERA (B,); 0 where there are too few windows."""
    count = torch.arange(1, max(1, ranks.shape[1]), dtype=ranks.dtype, device=ranks.device)
    delta = ranks[:, 1:] - ranks.cumsum(1)[:, :-1] / count  # (B, K - 1)
    second = delta[:, 1:] - delta[:, :-1]
    return nan_mean(delta), nan_mean(second)


def nan_mean(values: Tensor) -> Tensor:
    """(B, K) -> (B,): mean of the non-nan values; 0 without any."""
    there = ~values.isnan()
    return values.nan_to_num(0.0).sum(1) / there.sum(1).clamp(min=1)


def compute_relative_deviation(values: Tensor, baseline: float) -> Tensor:
    """(B,) relative to a running mean, clipped to [-5, 5]."""
    return ((values - baseline) / (abs(baseline) + EPSILON)).clamp(-LIMIT, LIMIT)


def compute_auxiliary_signal(rank: Tensor, velocity: Tensor, acceleration: Tensor, gain: float) -> tuple[Tensor, Tensor]:
    """Deviations (B,) each -> Phi (B,) and the weight w (B,) of exploration in it."""
    weight = torch.sigmoid(gain * acceleration)
    return weight * torch.tanh(rank) + (1 - weight) * torch.tanh(velocity), weight


def compute_rank_bonus(advantages: Tensor, phi: Tensor, scale: float, kappa: float) -> Tensor:
    """(...), (...) -> (...): between 0 and |A| / kappa."""
    return torch.minimum(torch.relu(scale * phi), advantages.abs() / kappa)


class Config(Strict):
    stride: int = param(5, "Tokens between two measurements of the effective rank; the paper's 40 is for completions of 1,000 tokens.", ge=1, le=4096)
    rate: float = param(0.3, "Update rate of the running means, per step.", title="Rate (alpha)", gt=0, le=1)
    gain: float = param(2.0, "How sharply the acceleration switches between exploration and exploitation.", title="Gain (g)", ge=0, le=100)
    weight: float = param(1.0, "Scale of the bonus; 0 is GRPO.", title="Weight (lambda)", ge=0, le=100)
    kappa: float = param(2.0, "The bonus is at most the magnitude of the advantage divided by this.", title="Cap (kappa)", ge=1, le=1000)
    place: Literal["response", "last token"] = param("response", "Where the bonus is added: the whole response (paper) or the last token (code).")
    fade: bool = param(False, "Reduce the bonus as the mean score rises, as the authors' code does without aux_fix.", title="Fade with the score")


class VERL(Method):
    card = Card(
        name="verl-effective-rank",
        title="Velocity-exploiting rank learning",
        arxiv="2509.23808",
        system="VERL",
        base="grpo",
        provenance="code",
        source="github hf618/VERL: verl/trainer/metrics_utils.py, reward_manager_versions.py, ppo/ray_trainer.py, train.sh",
        fit="core",
        idea=(
            "Measure exploration by the rank of a completion's hidden states and exploitation by its growth; both earn a small "
            "bonus, weighted by the acceleration."
        ),
        formula=(
            r"\Phi = w \tanh d_{ER} + (1 - w) \tanh d_{ERV}, \quad w = \sigma(g\, d_{ERA})",
            r"A' = A + \min\left(\max(\lambda \Phi, 0),\ \frac{|A|}{\kappa}\right)",
        ),
        departures=(
            "The bonus is added to the whole response, as in the paper; the released code adds it to the last token.",
            "The stride is 5; the paper uses 40 for completions of 1,000 tokens.",
            "A completion with fewer than two tokens has rank 0, and one with equal states rank 1.",
        ),
        claim=("verl-effective-rank/er", "higher"),
    )
    Config = Config
    roles = {"advantages": "maps"}
    needs = frozenset({"hidden"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.baselines = dict.fromkeys(NAMES, 0.0)
        self.previous: dict[str, float] = {}  # means of the batch before; empty before the first
        self.score = 0.0

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        assert batch.hidden is not None
        velocity, acceleration = velocity_and_acceleration(prefix_ranks(batch.hidden, batch.mask, self.config.stride))
        found = {"er": effective_rank(batch.hidden, batch.mask), "erv": velocity, "era": acceleration}
        self.report(batch, found)
        if self.config.place == "last token" and advantages.dim() == 1:
            advantages = advantages[:, None] * batch.mask
        added = self.added(batch, advantages, found) if self.previous else torch.zeros_like(advantages)
        self.learn(batch, found)
        return advantages + added

    def added(self, batch: "RolloutBatch", advantages: Tensor, found: dict[str, Tensor]) -> Tensor:
        """(B,) or (B, T), as ``advantages``."""
        config = self.config
        phi, weight = compute_auxiliary_signal(*self.deviations(found), config.gain)
        scale = config.weight * (1 - (self.score + 1) / 2) if config.fade else config.weight
        wanted = phi.to(advantages.dtype) if advantages.dim() == 1 else phi.to(advantages.dtype)[:, None]
        made = compute_rank_bonus(advantages, wanted, scale, config.kappa)
        if advantages.dim() == 2:
            made = made * (last_tokens(batch.mask) if config.place == "last token" else batch.mask)
        largest = made.view(len(phi), -1).amax(1)
        self.log("bonus", made.mean())
        self.log("capped", ((largest > 0) & (largest < scale * phi)).float().mean())
        self.log("exploration_weight", weight.mean())
        self.log_histogram("exploration_weights", weight, 0.0, 1.0)
        return made

    def deviations(self, found: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        er, erv, era = (compute_relative_deviation(found[name], self.baselines[name]) for name in NAMES)
        return er, erv, era

    def learn(self, batch: "RolloutBatch", found: dict[str, Tensor]) -> None:
        rate = self.config.rate
        if self.previous:
            self.baselines = {name: (1 - rate) * self.baselines[name] + rate * self.previous[name] for name in NAMES}
            self.score = (1 - rate) * self.score + rate * float(batch.shaped.mean())
        self.previous = {name: float(found[name].mean()) for name in NAMES}

    def report(self, batch: "RolloutBatch", found: dict[str, Tensor]) -> None:
        for name, values in found.items():
            self.log(name, values.mean())
            for kind, chosen in (("right", batch.correct), ("wrong", ~batch.correct)):
                if chosen.any():
                    self.log(f"{name}_{kind}", values[chosen].mean())

    def state(self) -> dict[str, Any]:
        return {"baselines": dict(self.baselines), "previous": dict(self.previous), "score": self.score}

    def restore(self, state: dict[str, Any]) -> None:
        self.baselines, self.previous, self.score = dict(state["baselines"]), dict(state["previous"]), state["score"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Effective rank of completions",
                (Series(f"{name}/er", "all"), Series(f"{name}/er_right", "right"), Series(f"{name}/er_wrong", "wrong")),
                help="Effective number of directions of a completion's hidden states.",
            ),
            Panel(
                "Velocity and acceleration of the rank",
                (
                    Series(f"{name}/erv", "velocity"),
                    Series(f"{name}/era", "acceleration"),
                    Series(f"{name}/era_right", "acceleration, right"),
                    Series(f"{name}/era_wrong", "acceleration, wrong"),
                ),
                help="High acceleration favours exploration, low acceleration exploitation.",
            ),
            Panel(
                "Bonus",
                (
                    Series(f"{name}/bonus", "mean bonus"),
                    Series(f"{name}/capped", "share at the cap"),
                    Series(f"{name}/exploration_weight", "weight of exploration", dashed=True),
                ),
            ),
            Panel("Weight of exploration", (Series(f"{name}/exploration_weights"),), "histogram", low=0.0, high=1.0),
        )


def last_tokens(mask: Tensor) -> Tensor:
    """(B, T) -> (B, T): 1 at the last token of each row."""
    left = mask.flip(1).cumsum(1).flip(1)
    return mask * (left == 1)
