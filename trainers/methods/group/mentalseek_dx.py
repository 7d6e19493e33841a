"""MentalSeek-Dx: rewards that move from the category through the hypotheses to the exact answer (arXiv 2602.03340).

R = a1 R_cat + a2 R_hypo + a3 R_diff. R_cat: the category is correct. R_hypo: the correct answer is the i-th hypothesis, worth 1 - (i - 1) / 4 for i
<= 4. R_diff: the answer itself is correct. Training has five stages of equal length with weights (1, 0, 0), (1, 0, 0), (.5, .5, 0), (.3, .4, .3) and
(.2, .3, .5). A completion with a wrong format gets 0. Everything else is GRPO. An earlier summary, written from the abstract, guessed a linear shift
from category to answer, a format bonus and an easy-to-hard sampler; the authors' code has none of these, and neither has this.

The category of an answer is ``category`` of the example's data if the dataset has one, else the band of ``band`` numbers that contains it (5 by
default, similar to the paper's 76 disorders in 16 categories), else a word's first letter. The hypotheses are the results of the reasoning, the last
one first: the right-hand sides of equations, or otherwise its words; a short name of three letters or more (Thu) matches any answer it is a prefix
of. Step time was 1.22 times the parent's in one comparison on a machine with other load; the hooks only read the text of each completion.
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
    """Which of the five stages a step belongs to; steps count from 1."""
    return min(len(STAGES) - 1, (step - 1) * len(STAGES) // max(1, total))


def category_of(answer: str, band: int) -> str:
    """The coarse class of an answer: a number's band, or a word's first letter."""
    answer = answer.strip()
    if answer.isascii() and answer.isdigit() and len(answer) <= 9:
        return f"from {int(answer) // band * band}"
    return answer[:1].lower()


def list_hypotheses(text: str) -> list[str]:
    """The candidate answers in a completion's reasoning, best first, without duplicates."""
    span = thought_span(text)
    words = re.split(r"[\s,;]+", text[slice(*span)]) if span else []
    found = [word.rpartition("=")[2] for word in words if "=" in word] or words
    return list(dict.fromkeys(word for word in reversed(found) if word))


def rank_reward(candidates: list[str], answer: str) -> float:
    """R_hypo: 1 - (i - 1) / 4 if the i-th candidate is the correct answer and i <= 4, else 0."""
    for place, candidate in enumerate(candidates[:RANKS]):
        if candidate == answer or (len(candidate) >= SHORT and candidate.isalpha() and answer.startswith(candidate)):
            return 1.0 - place / RANKS
    return 0.0


def combine_graded_rewards(category: Tensor, hypothesis: Tensor, exact: Tensor, form: Tensor, weights: tuple[float, float, float]) -> Tensor:
    """(B,) each -> (B,): the weighted reward; 0 for a wrong format."""
    return (weights[0] * category + weights[1] * hypothesis + weights[2] * exact) * form


class Config(Strict):
    schedule: Literal["progressive", "exact"] = param("progressive", "exact rewards only the exact answer, from the first step on.")
    band: int = param(5, "Size of a number band; a number's category is the band that contains it.", ge=1, le=1_000_000)


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
        idea="First reward the correct category, then the correct answer among the hypotheses, and finally the exact answer.",
        formula=(
            r"R = \alpha_1 R_{\mathrm{cat}} + \alpha_2 R_{\mathrm{hypo}} + \alpha_3 R_{\mathrm{diff}}",
            r"R_{\mathrm{hypo}} = 1[i \le 4]\left(1 - \frac{i - 1}{4}\right)",
        ),
        departures=(
            "The hierarchy is that of the lab's answers: number bands and first letters instead of clinical categories.",
            "Hypotheses are the results of the reasoning, the last one first.",
            "The lab's cold start replaces the stage of supervised reasoning traces.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"rewards": "makes"}

    def category(self, example: "Example", answer: str) -> str:
        """Category of an answer to ``example``; a dataset may give the correct answer's category."""
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
        """(B,) the task's own format reward if it has one, else whether there is an answer."""
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
                "Accuracy at each level",
                (
                    Series(f"{name}/category_right", "category"),
                    Series(f"{name}/hypothesis", "hypotheses"),
                    Series(f"{name}/exact_right", "exact answer"),
                    Series(f"{name}/confused_inside", "correct category, wrong answer", dashed=True),
                ),
            ),
            Panel(
                "Level weights",
                tuple(Series(f"{name}/{level}_weight", level) for level in ("category", "hypothesis", "exact")),
                "stack",
                help="The reward shifts from the category to the hypotheses and then to the exact answer.",
            ),
        )
