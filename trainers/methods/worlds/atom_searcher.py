"""Atom-Searcher: judged units of thought beside the answer, with a weight that falls to 0 (arXiv 2508.12800).

alpha_t = alpha_0 (1 - t / T)                                     t of T steps are done
R_atom  = (1 / M) sum_m judge(unit m), in [0, 1];  0 for an episode without a unit
R       = alpha_t R_atom + (1 - alpha_t) F1(answer, gold);  -1 for an episode in broken form or without an answer

Then GRPO; what the world writes is masked out of the loss. It differs from GRPO on the F1 of the answer in R_atom; with alpha_0 = 0 it has the reward
of DeepResearcher, its base. As alpha falls to 0 the last steps are paid by the answer alone.

In the paper the policy invents its units (observation, hypothesis, risk, action) after supervised training, and a reasoning reward model scores them.
Here a unit is the thought that a turn begins with, as the option ``thoughts`` of the world ``search`` demonstrates it, and the judge is a rule of the
world: half a point for naming whom a sentence is about that the answer needs, a whole one for naming the relation or attribute of it too. It knows
the evidence, so it acts in training alone. What the thoughts say beyond that is not judged.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts.token_overlap import compute_f1, split_answer_words
from trainers.worlds.facts import Fact, split_words
from trainers.worlds.replays import read_final_answer, read_thought, replay_texts
from trainers.worlds.search import find_evidence, read_facts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example
    from trainers.worlds.base import Replay

BROKEN = -1.0  # reward of an episode in broken form, or without an answer
HALF = 0.5  # of a unit that names whom a needed sentence is about


def compute_unit_weight(done: int, total: int, first: float) -> float:
    """alpha_t after ``done`` of ``total`` steps."""
    return first * max(0.0, 1.0 - done / total)


def judge_unit(thought: str, needed: Sequence[Fact]) -> float:
    """0, 0.5 or 1: the best that a unit has for any of the sentences the answer needs."""
    words = {word.removesuffix("'s") for word in split_words(thought)}
    scores = [HALF + HALF * (fact.relation in words) for fact in needed if fact.subject.lower() in words]
    return max(scores, default=0.0)


def mix_unit_rewards(units: Sequence[float], answer: float, weight: float) -> float:
    """R of an episode in the right form. ``units``: the judge's scores; ``answer``: F1."""
    mean = sum(units) / len(units) if units else 0.0
    return weight * mean + (1 - weight) * answer


class Config(Strict):
    weight: float = param(
        0.5, "Weight of the judged units at the first step; it falls to 0 (ours).", title="First weight of the units (alpha_0)", ge=0, le=1
    )


class AtomSearcher(Method):
    card = Card(
        name="atom-searcher",
        title="Judged units of thought",
        arxiv="2508.12800",
        system="Atom-Searcher",
        base="grpo",
        provenance="abstract",
        source="abstract; README of github antgroup/Research-Venus; public notes on the paper (units, judge, linear decay towards F1)",
        fit="variant",
        idea="Score every unit of thought of a search agent, and let these scores count less and less beside the F1 of the answer.",
        formula=(
            r"\alpha_t = \alpha_0 \left(1 - \frac{t}{T}\right), \qquad R_{atom} = \frac{1}{M} \sum_m \mathrm{judge}(m)",
            r"R = \begin{cases} -1 & \text{broken form} \\ \alpha_t R_{atom} + (1 - \alpha_t)\, F_1 & \text{else} \end{cases}",
        ),
        reading="the first weight and how both rewards are mixed are ours; public notes say that the weight falls linearly",
        departures=(
            "A unit is the thought of a turn, in place of tagged units that the policy invents.",
            "The judge is a rule of the world search: whether a unit names what a needed sentence is about. The paper has a reasoning reward model.",
            "The cold start of the world is the supervised stage.",
            "An episode without a thought has R_atom = 0, and is not in broken form.",
        ),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "makes"}
    worlds = frozenset({"search"})
    requires = (Requirement("task.options.thoughts", "equals", True, "without it the policy has seen no thought, and there is nothing to judge"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        weight = compute_unit_weight(batch.step - 1, batch.total_steps, self.config.weight)
        made = []
        for example, replay in zip(batch.examples, replay_texts(self.run.task, batch.examples, batch.texts), strict=True):
            answer, units = read_final_answer(replay), judge_thoughts(example, replay)
            share = compute_f1(split_answer_words(answer or ""), split_answer_words(example.reference))
            made.append(BROKEN if answer is None else mix_unit_rewards(units, share, weight))
            self.log("units", len(units))
            self.log("atom", mix_unit_rewards(units, 0.0, 1.0))
            self.log("answer", share)
            self.log("broken", float(answer is None))
        self.log("weight", weight)
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Units and answers",
                (
                    Series(f"{name}/atom", "mean score of an episode"),
                    Series(f"{name}/answer", "F1 of the answer"),
                    Series(f"{name}/weight", "weight of the units", dashed=True),
                ),
            ),
            Panel("Units of an episode", (Series(f"{name}/units", "turns with a thought"),)),
            Panel("Broken form", (Series(f"{name}/broken", "share of episodes"),)),
        )


def judge_thoughts(example: "Example", replay: "Replay") -> list[float]:
    """The judge's score of the thought of each turn that has one, in their order; none for an example that does not say what its answer needs."""
    known = read_facts(example).facts
    needed = [known[number] for number in find_evidence(example)] if "evidence" in example.data else []
    return [judge_unit(thought, needed) for turn in replay.turns if (thought := read_thought(turn.text))]
