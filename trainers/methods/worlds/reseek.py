"""ReSeek: a verdict on every search result, paid where it is right (arXiv 2510.00568).

After each search the policy says whether what was found helps. Step t is paid r_t = +0.3 for the right verdict, -0.6 for accepting what does not help
and -0.3 for rejecting what does; the last step is paid the exact match of the answer.

R = sum_t gamma^(t-1) r_t    over the verdicts and the answer, in order

Then GRPO; what the world writes is masked out of the loss. It differs from GRPO on the same world in the terms of the verdicts; with all three at 0
and gamma = 1 it is GRPO.

This is our interpretation of the abstract and of public notes on the paper; its repository has no code. A reranker compares each result with the
right answer there. Here the world ``judged_search`` knows which sentences the answer needs: yes is right where one of them was found. After a no the
next turn may also be the answer: nothing forces another query, and the share of those that ask again is reported.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.base import Replay
from trainers.worlds.judged_search import NO, YES
from trainers.worlds.replays import read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

Verdict = tuple[str, str]  # the policy's, and the right one


def score_verdict(verdict: str, right: str, match: float, accept_wrong: float, reject_right: float) -> float:
    if verdict == right:
        return match
    return accept_wrong if verdict == YES else reject_right


def discount_sum(rewards: Sequence[float], gamma: float) -> float:
    """sum_t gamma^(t-1) r_t, t from 1."""
    return sum(gamma**place * reward for place, reward in enumerate(rewards))


def list_verdicts(replay: Replay) -> list[Verdict]:
    return [(turn.step.facts["verdict"], turn.step.facts["right verdict"]) for turn in replay.turns if "verdict" in turn.step.facts]


class Config(Strict):
    match: float = param(0.3, "Reward of a right verdict.", title="Right verdict", ge=-10, le=10)
    accept_wrong: float = param(-0.6, "Reward of a yes where nothing found helps.", title="Wrong yes", ge=-10, le=10)
    reject_right: float = param(-0.3, "Reward of a no where something found helps.", title="Wrong no", ge=-10, le=10)
    gamma: float = param(1.0, "Discount of later steps.", title="Discount (gamma)", gt=0, le=1)


class ReSeek(Method):
    card = Card(
        name="reseek",
        title="Paid verdicts on search results",
        arxiv="2510.00568",
        system="ReSeek",
        base="grpo",
        provenance="abstract",
        source="abstract; a public note on the paper with its rewards and threshold",
        fit="needs-environment",
        idea="Have the policy judge every search result, pay for right verdicts, and charge most for accepting what does not help.",
        formula=(
            r"r_t = \begin{cases} +0.3 & j_t = j_t^{*} \\ -0.6 & j_t = \text{yes} \ne j_t^{*} \\ -0.3 & j_t = \text{no} \ne j_t^{*} \end{cases}",
            r"R = \sum_t \gamma^{t-1} r_t",
        ),
        reading="the rewards are second-hand; a right verdict is one about the sentences the answer needs",
        departures=(
            "The world knows which sentences the answer needs, in place of a reranker that compares a result with the right answer.",
            "After a no nothing forces another query.",
        ),
        claim=("heldout/verdict", "higher"),
    )
    Config = Config
    roles = {"rewards": "makes"}
    worlds = frozenset({"judged_search"})
    requires = (Requirement("task.options.junk", "at least", 0.05, "every search finds what it asks for: there is little to judge", hard=False),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, made = self.config, []
        replays = replay_texts(self.run.task, batch.examples, batch.texts)
        for replay, example in zip(replays, batch.examples, strict=True):
            steps = [score_verdict(*one, config.match, config.accept_wrong, config.reject_right) for one in list_verdicts(replay)]
            made.append(discount_sum([*steps, float(read_final_answer(replay) == example.reference)], config.gamma))
        self.report(replays)
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def report(self, replays: Sequence[Replay]) -> None:
        verdicts = [one for replay in replays for one in list_verdicts(replay)]
        self.log("verdicts", len(verdicts) / len(replays))
        if not verdicts:
            return
        for name, kind in (("right_yes", (YES, YES)), ("right_no", (NO, NO)), ("wrong_yes", (YES, NO)), ("wrong_no", (NO, YES))):
            self.log(name, verdicts.count(kind) / len(verdicts))
        rejecting = [turn.step.facts for replay in replays for turn in replay.turns if turn.step.facts.get("verdict") == NO]
        if rejecting:
            self.log("asked_again", sum("tool" in facts for facts in rejecting) / len(rejecting))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        kinds = (("right_yes", "right yes"), ("right_no", "right no"), ("wrong_yes", "wrong yes"), ("wrong_no", "wrong no"))
        return (
            Panel("Verdicts", tuple(Series(f"{name}/{key}", words) for key, words in kinds), "stack", help="Shares of all verdicts of a step."),
            Panel("After a no", (Series(f"{name}/asked_again", "searched again"),), help="Share of the turns with a no that are another search."),
        )
