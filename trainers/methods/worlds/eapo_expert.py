"""EAPO: a policy that may consult an expert while it trains, ever less often, until it solves alone (arXiv 2509.23730).

At global step s the expert replies with probability rho_s; else the policy reads that it is unavailable. The paper's rho_s = 1/s is s0 / (s0 + s - 1)
with s0 = 1; a larger s0 lets the expert fade more slowly, 0 leaves it out. The turns of an episode shrink linearly from what training begins with to
what the policy needs alone, so that a question without a reply costs the turn that the answer needs. R = F1(answer, gold) where that is above 0, else
0.1 for the right form. What the expert says is context, never in the loss, and held-out prompts are asked without an expert.

Our reading of the abstract and of notes that quote the equations. The expert is a rule of the world ``sums`` (its option ``consult``): it works out
what it is asked. It differs from its base, DAPO, in what the world replies and in the reward.
"""

from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts.spans import extract_answer
from trainers.worlds.sums import ALONE, CONSULT, Sums

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion

FORM = 0.1  # reward of a wrong answer in the right form


def compute_acceptance(step: int, fading: float) -> float:
    """rho_s for step s from 1: s0 / (s0 + s - 1), 0 where ``fading`` (s0) is 0."""
    return fading / (fading + step - 1) if fading else 0.0


def compute_turn_budget(step: int, total: int, first: int, last: int) -> int:
    """Turns of an episode at step s from 1: linear from ``first`` to ``last``, which the last step has."""
    return round(first + (last - first) * (step - 1) / max(1, total - 1))


def compute_word_f1(answer: str, gold: str) -> float:
    """F1 of the words of an answer; 0 where they share none."""
    said, wanted = answer.lower().split(), gold.lower().split()
    shared = sum((Counter(said) & Counter(wanted)).values())
    return 2 * shared / (len(said) + len(wanted)) if shared else 0.0


def grade_answer(answer: str | None, gold: str, formed: bool) -> float:
    """R of a final answer; None: there is none."""
    return (compute_word_f1(answer, gold) if answer is not None else 0.0) or FORM * formed


class Config(Strict):
    fading: float = param(
        1.0,
        "Step at which the expert replies to about half of the consultations: rho = s0 / (s0 + s - 1); 0: never.",
        title="Fading (s0)",
        ge=0,
        le=1e6,
    )
    turns: int = param(
        3, "Turns of an episode at the first step; at the last one as many as the policy needs alone.", title="First turn budget", ge=2, le=3
    )


class EAPOExpert(Method):
    card = Card(
        name="eapo-expert",
        title="On-demand expert assistance",
        arxiv="2509.23730",
        system="EAPO",
        base="dapo",
        provenance="abstract",
        source="abstract; equations from a public reading note and from reviews",
        fit="needs-environment",
        idea="Let the policy consult an expert while it trains, with replies that become rare, so that in the end it solves alone.",
        formula=(
            r"\rho_s = \frac{s_0}{s_0 + s - 1}, \quad u \le \rho_s \Rightarrow \mathrm{reply}",
            r"R = \mathrm{F1}(a, a^*) \ \mathrm{if\ above\ 0}, \quad 0.1 \ \mathrm{for\ the\ form}, \quad 0",
        ),
        reading="how the turn budget shrinks, and a slower decay of the replies as an option",
        departures=(
            "The expert is a rule that works out what it is asked, instead of a stronger model.",
            "One consultation a turn, not up to three in parallel.",
            "All members of a group meet the same expert: what it replies to is drawn for the prompt and the turn.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    worlds = frozenset({"sums"})
    roles = {"rewards": "makes"}
    owns = frozenset({"rollout"})
    requires = (Requirement("task.options.consult", "at least", 0.01, "there is no expert to consult without this option of the world"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        world = self.run.task
        assert isinstance(world, Sums)
        assert world.expert is not None
        world.expert.acceptance = compute_acceptance(session.step, self.config.fading)
        world.expert.turns = compute_turn_budget(session.step, session.total_steps, self.config.turns, ALONE)
        self.log("acceptance", world.expert.acceptance)
        self.log("turns", world.expert.turns)
        return session.complete()

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        formed = batch.rewards[:, batch.reward_names.index("format")] > 0.5
        rows = zip(batch.texts, batch.examples, formed.tolist(), strict=True)
        return torch.tensor([grade_answer(extract_answer(text), example.reference, form) for text, example, form in rows]).to(rewards)

    def observe(self, batch: "RolloutBatch") -> None:
        asked = torch.tensor([CONSULT.closing in text for text in batch.texts])
        self.log("consulted", asked.float().mean())
        for name, rows in (("with", asked), ("without", ~asked)):
            if rows.any():
                self.log(f"right_{name}", batch.correct.cpu()[rows].float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Expert", (Series(f"{name}/consulted", "episodes that consult"), Series(f"{name}/acceptance", "share of replies", dashed=True))),
            Panel("Right answers", (Series(f"{name}/right_with", "with a consultation"), Series(f"{name}/right_without", "without"))),
            Panel("Turn budget", (Series(f"{name}/turns", "turns of an episode"),)),
        )
