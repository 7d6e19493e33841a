"""KLCF: an answer of many claims is paid for what the first policy knows and for the truth of what it says (arXiv 2509.23765).

Before training, N answers of the policy to each question are split into claims. L(q): the true ones that enough of the answers make, m = |L(q)|.
For an answer y, c of L(q) are said as they are, x are said otherwise, the rest are missing.
    rec = c / m,  prec = c / (c + x) (0 without either),  tru = mean over the claims of y of [true] (0 without a claim)
    R = w_rec rec + w_prec prec + w_tru tru + w_gen gen                                  w = 1, 1, 1, 0.1

Then GRPO. It differs from GRPO on the world's own reward in R and in the questions: those of which the policy knows nothing are left out. With one
weight alone it is GRPO on recall or on truth, the two arms that the paper sets against both.

The combination is our reading of the abstract. The authors verify claims against a local wiki, learn a scorer of their truth, and score general
quality by a reward model. Here a look-up in the world's facts says what is true, and the form of the answer stands for general quality.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.known_split import mark_known
from trainers.worlds.profiles import Claim, is_true, read_claims
from trainers.worlds.replays import read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

CHECKLIST = "checklist"  # in Example.data: the claims that the first policy knows, as (topic, value)


@dataclass(frozen=True)
class FactScores:
    """``general``: 1 for an answer that is a list of claims."""

    recall: float
    precision: float
    truth: float
    general: float


def count_checklist(claims: Sequence[Claim], checklist: Sequence[Claim]) -> tuple[int, int]:
    """(consistent, contradictory) items of a checklist; one that is said both ways contradicts."""
    consistent = contradictory = 0
    for topic, value in checklist:
        said = {other for about, other in claims if about == topic}
        contradictory += bool(said - {value})
        consistent += said == {value}
    return consistent, contradictory


def score_claims(claims: Sequence[Claim] | None, checklist: Sequence[Claim], truths: Sequence[bool]) -> FactScores:
    """``truths``: of each claim. ``claims`` None: the answer cannot be read."""
    consistent, contradictory = count_checklist(claims or (), checklist)
    return FactScores(
        recall=consistent / len(checklist) if checklist else 0.0,
        precision=consistent / (consistent + contradictory) if consistent + contradictory else 0.0,
        truth=sum(truths) / len(truths) if truths else 0.0,
        general=float(claims is not None),
    )


def find_checklist(answers: Sequence[Sequence[Claim]], example: "Example", least: float) -> list[Claim]:
    """The true claims that a share ``least`` of the answers makes, at least one of them, in the order of their topics' names."""
    counts = Counter(claim for claims in answers for claim in set(claims) if is_true(claim, example))
    known = mark_known([count / len(answers) for count in counts.values()], least)
    return sorted(claim for claim, one in zip(counts, known, strict=True) if one)


class Config(Strict):
    recall: float = param(1.0, "Paid for the share of the checklist that is told.", title="Recall", ge=0, le=10)
    precision: float = param(1.0, "Paid for the share that is told right of what is told of it.", title="Precision on the checklist", ge=0, le=10)
    truth: float = param(1.0, "Paid for the share of all claims that is true.", title="Truth", ge=0, le=10)
    general: float = param(0.1, "Paid for an answer that can be read.", title="General quality", ge=0, le=10)
    prompts: int = param(256, "Questions that the policy answers before training, and is trained on.", ge=1, le=1_000_000)
    samples: int = param(8, "Answers to each of them.", title="Answers (N)", ge=1, le=256)
    least: float = param(
        0.3,
        "Share of these answers that makes a true claim which counts as known; the authors: any, which guesses reach here.",
        title="Known from",
        ge=0,
        le=1,
    )


class KLCF(Method):
    card = Card(
        name="klcf",
        title="What the first policy knows, and nothing false",
        arxiv="2509.23765",
        system="KLCF",
        base="grpo",
        provenance="abstract",
        source="abstract; public notes and reviews, of which only the weight of the general reward is certain",
        fit="variant",
        idea="Pay an answer of many claims for telling what the first policy knows, and for the truth of all that it tells.",
        formula=(
            r"\mathrm{rec} = \frac{c}{m}, \quad \mathrm{prec} = \frac{c}{c + x}, \quad \mathrm{tru} = \mathrm{mean}_{k \in y}\, T(k)",
            r"R = \mathrm{rec} + \mathrm{prec} + \mathrm{tru} + 0.1\, \mathrm{gen}",
        ),
        reading="how the terms are combined, and all weights but that of the general reward",
        departures=(
            "Claims are read by the world's parser, and a look-up in its facts says what is true; the authors learn a scorer of truth.",
            "Whether an answer can be read stands for the general reward model.",
            "A claim counts as known from 3 of 10 answers, not from one: a guess is right in one of six cases here.",
            "Questions of which the policy knows nothing are left out.",
        ),
        claim=("heldout/truth", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "maps", "rewards": "makes"}
    worlds = frozenset({"profiles"})
    requires = (Requirement("dataset", "equals", None, "it needs what the world knows of its own questions"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        config = self.config
        some: list[Example] = rows if len(rows) <= config.prompts else run.rng(self.card.name).sample(rows, config.prompts)
        told: list[Example] = ranks.done_by_first(lambda: self.write_checklists(some, run))
        known = [example for example in told if example.data[CHECKLIST]]
        self.log("questions_known", len(known) / len(told))
        self.log("checklist", sum(len(example.data[CHECKLIST]) for example in told) / len(told))
        return known or told

    def write_checklists(self, examples: "Sequence[Example]", run: "RunContext") -> "list[Example]":
        """The same questions with what the policy knows of each."""
        count = self.config.samples
        asked = [example for example in examples for _ in range(count)]
        made = run.sample(asked, 1.0, key=self.card.name)
        replays = replay_texts(run.task, asked, [one.text for one in made])
        claims = [read_claims(read_final_answer(replay)) or [] for replay in replays]
        lists = [find_checklist(claims[place * count : (place + 1) * count], example, self.config.least) for place, example in enumerate(examples)]
        return [replace(example, data={**example.data, CHECKLIST: found}) for example, found in zip(examples, lists, strict=True)]

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, made = self.config, []
        for example, replay in zip(batch.examples, replay_texts(self.run.task, batch.examples, batch.texts), strict=True):
            claims = read_claims(read_final_answer(replay))
            truths = [is_true(claim, example) for claim in claims or ()]
            scores = score_claims(claims, [(topic, value) for topic, value in example.data.get(CHECKLIST, ())], truths)
            made.append(
                config.recall * scores.recall + config.precision * scores.precision + config.truth * scores.truth + config.general * scores.general
            )
            self.report(scores, len(truths), truths.count(False))
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def report(self, scores: FactScores, claims: int, false: int) -> None:
        for name in ("recall", "precision", "truth"):
            self.log(name, getattr(scores, name))
        self.log("claims", float(claims))
        self.log("false_claims", float(false))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Recall and truth",
                (
                    Series(f"{name}/recall", "of what the first policy knows"),
                    Series(f"{name}/truth", "claims that are true"),
                    Series(f"{name}/precision", "told right of what is told of the checklist", dashed=True),
                ),
            ),
            Panel("Claims of an answer", (Series(f"{name}/claims", "all"), Series(f"{name}/false_claims", "false"))),
        )
