"""MentalSeek-Dx: rewards and prompts that move from the coarse category to the exact answer (arXiv 2602.03340).

An answer d belongs to a category c. r(s) = w_c(s) 1[category right] + w_d(s) 1[answer right] + w_f 1[form right] with w_c = 1 - s, w_d = s and s the
progress of training in [0, 1]; prompts are drawn with weight exp(-(difficulty - s difficulty_max)^2 / (2 sigma^2)), so hard ones come late.

Our reading throughout: the abstract alone was read, and it has no formula. The clinical data is not public; the hierarchy here is that of answers:
``category`` of an example's data where a dataset has one, else the band of ``band`` numbers that a number lies in (5 by default, near the paper's 76
disorders in 16 categories), else a word's first letter. Difficulty is what the card says: how many other answers of the training data share the
category. The stage of supervised reasoning traces is the lab's cold start. Differs from GRPO in the reward and the order of prompts only.
In the toy problem of the effect case it does the opposite of what is hoped: paid for the category alone at first, a policy without shared features
settles on one answer of it, and the exact one is seldom sampled when its time comes.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.spans import answer_of

if TYPE_CHECKING:
    from trainers.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History
    from trainers.tasks.base import Example


def category_of(answer: str, band: int) -> str:
    """The coarse class of an answer: a number's band, a word's first letter."""
    answer = answer.strip()
    if answer.isascii() and answer.isdigit() and len(answer) <= 9:
        return f"from {int(answer) // band * band}"
    return answer[:1].lower()


def crowding(answers: Sequence[str], categories: Sequence[str]) -> list[int]:
    """How many other answers share each answer's category."""
    members: dict[str, set[str]] = defaultdict(set)
    for answer, category in zip(answers, categories, strict=True):
        members[category].add(answer)
    return [len(members[category]) - 1 for category in categories]


def hand_over(progress: float, coarse: float) -> tuple[float, float]:
    """Weights of the category and of the exact answer; ``coarse`` is the category's at the start."""
    return coarse * (1 - progress), 1 - coarse * (1 - progress)


def graded(category: Tensor, exact: Tensor, form: Tensor, progress: float, coarse: float, form_weight: float) -> Tensor:
    """(B,) indicators -> (B,): r(s)."""
    weight, exact_weight = hand_over(progress, coarse)
    return weight * category + exact_weight * exact + form_weight * form


def easy_to_hard(difficulties: Tensor, progress: float, width: float) -> Tensor:
    """(number of examples,) -> sampling weights; ``width``: sigma as a share of the largest difficulty."""
    largest = difficulties.max().clamp(min=1.0)
    return torch.exp(-(((difficulties - progress * largest) / (width * largest)) ** 2) / 2)


class Config(Strict):
    coarse: float = param(
        1.0, "Weight of the category when training starts; falls to 0 in a straight line. 0 pays the exact answer alone.", ge=0, le=1
    )
    form_weight: float = param(0.1, "Weight of a right form.", title="Form weight (w_f)", ge=0, le=10)
    width: float = param(0.5, "Spread of the prompts drawn, as a share of the largest difficulty; large values draw all alike.", gt=0, le=1000)
    band: int = param(5, "A number's category is the band of this many numbers it lies in.", ge=1, le=1_000_000)


class MentalSeekDx(Method):
    card = Card(
        name="mentalseek-dx",
        title="Coarse-to-fine hypothetico-deductive rewards",
        arxiv="2602.03340",
        system="MentalSeek-Dx",
        base="grpo",
        provenance="abstract",
        source="abstract only",
        fit="variant",
        idea="Pay for the right category first and for the exact answer later, and draw prompts with few lookalikes before those with many.",
        formula=(
            r"r(s) = (1 - s)\,1[\hat c = c] + s\,1[\hat d = d] + w_f\,1[\mathrm{form}]",
            r"p_j(s) \propto \exp\left(-\frac{(k_j - s\,k_{\max})^2}{2 \sigma^2}\right)",
        ),
        reading="the abstract has no formula: hand-over, categories of answers and the curriculum are ours",
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    owns = frozenset({"curriculum"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.difficulties: Tensor | None = None

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def category(self, example: "Example", answer: str) -> str:
        """Of an answer to ``example``; its own category may be given by a dataset."""
        given = example.data.get("category")
        return str(given) if given is not None and answer == example.reference else category_of(answer, self.config.band)

    def curriculum(self, history: "History") -> Tensor:
        if self.difficulties is None:
            examples: list[Example] = self.run.examples
            categories = [self.category(example, example.reference) for example in examples]
            crowds = crowding([example.reference for example in examples], categories)
            self.difficulties = torch.tensor(crowds, dtype=torch.float32)
        weights = easy_to_hard(self.difficulties, progress_of(history.step, history.total_steps), self.config.width)
        self.log("difficulty", (weights * self.difficulties).sum() / weights.sum())
        return weights

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        said = [answer_of(text) for text in batch.texts]
        pairs = zip(batch.examples, said, strict=True)
        same = [answer is not None and self.category(one, answer) == self.category(one, one.reference) for one, answer in pairs]
        category = torch.tensor(same, dtype=rewards.dtype, device=rewards.device)
        exact, form = batch.correct.to(rewards.dtype), self.form(batch, said)
        category = torch.maximum(category, exact)
        progress = progress_of(batch.step, batch.total_steps)
        self.report(batch, category, exact, said, progress)
        return graded(category, exact, form, progress, self.config.coarse, self.config.form_weight)

    def form(self, batch: "RolloutBatch", said: list[str | None]) -> Tensor:
        """(B,) the task's own judgement of the form where it has one, else whether there is an answer."""
        if "format" in batch.reward_names:
            return batch.rewards[:, batch.reward_names.index("format")].nan_to_num(0.0)
        return torch.tensor([float(answer is not None) for answer in said], device=batch.rewards.device)

    def report(self, batch: "RolloutBatch", category: Tensor, exact: Tensor, said: list[str | None], progress: float) -> None:
        weight, exact_weight = hand_over(progress, self.config.coarse)
        self.log("category_right", category.mean())
        self.log("exact_right", exact.mean())
        self.log("confused_inside", (category - exact).sum() / max(1.0, float(category.sum())))
        self.log("category_weight", weight)
        self.log("exact_weight", exact_weight)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Right at each level",
                (
                    Series(f"{name}/category_right", "category"),
                    Series(f"{name}/exact_right", "exact answer"),
                    Series(f"{name}/confused_inside", "confused inside the category", dashed=True),
                ),
            ),
            Panel(
                "Weights of the levels",
                (Series(f"{name}/category_weight", "category"), Series(f"{name}/exact_weight", "exact answer")),
                help="The reward is handed over from the category to the exact answer.",
            ),
        )


def progress_of(step: int, total: int) -> float:
    """0 at the first step, 1 at the last."""
    return min(1.0, (step - 1) / (total - 1)) if total > 1 else 1.0
