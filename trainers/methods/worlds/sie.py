"""SIE: reasoning in a structured environment that stands in the prompt, with some of the supporting facts left out (arXiv 2509.23330).

The prompt holds facts of a graph, shuffled: those on the path to the answer (the support) and distractors. Prompts for training keep a share of the
support, ``ratio`` in {1, 0.75, 0.5, 0.25, 0} or all of these in turn; what is missing has to be inferred. Reward, with F = 0.2 (0.75 valid + 0.25
begins with a thought): 1 - (0.2 - F) for a right answer, F for a wrong one, 0 for none, and a quarter of it for more than 10 opening or closing
answer tags. Valid: each of the four tags of thought and answer once, in their order. Answers are compared without case, punctuation and articles.

It differs from GRPO in prompts and reward. Here the graph is that of the world ``graph`` (option ``in_context``), and a fact that is left out can be
inferred from its inverse, which is among the distractors. The world's own option ``support`` decides what demonstrations and held-out prompts keep.
"""

import re
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts.spans import extract_answer
from trainers.worlds.graph_context import keep_support

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

RATIOS = (1.0, 0.75, 0.5, 0.25, 0.0)
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
FORM, MOST_TAGS = 0.2, 10
ARTICLES = re.compile(r"\b(a|an|the)\b")


def is_valid_structure(text: str) -> bool:
    """Whether each of the four tags is there once, in their order."""
    places = [text.find(tag) for tag in TAGS]
    return all(text.count(tag) == 1 for tag in TAGS) and places == sorted(places)


def normalize_answer(text: str) -> str:
    plain = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(ARTICLES.sub(" ", plain).split())


def grade_structured_answer(text: str, gold: str) -> float:
    """The reward of a completion."""
    answer = extract_answer(text)
    if answer is None:
        return 0.0
    form = FORM * (0.75 * is_valid_structure(text) + 0.25 * text.lstrip().startswith(TAGS[0]))
    score = 1 - (FORM - form) if normalize_answer(answer) == normalize_answer(gold) else form
    return score / 4 if max(text.count(TAGS[2]), text.count(TAGS[3])) > MOST_TAGS else score


def choose_ratios(count: int, ratio: str) -> Sequence[float]:
    """The share of the support that each of ``count`` prompts keeps."""
    return [RATIOS[place % len(RATIOS)] if ratio == "mixed" else float(ratio) for place in range(count)]


class Config(Strict):
    ratio: Literal["1", "0.75", "0.5", "0.25", "0", "mixed"] = param(
        "0.5", "Share of the supporting facts that the prompts for training keep; mixed: each share for a fifth of the prompts.", title="Support kept"
    )


class SIE(Method):
    card = Card(
        name="sie",
        title="Structured in-context environments",
        arxiv="2509.23330",
        system="SIE",
        base="grpo",
        provenance="code",
        source="github PursuitYP/SIE_ICLR: verl/utils/reward_score/search_r1_like_qa_em.py and example script; a note for the data side",
        fit="variant",
        idea="Put the facts of a graph into the prompt and leave out some that the answer needs, so that the policy learns to infer them.",
        formula=(
            r"F = 0.2\,(0.75\, \mathrm{valid} + 0.25\, \mathrm{begins\ with\ a\ thought})",
            r"R = 1 - (0.2 - F) \ \mathrm{right}, \quad F \ \mathrm{wrong}, \quad 0 \ \mathrm{no\ answer}",
        ),
        departures=(
            "A generated graph instead of a knowledge base; a fact that is left out can be inferred from its inverse alone.",
            "Distractors are drawn at random, not chosen by a cross-encoder.",
            "The share that is kept is met on average over prompts: two or three facts cannot be cut to 75 % each time.",
        ),
    )
    Config = Config
    worlds = frozenset({"graph"})
    roles = {"data": "maps", "rewards": "makes"}
    requires = (
        Requirement("task.options.in_context", "equals", True, "its prompts hold the facts"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def data(self, rows: "list[Example]", run: "RunContext") -> list[Any]:
        rng = run.rng("sie", "support")
        told = [keep_support(example, ratio, rng) for example, ratio in zip(rows, choose_ratios(len(rows), self.config.ratio), strict=True)]
        self.log("data_missing", sum(len(example.data["missing"]) for example in told) / len(told))
        return told

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        self.log("valid", sum(map(is_valid_structure, batch.texts)) / len(batch.texts))
        self.log("begins", sum(text.lstrip().startswith(TAGS[0]) for text in batch.texts) / len(batch.texts))
        graded = [grade_structured_answer(text, example.reference) for text, example in zip(batch.texts, batch.examples, strict=True)]
        return torch.tensor(graded).to(rewards)

    def observe(self, batch: "RolloutBatch") -> None:
        missing = torch.tensor([len(example.data.get("missing", ())) for example in batch.examples])
        for name, rows in (("complete", missing == 0), ("missing", missing > 0)):
            if rows.any():
                self.log(f"right_{name}", batch.correct.cpu()[rows].float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel("Right answers", (Series("sie/right_complete", "all facts there"), Series("sie/right_missing", "a fact left out"))),
            Panel("Form", (Series("sie/valid", "valid structure"), Series("sie/begins", "begins with a thought"))),
        )
