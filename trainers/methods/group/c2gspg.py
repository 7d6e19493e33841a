"""C2GSPG: confidence-calibrated group sequence policy gradient (arXiv 2509.23129).

c_i = exp(mean_t log pi(o_it)) is the policy's confidence in a whole response, and m is the group's mean reward. The method maximises the mean over
responses of A_i log c_i + beta (r_i log c_i + (1 - r_i) log(1 - c_i)) with A_i = (r_i - m) / (1 - c_i(old) + 1e-6), detached. It differs from GRPO in
two ways: it uses one log-confidence per response instead of clipped token ratios, and it adds a cross-entropy that pulls the confidence towards the
reward. For rewards of 0 and 1 the two gradients combine: log c_i gets the weight [(r_i - m) + beta (r_i - c_i)] / (1 - c_i).

The official code was not found. The binary case follows a comparison implementation (DCPO). The other case is our choice, based on the abstract's
words "nonlinear reward normalisation and adaptive regulariser clipping": in a batch with rewards other than 0 and 1, the target is sigmoid((r - m) /
(std + 1e-4)), and the cross-entropy of a response is dropped if its target and its advantage would move its confidence in opposite directions. There
is no importance ratio, so several passes over a batch are not corrected for; the paper is on-policy.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import centre_by_group, z_score
from trainers.maths.reduce import masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch

BOUND = -1e-6  # log confidence is at most this
BINS = 10  # of the calibration error


def log_confidence(logprobs: Tensor, mask: Tensor) -> Tensor:
    """(B, T) -> (B,): mean log-probability of a response's tokens."""
    return masked_row_mean(logprobs, mask).clamp(max=BOUND)


def calibrated_advantages(gaps: Tensor, old_log_confidence: Tensor) -> Tensor:
    """(B,) reward minus the group's mean, (B,) -> (B,)."""
    return gaps / (-torch.expm1(old_log_confidence) + 1e-6)


def cross_entropy(log_c: Tensor, targets: Tensor) -> Tensor:
    """(B,), (B,) -> (B,): r log c + (1 - r) log(1 - c), to be maximised."""
    return targets * log_c + (1 - targets) * torch.log(-torch.expm1(log_c))


def calibration_targets(rewards: Tensor, group_size: int) -> tuple[Tensor, bool]:
    """(B,) -> (B,) in [0, 1], and whether the rewards are all 0 or 1, in which case they are their own targets."""
    binary = bool(((rewards == 0) | (rewards == 1)).all())
    return (rewards, True) if binary else (torch.sigmoid(z_score(rewards, group_size)), False)


def mask_agreeing_rows(targets: Tensor, gaps: Tensor, log_c: Tensor) -> Tensor:
    """(B,) float: 1 where the target and the advantage move the confidence in the same direction."""
    return (torch.sign(targets - log_c.detach().exp()) == torch.sign(gaps)).to(targets.dtype)


def calibration_error(confidence: Tensor, correct: Tensor) -> Tensor:
    """(B,), (B,) -> scalar: expected calibration error over equal bins of confidence."""
    places = (confidence * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS, device=confidence.device, dtype=confidence.dtype).index_add(0, places, confidence - correct)
    return gaps.abs().sum() / max(len(confidence), 1)


class Config(Strict):
    beta: float = param(0.01, "Weight of the cross-entropy between confidence and reward.", title="Calibration weight (beta)", ge=0, le=100)


class C2GSPG(Method):
    card = Card(
        name="c2gspg",
        title="Confidence-calibrated sequence policy gradient",
        arxiv="2509.23129",
        system="C2GSPG (CCGSPG)",
        base="grpo",
        provenance="code",
        source="github icip-cas/DCPO: verl/trainer/ppo/core_algos.py (a comparison implementation); the abstract for other rewards",
        fit="core",
        idea="Treat the sequence probability as the policy's confidence, and pull that confidence towards the reward.",
        formula=(
            r"c_i = \exp\left(\frac{1}{|o_i|}\sum_t \log \pi_\theta(o_{it})\right), \quad A_i = \frac{r_i - \bar r}{1 - c_i^{old}}",
            r"J = \frac{1}{G}\sum_i A_i \log c_i + \beta \left(r_i \log c_i + (1 - r_i)\log(1 - c_i)\right)",
        ),
        departures=(
            "The official code was not found; the binary case follows a comparison implementation.",
            "For rewards other than 0 and 1, the target and the dropped terms are our interpretation of the abstract.",
            "A row without tokens is dropped; in the comparison code its advantage is divided by 1e-6.",
            "The upper bound on the confidence is 1 - 1e-6, because 1 - 1e-8 rounds to 1 in float32.",
        ),
        claim=("c2gspg/calibration_error", "lower"),
    )
    Config = Config
    roles = {"advantages": "makes"}
    owns = frozenset({"advantages", "policy loss"})
    whole_answers = True
    requires = (
        Requirement("training.num_iterations", "at most", 1, "without an importance ratio, later passes over a batch are not corrected", hard=False),
    )

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        return centre_by_group(batch.shaped, batch.group_size)

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        there = (batch.mask.sum(1) > 0).to(batch.logprobs.dtype)  # (B,)
        log_c, old = log_confidence(batch.logprobs, batch.mask), log_confidence(batch.old_logprobs, batch.mask)
        gaps = batch.advantages if batch.advantages.dim() == 1 else masked_row_mean(batch.advantages, batch.mask)
        every, binary = calibration_targets(batch.rollout.shaped, batch.rollout.group_size)
        targets = batch.of(every)
        calibration = cross_entropy(log_c, targets)
        if not binary:
            kept = mask_agreeing_rows(targets, gaps, log_c)
            self.log("dropped", 1 - kept.mean())
            calibration = calibration * kept
        gain = calibrated_advantages(gaps, old) * log_c + self.config.beta * calibration
        if batch.first_pass:
            self.report(old.exp()[there > 0], batch.of(batch.rollout.correct)[there > 0])
        return -(gain * there).mean()

    def report(self, confidence: Tensor, correct: Tensor) -> None:
        if not len(confidence):
            return
        right = correct.to(confidence.dtype)
        self.log("calibration_error", calibration_error(confidence, right))
        self.log("brier", ((confidence - right) ** 2).mean())
        self.log("confidence", confidence.mean())
        self.log("accuracy", right.mean())
        for name, chosen in (("right", correct), ("wrong", ~correct)):
            if chosen.any():
                self.log(f"confidence_{name}", confidence[chosen].mean())
                self.log_histogram(f"confidences_{name}", confidence[chosen], 0.0, 1.0)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Confidence vs accuracy",
                (
                    Series("c2gspg/confidence", "confidence"),
                    Series("c2gspg/confidence_right", "correct answers"),
                    Series("c2gspg/confidence_wrong", "wrong answers"),
                    Series("c2gspg/accuracy", "accuracy", dashed=True),
                ),
                help="For a calibrated policy, mean confidence equals accuracy.",
            ),
            Panel("Calibration", (Series("c2gspg/calibration_error", "expected calibration error"), Series("c2gspg/brier", "Brier score"))),
            Panel("Confidence in correct answers", (Series("c2gspg/confidences_right"),), "histogram", low=0.0, high=1.0),
            Panel("Confidence in wrong answers", (Series("c2gspg/confidences_wrong"),), "histogram", low=0.0, high=1.0),
        )
