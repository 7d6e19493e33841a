"""SIRI: RL with an oscillating length limit (arXiv 2509.25176).

A completion is correct only if the answer is in its first L(t) tokens. L oscillates between a longest and a shortest limit: cosine L = mid + amp
cos(2 pi t / T); stair = the longest for half a cycle, then the shortest; stair-cosine = a cosine with flat top and bottom. Phases with a short limit
compress the reasoning; phases with a long limit leave room to explore. Nothing else changes; the paper's clip range [0.8, 1.28] and token mean are
those of the base dapo, without KL.

t counts from 0 at the first step. It differs from a length reward (rmt) in that a long completion is truncated, not penalised. It assumes that
truncated completions get no reward, which the strict format of the built-in tasks ensures.
"""

import math
from typing import TYPE_CHECKING, Literal

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion

Schedule = Literal["cosine", "stair", "stair-cosine"]


def compute_length_limit(step: int, cycle: int, longest: float, shortest: float, schedule: Schedule) -> float:
    """Max completion tokens in step ``step`` (from 0)."""
    mid, amplitude = (longest + shortest) / 2, (longest - shortest) / 2
    place = step % cycle / cycle  # of the cycle, in [0, 1)
    if schedule == "stair":
        return longest if place < 0.5 else shortest
    angle = 2 * math.pi * place
    if schedule == "stair-cosine":
        angle = compute_stair_angle(place)
    return mid + amplitude * math.cos(angle)


def compute_stair_angle(place: float) -> float:
    """Angle of the stair-cosine at a fraction of the cycle: constant for an eighth on both sides of top and bottom, twice as fast in between."""
    if place < 1 / 8 or place >= 7 / 8:
        return 0.0
    if 3 / 8 <= place < 5 / 8:
        return math.pi
    return 2 * (2 * math.pi * place - (math.pi / 4 if place < 3 / 8 else 3 * math.pi / 4))


class Config(Strict):
    schedule: Schedule = param("cosine", "How the limit oscillates between longest and shortest.", title="Schedule")
    cycle: int = param(40, "Steps per cycle; the paper's best is 640.", title="Cycle (T)", unit="steps", ge=2, le=1_000_000)
    longest: int = param(
        0,
        "Longest limit (paper: 16384); 0 = the run's max completion tokens, which is the upper limit in any case.",
        title="Longest limit (Lmax)",
        unit="tokens",
        ge=0,
    )
    shortest: float = param(0.5, "Shortest limit as a share of the longest (paper: 8192 of 16384).", title="Shortest share", gt=0, le=1)


class SIRI(Method):
    card = Card(
        name="siri",
        title="Interleaved compression",
        arxiv="2509.25176",
        system="SIRI",
        base="dapo",
        provenance="paper",
        source="arXiv 2509.25176: reward, schedules and objective",
        fit="core",
        idea="Let the length limit oscillate: phases with a short limit teach the policy to be concise, phases with a long limit let it explore.",
        formula=(
            r"L(t) = \frac{L_{\max} + L_{\min}}{2} + \frac{L_{\max} - L_{\min}}{2} \cos\left(\frac{2 \pi t}{T}\right)",
            r"R(y) = \mathbf{1}\left[\mathrm{answer}(y_{1..L(t)}) = \mathrm{reference}\right]",
        ),
        departures=(
            "The stair changes at half a cycle; the paper does not specify this.",
            "The limit is rounded before sampling, so that generation stops there instead of being truncated afterwards.",
            "Limits and cycle are set for the run; the paper uses 16384, 8192 and 640.",
            "The export of policies at minima and maxima of the limit is not implemented.",
        ),
        claim=("completions/mean_length", "lower"),
    )
    Config = Config
    owns = frozenset({"rollout"})

    def limit_at(self, step: int, most: int) -> int:
        """Whole tokens in optimiser step ``step`` (from 1); never more than the run allows."""
        config = self.config
        longest = min(config.longest or most, most)
        return max(1, round(compute_length_limit(step - 1, config.cycle, longest, max(1.0, config.shortest * longest), config.schedule)))

    def rollout(self, session: "Session") -> "list[Completion]":
        tokens = self.limit_at(session.step, session.max_tokens)
        made = session.complete(max_tokens=tokens)
        self.log("limit", float(tokens))
        self.log("cut", sum(one.finish_reason == "length" for one in made) / len(made))
        return made

    def observe(self, batch: "RolloutBatch") -> None:
        self.log("length", batch.lengths.mean())
        self.log("accuracy", batch.correct.float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Length limit",
                (Series("siri/limit", "limit L(t)", dashed=True), Series("siri/length", "mean length")),
                unit="tokens",
                help="Length follows the limit with a delay: the policy learns it and is not only truncated.",
            ),
            Panel(
                "Correct and truncated completions",
                (Series("siri/accuracy", "correct"), Series("siri/cut", "truncated")),
                help="Accuracy falls in phases with a short limit and should recover to a higher level in each phase with a long limit.",
            ),
        )
