"""TimeSearch-R: an answer counts in full when what was found is enough to give it again (GRPO-CSV, arXiv 2511.05489). A text stand-in.

y ~ pi(. | x) an episode with answer a;  E what its tools gave back;  a' ~ pi(. | x, E): a second answer, without thoughts and without tools
acc, csv: whether a and a' are right; what is above .5 counts as 1 in the product
R = w_f f + w_a acc + w_v acc csv                      f = 1 in the right form; w = 1, .5, .5 as released

An episode that found nothing has csv = 0 and is not asked. The tokens of second answers are not in the loss; held-out episodes have none. It differs
from GRPO in the reward; with the weight of the answer alone it is GRPO on the right answer, with the second answers as a measure.

The authors' policy searches the frames of a video and answers again from the frames alone. Here it is what a world's tools gave back that is shown
again, in the world's words and where the policy reads them in an episode, and its turn goes on with an answer. Where such words do not say what they
are about (``graph``, ``tables``), the call stands before them. Step time: one short answer more for each episode.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.second_answers import ask_again, observe_path
from trainers.worlds.observations import write_findings
from trainers.worlds.replays import read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion

SECOND = "second_answer"  # in the notes of a completion: share of its second answers that are right, 0 where nothing was found
FOUND = "found"  # likewise: whether its tools gave something back


def round_up(scores: Tensor) -> Tensor:
    """What is above .5 counts as 1, any other score as it is."""
    return torch.where(scores > 0.5, torch.ones_like(scores), scores)


def reward_two_answers(form: Tensor, first: Tensor, second: Tensor, weights: tuple[float, float, float]) -> Tensor:
    """(B,) scores from 0 to 1 of form, answer and second answer; ``weights`` of form, answer and their agreement."""
    return weights[0] * form + weights[1] * first + weights[2] * round_up(first) * round_up(second)


class Config(Strict):
    form: float = param(1.0, "Paid for the right form.", title="Form", ge=0, le=10)
    answer: float = param(0.5, "Paid for the right answer.", title="Answer", ge=0, le=10)
    verification: float = param(
        0.5, "Paid where the second answer is right too; 0: it is a measure alone.", title="Second answer, from what was found", ge=0, le=10
    )
    answers: int = param(1, "Second answers that are asked for each episode.", title="Second answers", ge=1, le=64, advanced=True)


class TimeSearchR(Method):
    card = Card(
        name="timesearch-r",
        title="Answers that what was found must give again",
        arxiv="2511.05489",
        system="TimeSearch-R (GRPO-CSV)",
        base="grpo",
        provenance="code",
        source="github Time-Search/TimeSearch-R: time_r1/reward/v7.py, time_r1/trainer/grpo_trainer_env.py, scripts/train.sh",
        fit="needs-modality",
        idea="Let the policy answer again from what its tools gave back alone, and pay in full where both answers are right. A text stand-in.",
        formula=(
            r"R = f + 0.5\, \mathrm{acc} + 0.5\, \mathrm{acc} \cdot \mathrm{csv}",
            r"\mathrm{csv} = 1[a' \text{ right}], \quad a' \sim \pi(\cdot \mid x, E)",
        ),
        departures=(
            "Text stand-in: what the tools of a world gave back takes the place of video frames; no number compares with the paper's.",
            "Findings stand in the policy's turn, which goes on with an answer; the authors write them into a new question.",
            "Whether an answer is right is a rule of the world; the authors have overlaps of intervals and a judge, too.",
            "How advantages are scaled is the base's matter; the authors take no standard deviation.",
            "Groups without a gradient are not replaced by earlier ones from a buffer.",
        ),
        claim=("timesearch-r/unsupported", "lower"),
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"rewards": "makes"}
    worlds = frozenset({"entity_search", "graph", "planned_search", "search", "tables", "two_corpora"})
    requires = (
        Requirement("task.options.reader", "differs from", True, "the policy has to answer itself, not a frozen reader"),
        Requirement("task.options.in_context", "differs from", True, "the evidence has to be found with tools"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        leaves = session.play([episode.root for episode in session.begin()])
        findings = [write_findings(observe_path(leaf)) for leaf in leaves]
        asked = [place for place, found in enumerate(findings) if found]
        shares = ask_again(
            session,
            [leaves[place] for place in asked],
            [session.prompts[place] for place in asked],
            [findings[place] for place in asked],
            self.config.answers,
        )
        second = dict(zip(asked, shares, strict=True))
        self.log("policy_tokens", sum(len(node.ids) for leaf in leaves for node in leaf.episode.nodes if node.by == "policy"))
        notes = {place: {SECOND: second.get(place, 0.0), FOUND: place in second} for place in range(len(leaves))}
        return session.finish(leaves, notes=notes)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        if not all(SECOND in note for note in batch.notes):  # a replay of stored rollouts does not know the second answers
            return rewards
        config, replays = self.config, replay_texts(self.run.task, batch.examples, batch.texts)
        form = torch.tensor([float(read_final_answer(replay) is not None) for replay in replays]).to(rewards)
        second = torch.tensor([note[SECOND] for note in batch.notes]).to(rewards)
        self.report(batch.correct.tolist(), second.tolist(), [note[FOUND] for note in batch.notes])
        return reward_two_answers(form, batch.correct.to(rewards), second, (config.form, config.answer, config.verification))

    def report(self, right: Sequence[bool], second: Sequence[float], found: Sequence[bool]) -> None:
        self.log("right", sum(right) / len(right))
        self.log("second", sum(second) / len(second))
        self.log("found", sum(found) / len(found))
        supported = [share > 0.5 for one, share in zip(right, second, strict=True) if one]
        if supported:
            self.log("unsupported", 1 - sum(supported) / len(supported))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Two answers",
                (
                    Series(f"{name}/right", "right"),
                    Series(f"{name}/second", "right from what was found alone"),
                    Series(f"{name}/found", "episodes that found something", dashed=True),
                ),
            ),
            Panel(
                "Right for the wrong evidence",
                (Series(f"{name}/unsupported", "share of the right answers"),),
                help="Right answers whose second answer, from what was found alone, is wrong.",
            ),
        )
