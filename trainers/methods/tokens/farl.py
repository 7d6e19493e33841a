"""FARL: unlearns the direct answer while learning to reason (arXiv 2509.24156).

A policy may answer correctly from memory, with reasoning that has no influence. In addition to GRPO, FARL therefore pushes it away from this shortcut
on the same prompts. M is the set of tokens of the gold answer after an empty chain of thought; loss term = coefficient * mean over M of -log
sigmoid(log pi_ref - log pi) (NPO). Its gradient, d/d log pi = coefficient / |M| * sigmoid(log pi - log pi_ref), fades once the shortcut is far less
likely than before. It assumes one gold answer per prompt (example.reference). The KL to the reference (0.001) is the base's beta. Step time: two
forward passes over one short sequence per prompt (policy and reference), and one backward pass.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.imitation import different_examples
from trainers.tasks.answers import ANSWER, write_answer

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch
    from trainers.methods.context import RunContext


def forget_loss(logprobs: Tensor, reference: Tensor, mask: Tensor, count: Tensor | float | None = None) -> Tensor:
    """(B, T) each -> scalar: token-level negative preference optimisation, averaged over the mask, or its sum divided by ``count``."""
    return masked_mean(-logsigmoid(reference - logprobs), mask, count)


def answer_tokens(pieces: list[str], start: int, end: int) -> list[float]:
    """1 for each token text that contains any of the characters [start, end)."""
    marks, before = [], 0
    for piece in pieces:
        marks.append(float(before < end and before + len(piece) > start))
        before += len(piece)
    return marks


class Config(Strict):
    weight: float = param(0.01, "Weight of the forgetting term.", title="NPO coefficient", ge=0, le=100)


class FARL(Method):
    card = Card(
        name="farl",
        title="Forgetting-augmented reinforcement learning",
        arxiv="2509.24156",
        system="FARL",
        base="grpo",
        provenance="code",
        source="github ZJUWYH/FARL: train/farl.py, script/run_farl.sh, loss npo_logistic_gate in the readme",
        fit="core",
        idea="Make the policy forget the direct answer (without reasoning) to each training prompt, so that only reasoning can earn the reward.",
        formula=(r"L = L_{GRPO} + \frac{c}{|M|} \sum_{t \in M} -\log \sigma\left(\log \pi_{ref}(y_t) - \log \pi_\theta(y_t)\right)",),
        departures=(
            "GRPO's update and the forgetting are one loss; the authors' code makes two separate updates.",
            "In the direct answer, only the answer tokens are in the loss; the authors' code masks a fixed number of tokens.",
            "The paper's perturbation tests are not part of training.",
        ),
        claim=("farl/bare_probability", "lower"),
    )
    Config = Config

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def targets(self, references: list[str]) -> tuple[list[list[int]], Tensor]:
        """Token ids of direct answers and the mask (B, T) of the answer tokens in them."""
        texts = [write_answer([], reference) for reference in references]
        ids = [self.run.completion_ids(text, end=False) for text in texts]
        marks = []
        for text, row, reference in zip(texts, ids, references, strict=True):
            start = text.index(ANSWER) + len(ANSWER)
            marks.append(answer_tokens([self.run.tokenizer.decode([token]) for token in row], start, start + len(reference)))
        longest = max(map(len, marks))
        return ids, torch.tensor([row + [0.0] * (longest - len(row)) for row in marks], device=self.run.device)

    def loss(self, batch: "LossBatch") -> Tensor | None:  # type: ignore[override]
        known = {number: example for number, example in different_examples(batch).items() if example.reference}
        weights = {number: weight for number, weight in batch.weights_of(batch.rollout.example_ids).items() if number in known}
        if not weights:
            return None
        prompts = self.run.prompt_ids([known[number].prompt for number in weights])
        answers, mask = self.targets([known[number].reference for number in weights])
        _, everywhere = self.targets([example.reference for example in known.values()])
        with torch.set_grad_enabled(self.config.weight > 0):
            logprobs, _ = self.run.logprobs(prompts, answers)
        with torch.no_grad():
            reference, _ = self.run.logprobs(prompts, answers, self.run.reference)
        self.report(logprobs.detach(), reference, mask)
        term = forget_loss(logprobs, reference, mask * mask.new_tensor(list(weights.values()))[:, None], everywhere.sum())
        self.log("forget_loss", term)
        return self.config.weight * term

    def report(self, logprobs: Tensor, reference: Tensor, mask: Tensor) -> None:
        self.log("bare_probability", (logprobs * mask).sum(1).exp().mean())
        self.log("bare_probability_reference", (reference * mask).sum(1).exp().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Probability of the direct answer",
                (Series("farl/bare_probability", "policy"), Series("farl/bare_probability_reference", "reference", dashed=True)),
                help="Probability of the correct answer right after an empty chain of thought, on the prompts of the step.",
            ),
            Panel(
                "Loss terms", (Series("loss", "total loss"), Series("farl/loss", "forgetting, weighted"), Series("farl/forget_loss", "forgetting"))
            ),
        )
