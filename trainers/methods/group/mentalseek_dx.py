"""MentalSeek-Dx: rewards that move from the category over the hypotheses to the exact answer (arXiv 2602.03340).

R = a1 R_cat + a2 R_hypo + a3 R_diff: the category is right; the right answer is the i-th hypothesis, worth 1 - (i - 1) / 4 for i <= 4; the answer
itself is right. Training has five parts of equal length with weights (1, 0, 0), (1, 0, 0), (.5, .5, 0), (.3, .4, .3) and (.2, .3, .5). A completion
of the wrong form gets 0. Everything else is GRPO. The card, written from the abstract, guessed a linear hand-over from category to answer, a bonus
for the form and a sampler from easy to hard; the code has none of them, and so has this.

A category is ``category`` of an example's data where a dataset has one, else the band of ``band`` numbers that a number lies in (5 by default, near
the paper's 76 disorders in 16 categories), else a word's first letter. The hypotheses are what the working arrives at, the last first: the right
sides of equations, or else its words; a short name of three letters or more (Thu) stands for what it begins. Step time was x 1.22 of the parent's in
one comparison beside other work; the hooks only read the text of each completion.
"""

import re
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.texts.spans import extract_answer, thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.tasks.base import Example

STAGES = ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.3, 0.4, 0.3), (0.2, 0.3, 0.5))  # weights of category, hypothesis, answer
EXACT = (0.0, 0.0, 1.0)
RANKS = 4  # hypotheses that count
SHORT = 3  # letters that a short name has at least


def stage_of(step: int, total: int) -> int:
    """Which of the five parts of the run a step belongs to; steps count from 1."""
    return min(len(STAGES) - 1, (step - 1) * len(STAGES) // max(1, total))


def category_of(answer: str, band: int) -> str:
    """The coarse class of an answer: a number's band, a word's first letter."""
    answer = answer.strip()
    if answer.isascii() and answer.isdigit() and len(answer) <= 9:
        return f"from {int(answer) // band * band}"
    return answer[:1].lower()


def list_hypotheses(text: str) -> list[str]:
    """The candidates of a completion's working, best first, each once."""
    span = thought_span(text)
    words = re.split(r"[\s,;]+", text[slice(*span)]) if span else []
    found = [word.rpartition("=")[2] for word in words if "=" in word] or words
    return list(dict.fromkeys(word for word in reversed(found) if word))


def rank_reward(candidates: list[str], answer: str) -> float:
    """R_hypo: 1 - (i - 1) / 4 where the i-th of the candidates is the right answer and i <= 4, else 0."""
    for place, candidate in enumerate(candidates[:RANKS]):
        if candidate == answer or (len(candidate) >= SHORT and candidate.isalpha() and answer.startswith(candidate)):
            return 1.0 - place / RANKS
    return 0.0


def combine_graded_rewards(category: Tensor, hypothesis: Tensor, exact: Tensor, form: Tensor, weights: tuple[float, float, float]) -> Tensor:
    """(B,) each -> (B,): the weighted reward; 0 for a wrong form."""
    return (weights[0] * category + weights[1] * hypothesis + weights[2] * exact) * form


class Config(Strict):
    schedule: Literal["progressive", "exact"] = param("progressive", "exact: the exact answer alone from the first step on.")
    band: int = param(5, "A number's category is the band of this many numbers it lies in.", ge=1, le=1_000_000)


class MentalSeekDx(Method):
    card = Card(
        name="mentalseek-dx",
        title="Coarse-to-fine process rewards",
        arxiv="2602.03340",
        system="MentalSeek-Dx",
        base="grpo",
        provenance="code",
        source="github sunxiaofupo/MentalSeek-DX: verl/recipe/MentalSeek-Dx/compute_score.py and its training script",
        fit="variant",
        idea="Pay for the right category first, then for having the right answer among the hypotheses, and for the exact answer last.",
        formula=(
            r"R = \alpha_1 R_{\mathrm{cat}} + \alpha_2 R_{\mathrm{hypo}} + \alpha_3 R_{\mathrm{diff}}",
            r"R_{\mathrm{hypo}} = 1[i \le 4]\left(1 - \frac{i - 1}{4}\right)",
        ),
        departures=(
            "The hierarchy is that of the lab's answers: bands of numbers and first letters in place of clinical categories.",
            "Hypotheses are what the working arrives at, the last first.",
            "The stage of supervised reasoning traces is the lab's cold start.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"rewards": "makes"}

    def category(self, example: "Example", answer: str) -> str:
        """Of an answer to ``example``; its own category may be given by a dataset."""
        given = example.data.get("category")
        return str(given) if given is not None and answer == example.reference else category_of(answer, self.config.band)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        said = [extract_answer(text) for text in batch.texts]
        pairs = zip(batch.examples, said, strict=True)
        same = [answer is not None and self.category(one, answer) == self.category(one, one.reference) for one, answer in pairs]
        ranks = [rank_reward(list_hypotheses(text), example.reference) for text, example in zip(batch.texts, batch.examples, strict=True)]
        category, hypothesis = (torch.tensor(values, dtype=rewards.dtype, device=rewards.device) for values in (same, ranks))
        exact, form = batch.correct.to(rewards.dtype), self.form(batch, said)
        stage = stage_of(batch.step, batch.total_steps)
        weights = STAGES[stage] if self.config.schedule == "progressive" else EXACT
        self.report(torch.maximum(category, exact), hypothesis, exact, weights)
        return combine_graded_rewards(torch.maximum(category, exact), hypothesis, exact, form, weights)

    def form(self, batch: "RolloutBatch", said: list[str | None]) -> Tensor:
        """(B,) the task's own judgement of the form where it has one, else whether there is an answer."""
        if "format" in batch.reward_names:
            return batch.rewards[:, batch.reward_names.index("format")].nan_to_num(0.0)
        return torch.tensor([float(answer is not None) for answer in said], device=batch.rewards.device)

    def report(self, category: Tensor, hypothesis: Tensor, exact: Tensor, weights: tuple[float, float, float]) -> None:
        self.log("category_right", category.mean())
        self.log("hypothesis", hypothesis.mean())
        self.log("exact_right", exact.mean())
        self.log("confused_inside", (category - exact).sum() / category.sum().clamp(min=1.0))
        for name, weight in zip(("category", "hypothesis", "exact"), weights, strict=True):
            self.log(f"{name}_weight", weight)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Right at each level",
                (
                    Series(f"{name}/category_right", "category"),
                    Series(f"{name}/hypothesis", "hypotheses"),
                    Series(f"{name}/exact_right", "exact answer"),
                    Series(f"{name}/confused_inside", "confused inside the category", dashed=True),
                ),
            ),
            Panel(
                "Weights of the levels",
                tuple(Series(f"{name}/{level}_weight", level) for level in ("category", "hypothesis", "exact")),
                "stack",
                help="The reward is handed over from the category to the hypotheses and the exact answer.",
            ),
        )
