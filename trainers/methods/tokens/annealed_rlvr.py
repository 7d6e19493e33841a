"""Annealed RLVR: a short burst of imitation at the turning point of a GRPO run (arXiv 2509.23629), our interpretation of the abstract and two reading
notes.

GRPO first learns separate islands of skill, while correct completions get shorter, and then joins them, while completions get longer. Heating starts
when the smoothed mean length of correct completions has passed its minimum (no new minimum for P checks) and the mean reward has passed its knee
(slope over the last checks at most f times the steepest so far). For a few tens of steps, the loss is cross-entropy on H without a policy gradient: H
is the set of prompts solved at least once whose accuracy over the run is below 0.1, each with its first correct completion. Then GRPO continues from
the heated weights ("cooling"). There is one burst per run. It differs from GRPO only in that burst. Our choices: the smoothing, the interval between
checks, both slopes, accuracy as the share of all samples so far, and that heating is postponed while H is empty (with groups of 8, a solved prompt
that was sampled once has an accuracy of at least 1/8). Completions are still sampled during heating, for monitoring. ``at`` starts the burst at a
fixed step instead: the paper's control for a badly timed burst. Step time during heating: one more forward and backward pass over ``answers`` stored
completions, for ``steps`` steps of the run.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.thresholds import is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.imitation import cross_entropy

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext

SMOOTHING = 0.9
WINDOW = 2  # checks that a slope is measured over
PHASES = ("islands", "heating", "web")


def has_passed_minimum(lengths: list[float], patience: int) -> bool:
    """Whether the last ``patience`` values are all above the minimum of the values before them."""
    return len(lengths) > patience and min(lengths[-patience:]) > min(lengths[:-patience])


def past_knee(rewards: list[float], fraction: float) -> bool:
    """Whether the reward has risen and its slope is now at most ``fraction`` times the steepest slope."""
    slopes = [after - before for before, after in zip(rewards, rewards[WINDOW:], strict=False)]
    return bool(slopes) and max(slopes) > 0 and slopes[-1] <= fraction * max(slopes)


def heating_set(accuracies: list[float], solved: list[int], threshold: float) -> list[int]:
    """Indices of the prompts that were solved at least once but have a low accuracy."""
    return [
        place for place, (accuracy, count) in enumerate(zip(accuracies, solved, strict=True)) if count > 0 and not is_at_least(accuracy, threshold)
    ]


class Config(Strict):
    threshold: float = param(0.1, "Accuracy below which prompts solved at least once are used for heating.", title="Accuracy threshold", gt=0, le=1)
    steps: int = param(30, "Number of heating steps.", title="Heating steps", ge=0, le=100_000)
    answers: int = param(32, "Stored completions per heating step.", title="Completions per step", ge=1, le=65_536)
    patience: int = param(2, "Checks without a new minimum length after which the minimum counts as passed.", title="Patience (P)", ge=1, le=1000)
    knee: float = param(0.3, "The reward's knee: the slope is at most this share of the steepest slope.", title="Knee (f)", ge=0, le=1)
    every: int = param(5, "Steps between two checks.", title="Check every (steps)", ge=1, le=100_000)
    at: int = param(0, "Start heating after this step instead, as a control; 0 = at the turning point.", title="Fixed start step", ge=0)


class AnnealedRLVR(Method):
    card = Card(
        name="annealed-rlvr",
        title="Annealed RLVR",
        arxiv="2509.23629",
        system="Annealed-RLVR, CoNet",
        base="grpo",
        provenance="abstract",
        source="abstract; trigger and selection from two reading notes of the ICLR 2026 paper",
        fit="core",
        idea="When correct completions stop getting shorter and the reward levels off, imitate rare successes for a few steps, then continue RL.",
        formula=(
            r"t^* = \min \left\{t : \bar\ell_t > \min_{s < t} \bar\ell_s, \; \dot r_t \le f\, \max_{s < t} \dot r_s\right\}",
            r"H = \left\{q : n_q > 0,\; acc(q) < 0.1\right\}",
            r"L_{heat} = -\frac{1}{|y|} \sum_t \log \pi_\theta(y_t \mid q), \quad q \in H",
        ),
        reading="smoothing, checks, slopes and the accuracy over the whole run are our choices; the notes describe the trigger and the set in words",
        departures=(
            "Heating is postponed while there are no rarely solved prompts.",
            "Completions are still sampled during heating, for monitoring.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"advantages": "gates"}
    owns = frozenset({"stage"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.tried: dict[int, int] = {}  # by example
        self.solved: dict[int, int] = {}
        self.solutions: dict[int, str] = {}  # first right completion
        self.length: float | None = None  # smoothed
        self.reward: float | None = None
        self.lengths: list[float] = []  # at each check
        self.rewards_seen: list[float] = []
        self.started = 0  # first step of heating, 0 = not yet
        self.heated: list[int] = []  # examples

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def phase(self, step: int) -> int:
        if not self.started or step < self.started:
            return 0
        return 1 if step < self.started + self.config.steps else 2

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        if self.phase(batch.step) != 1:
            return advantages
        batch.leave_out(torch.ones_like(batch.finished), "only imitation while heating (annealed-rlvr)")
        return torch.zeros_like(advantages)

    def observe(self, batch: "RolloutBatch") -> None:
        right = batch.correct
        self.count(batch, right.tolist())
        if right.any():
            self.log("length_right", batch.lengths[right].mean())
            self.length = smooth_value(self.length, float(batch.lengths[right].mean()))
        self.reward = smooth_value(self.reward, float(batch.reward.mean()))
        self.log("phase", float(self.phase(batch.step)))
        self.log("length_smoothed", self.length or 0.0)
        self.log("reward_smoothed", self.reward)
        if not self.started and batch.step % self.config.every == 0:
            self.check(batch.step)
        self.log("heating_set", float(len(self.heated)))

    def count(self, batch: "RolloutBatch", right: list[bool]) -> None:
        for example, text, correct in zip(batch.example_ids, batch.texts, right, strict=True):
            self.tried[example] = self.tried.get(example, 0) + 1
            if correct:
                self.solved[example] = self.solved.get(example, 0) + 1
                self.solutions.setdefault(example, text)

    def check(self, step: int) -> None:
        """Starts heating with the next batch if the trigger has fired and the heating set is not empty."""
        if self.length is None or self.reward is None:
            return
        self.lengths.append(self.length)
        self.rewards_seen.append(self.reward)
        due = (
            step >= self.config.at
            if self.config.at
            else has_passed_minimum(self.lengths, self.config.patience) and past_knee(self.rewards_seen, self.config.knee)
        )
        if due and (found := self.candidates()):
            self.started, self.heated = step + 1, found

    def candidates(self) -> list[int]:
        examples = sorted(self.solutions)
        accuracies = [self.solved[example] / self.tried[example] for example in examples]
        return [examples[place] for place in heating_set(accuracies, [self.solved[example] for example in examples], self.config.threshold)]

    def loss(self, batch: "LossBatch") -> Tensor | None:  # type: ignore[override]
        if self.phase(batch.rollout.step) != 1:
            return None
        rng = self.run.rng("annealed-rlvr", batch.step)
        chosen = rng.sample(self.heated, min(self.config.answers, len(self.heated)))
        term = cross_entropy(self.run, [self.run.examples[place].prompt for place in chosen], [self.solutions[place] for place in chosen])
        self.log("heating_loss", term)
        return term

    def state(self) -> dict[str, Any]:
        names = ("tried", "solved", "solutions", "length", "reward", "lengths", "rewards_seen", "started", "heated")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        shaded: dict[str, Any] = {"kind": "phases", "phase": "annealed-rlvr/phase", "phase_names": PHASES}
        return (
            Panel(
                "Length of correct completions",
                (Series("annealed-rlvr/length_right", "per step"), Series("annealed-rlvr/length_smoothed", "smoothed", dashed=True)),
                unit="tokens",
                help="Falls while islands of skill form, rises while they are joined. Heating starts after the minimum.",
                **shaded,
            ),
            Panel("Reward", (Series("reward", "per step"), Series("annealed-rlvr/reward_smoothed", "smoothed", dashed=True)), **shaded),
            Panel("Heating", (Series("annealed-rlvr/heating_loss", "cross-entropy on the heating set"),), unit="nats"),
        )


def smooth_value(before: float | None, now: float) -> float:
    return now if before is None else SMOOTHING * before + (1 - SMOOTHING) * now
