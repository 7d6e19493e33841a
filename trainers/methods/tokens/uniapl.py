"""UniAPL: imitation, reward and a fixed discriminator in one loss (arXiv 2509.25148), our interpretation of the abstract.

L = lam_sft * cross-entropy on the teacher's answer + the base's GRPO loss + lam_adv * L_adv. A fixed discriminator D scores how similar a sample of
the student is to the teacher's answer to the same prompt; a_i = D_i - mean of the group, and L_adv = -mean over samples of a_i times the mean
log-probability of its tokens. Samples that are more similar to the teacher's answer than the rest of their group become more likely. It differs from
GRPO in the two added terms; the reward and its advantage stay unchanged (public reviews say the adversarial term works best as a separate loss).
Without the reward it is A-SFT, without imitation A-GRPO. Both weights, and the term's form as a policy gradient without importance ratio, are our
choices: the abstract has no equations. The teacher's answer is the task's gold completion; the discriminator is the cosine of character n-grams of
both texts instead of a pretrained preference model. A prompt without a gold completion has only a GRPO loss. Step time: one forward and backward pass
over one gold answer per prompt (B / G rows).
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import centre_by_group
from trainers.maths.reduce import masked_mean, masked_row_mean
from trainers.maths.similarity import compute_text_similarity
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.imitation import gold_answer, gold_loss

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext


def adversarial_loss(preference: Tensor, logprobs: Tensor, mask: Tensor) -> Tensor:
    """(B,) centred discriminator scores, (B, T) log-probabilities -> scalar."""
    return -(preference * masked_row_mean(logprobs, mask)).mean()


class Config(Strict):
    imitation: float = param(0.1, "Weight of the cross-entropy on gold answers.", title="Imitation (lambda SFT)", ge=0, le=100)
    adversarial: float = param(0.1, "Weight of the discriminator's term; too large a value hurts.", title="Adversarial (lambda adv)", ge=0, le=100)


class UniAPL(Method):
    card = Card(
        name="uniapl",
        title="Unified adversarial preference learning",
        arxiv="2509.25148",
        system="UniAPL (A-GRPO)",
        base="grpo",
        provenance="abstract",
        source="abstract; public ICLR reviews for the fixed discriminator and the separate term",
        fit="core",
        idea=(
            "In every step, learn from the teacher's answers, from the reward, and from how similar the policy's samples are to "
            "the teacher's answers."
        ),
        formula=(
            r"L = \lambda_{sft} L_{CE}(y^*) + L_{GRPO} + \lambda_{adv} L_{adv}",
            r"L_{adv} = -\frac{1}{G} \sum_i \left(D_i - \bar D\right) \frac{1}{|y_i|} \sum_t \log \pi_\theta(y_{it})",
        ),
        reading="the equations and both weights are our choices; text similarity replaces the pretrained discriminator",
        departures=("Text similarity replaces the pretrained discriminator.",),
        claim=("uniapl/similarity", "higher"),
    )
    Config = Config

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.preference: Tensor | None = None  # (B,) of the sampled batch

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def observe(self, batch: "RolloutBatch") -> None:
        golds = [gold_answer(self.run, example) for example in batch.examples]
        known = torch.tensor([gold is not None for gold in golds], device=batch.mask.device)
        alikeness = [0.0 if gold is None else compute_text_similarity(text, gold) for text, gold in zip(batch.texts, golds, strict=True)]
        scores = torch.tensor(alikeness, dtype=batch.mask.dtype, device=batch.mask.device)
        self.preference = centre_by_group(scores, batch.group_size)
        if known.any():
            self.report(batch, scores[known], [gold for gold in golds if gold is not None])

    def report(self, batch: "RolloutBatch", scores: Tensor, golds: list[str]) -> None:
        lengths = {gold: len(self.run.completion_ids(gold)) for gold in set(golds)}
        self.log("similarity", scores.mean())
        self.log_histogram("similarities", scores, 0.0, 1.0)
        self.log("length", batch.lengths.mean())
        self.log("length_teacher", sum(lengths[gold] for gold in golds) / len(golds))

    def loss(self, batch: "LossBatch") -> Tensor:  # type: ignore[override]
        assert self.preference is not None
        total = adversarial_loss(batch.of(self.preference), batch.logprobs, batch.mask)
        self.log("adversarial_loss", total)
        self.log("logprob", masked_mean(batch.logprobs.detach(), batch.mask))
        total = self.config.adversarial * total
        with torch.set_grad_enabled(self.config.imitation > 0):
            imitation = gold_loss(self.run, batch)
        if imitation is not None:
            self.log("imitation_loss", imitation)
            self.log("logprob_teacher", -imitation)
            total = total + self.config.imitation * imitation
        return total

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Loss terms",
                (
                    Series("loss", "total loss"),
                    Series("uniapl/imitation_loss", "cross-entropy on gold answers"),
                    Series("uniapl/adversarial_loss", "adversarial"),
                ),
                help="The two terms before they are weighted.",
            ),
            Panel("Length", (Series("uniapl/length", "student"), Series("uniapl/length_teacher", "teacher", dashed=True)), unit="tokens"),
            Panel(
                "Log-probability",
                (Series("uniapl/logprob", "student's answers"), Series("uniapl/logprob_teacher", "teacher's answers")),
                unit="nats per token",
            ),
            Panel(
                "Similarity to the teacher",
                (Series("uniapl/similarities"),),
                "histogram",
                low=0.0,
                high=1.0,
                help="Similarity of the step's samples.",
            ),
        )
