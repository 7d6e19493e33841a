"""DeepResearcher: outcome reward of a search agent, with a penalty for broken form, where searches fail (arXiv 2504.03160).

R = -1                                       if the tags of a turn are not balanced or there is no answer
R = max over right answers g of F1(p, g)     else, with F1 = 2 P Rc / (P + Rc) over the sets of lower-cased words without punctuation

Then GRPO; what the world writes is masked out of the loss. It differs from GRPO on the world's own reward (1 for the right answer) in the credit for
a part of the right words, and in that an episode without an answer is worse than one with a wrong answer.

The paper searches the live web, and a second model reads the pages. Here the world ``search`` is the corpus: its rule returns the sentences that fit
a query, and its option ``failures`` is the share of searches that fail as pages and time limits do. All of a group meet the same failures.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts.token_overlap import compute_f1, split_answer_words
from trainers.worlds.base import Replay
from trainers.worlds.replays import count_calls, read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

BROKEN = -1.0  # reward of an episode in broken form, or without an answer


def score_final_answer(answer: str | None, golds: Sequence[str]) -> float:
    """Set F1 with the right answer that is nearest; -1 without an answer."""
    if answer is None:
        return BROKEN
    words = set(split_answer_words(answer))
    return max(compute_f1(words, set(split_answer_words(gold))) for gold in golds)


def list_reactions(replay: Replay) -> list[bool]:
    """For each search that failed: whether the next turn is another search."""
    facts = [turn.step.facts for turn in replay.turns]
    return ["tool" in after for one, after in zip(facts, [*facts[1:], {}], strict=False) if "tool" in one and "error" in one]


class DeepResearcher(Method):
    card = Card(
        name="deepresearcher",
        title="Set F1 with a penalty for broken form",
        arxiv="2504.03160",
        system="DeepResearcher",
        base="grpo",
        provenance="code",
        source="github GAIR-NLP/DeepResearcher: verl/utils/reward_score/format_and_f1.py, train_grpo.sh",
        fit="needs-environment",
        idea="Reward the words that the answer shares with the right one, and pay less than for a wrong answer where the form is broken.",
        formula=(
            r"R = \begin{cases} -1 & \text{broken form or no answer} \\ \max_g F_1(p, g) & \text{else} \end{cases}",
            r"F_1(p, g) = \frac{2\, |p \cap g|}{|p| + |g|}",
        ),
        departures=(
            "The world search stands for the web: its rule returns sentences in place of a model that reads pages, and there is one tool.",
            "Failures are drawn by the world, alike for a group, in place of the network's own.",
            "Answers of this world are one or two words, so that a partly right answer is rare.",
        ),
        claim=("heldout/format", "higher"),
    )
    roles = {"rewards": "makes"}
    worlds = frozenset({"search"})
    requires = (Requirement("task.options.failures", "at least", 0.05, "where no search fails, there is nothing to ask again after", hard=False),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        replays = replay_texts(self.run.task, batch.examples, batch.texts)
        answers = [read_final_answer(replay) for replay in replays]
        made = [score_final_answer(answer, [example.reference]) for answer, example in zip(answers, batch.examples, strict=True)]
        self.report(replays, answers)
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def report(self, replays: Sequence[Replay], answers: Sequence[Any]) -> None:
        self.log("broken", sum(answer is None for answer in answers) / len(answers))
        self.log("searches", sum(map(count_calls, replays)) / len(replays))
        reactions = [again for replay in replays for again in list_reactions(replay)]
        self.log("failures", len(reactions) / len(replays))
        if reactions:
            self.log("asked_again", sum(reactions) / len(reactions))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Form and failures",
                (Series(f"{name}/broken", "broken form or no answer"), Series(f"{name}/asked_again", "searched again after a failure")),
                help="Shares of the episodes, and of the searches that failed.",
            ),
            Panel("Searches per episode", (Series(f"{name}/searches", "searches"), Series(f"{name}/failures", "of them failed", dashed=True))),
        )
