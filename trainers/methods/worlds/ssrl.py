"""SSRL: the policy is its own search engine, and what it writes as results is left out of the loss (arXiv 2508.10874).

R = (1 - w) [right answer] + w f(y)
f = 0                                  unless y is a row of blocks that begins with a thought and ends with an answer, none of them empty, every query
                                       one line and followed by its result, no result without a query, and at most 8 thoughts
f = min(1, n_think / 2) rho            else;  rho = min(n_think, n_search + 1) / max(n_think, n_search + 1)
m_t = 0 for every token of a result, tags included; 1 elsewhere

Then GRPO. It differs from GRPO on the right answer in f and in m; with w = 0 and without m it is GRPO on the answer. An answer counts in a broken
form too. Results are written by the policy as everything else is, but no gradient teaches it to: so it can be put before a real engine afterwards.

The world is ``search`` with the option ``alone``, in which no engine answers; facts have to be in the weights, which the option ``memorised`` sees to
in the cold start. The same policy plays the world without ``alone``, where an engine answers: the effect case measures both.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts.token_overlap import is_same_answer
from trainers.worlds.self_search import Block, find_information, read_last_answer, split_blocks

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch

MOST_THOUGHTS, WANTED_THOUGHTS = 8, 2


def grade_form(blocks: Sequence[Block] | None) -> float:
    """f of the blocks of a text; None: it is no row of blocks."""
    names = [name for name, _ in blocks or ()]
    if not names or (names[0], names[-1]) != ("think", "answer") or not all(inside for _, inside in blocks or ()):
        return 0.0
    searches, thoughts = names.count("search"), names.count("think")
    answered = [after for name, after in pairwise(names) if name == "search"]
    is_paired = answered == ["information"] * searches == ["information"] * names.count("information")
    if not is_paired or thoughts > MOST_THOUGHTS or any("\n" in inside for name, inside in blocks or () if name == "search"):
        return 0.0
    balance = min(thoughts, searches + 1) / max(thoughts, searches + 1)
    return min(1.0, thoughts / WANTED_THOUGHTS) * balance


def mix_form(right: bool, form: float, weight: float) -> float:
    """R."""
    return (1 - weight) * right + weight * form


class Config(Strict):
    form: float = param(0.1, "Weight of the graded form beside the right answer; 0: the answer alone.", title="Weight of the form (w)", ge=0, le=1)
    mask: bool = param(True, "Leave what the policy writes as results out of the loss.", title="Leave results out")


class SSRL(Method):
    card = Card(
        name="ssrl",
        title="Self-search",
        arxiv="2508.10874",
        system="SSRL",
        base="grpo",
        provenance="code",
        source="github TsinghuaC3I/SSRL: verl/workers/reward_manager/naive.py, verl/trainer/ppo/ray_trainer.py, examples/ssrl/example.sh",
        fit="core",
        idea="Let the policy play the search engine too, and pay for the answer and the form, without training what it writes as results.",
        formula=(
            r"R = (1 - w)\,[a = a^*] + w f, \qquad f = \min\left(1, \frac{n_{th}}{2}\right)"
            r" \frac{\min(n_{th}, n_s + 1)}{\max(n_{th}, n_s + 1)}",
            r"m_t = [\, t \notin \text{results} \,]",
        ),
        departures=(
            "Words between two blocks break the form; the code looks at the tags alone.",
            "A result that goes over several lines is left out of the loss too; the code's pattern misses it.",
            "Tokens that are left out still count where the base divides by the tokens of an answer.",
            "The facts that the cold start puts into the weights stand for what a language model knows.",
            "The switch that asks a real engine where the policy is unsure is left out.",
        ),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "makes", "advantages": "gates"}
    idle = {"advantages": ("mask", False)}
    worlds = frozenset({"search"})
    requires = (
        Requirement("task.options.alone", "equals", True, "the policy has to write the results itself"),
        Requirement("task.options.thoughts", "equals", True, "the form asks for thoughts, which the policy has not seen without this option"),
        Requirement("task.options.memorised", "at least", 0.05, "no engine answers, and the built-in policy knows nothing of this world", hard=False),
    )

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        made = []
        for example, text in zip(batch.examples, batch.texts, strict=True):
            answer, form = read_last_answer(text), grade_form(split_blocks(text))
            right = answer is not None and is_same_answer(answer, example.reference)
            made.append(mix_form(right, form, self.config.form))
            self.log("right", float(right))
            self.log("form", form)
            self.log("searches", text.count("</search>"))
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        if not self.config.mask:
            return advantages
        written = torch.zeros(batch.mask.shape, dtype=torch.bool, device=batch.mask.device)
        for row, text in enumerate(batch.texts):
            for start, end in find_information(text):
                written[row] |= batch.span(row, start, end).to(written.device)
        self.log("left_out", (written * batch.mask).sum() / batch.mask.sum().clamp(min=1))
        return (~written).to(advantages.dtype)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Answer and form", (Series(f"{name}/right", "right answers"), Series(f"{name}/form", "graded form", dashed=True))),
            Panel("Searches of an episode", (Series(f"{name}/searches", "searches"),)),
            Panel("Tokens left out of the loss", (Series(f"{name}/left_out", "share"),)),
        )
