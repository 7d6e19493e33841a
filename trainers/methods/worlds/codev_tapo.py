"""CodeV's TAPO: what a tool gave back is judged, not the thought that led to it (arXiv 2511.19661). A text stand-in.

r_t = judge(question, output of call t), from 0 to 1           T: the episode's calls
R = l_acc r_acc + l_tool (1 / |T|) sum_t r_t - penalty [some red line was crossed]          0 without a call in the second term

Red lines are a turn that is neither one call nor one answer, and a call that is made again word for word after it had found nothing. Thoughts and
what they claim are never seen by the judge. The mean takes away what a call more could earn by itself: one that gives no evidence lowers it. It
differs from GRPO in the two terms; without both it is GRPO on the right answer.

This is our interpretation of the abstract and of public notes on the paper. There, tools are Python on images and a model judges whether a crop shows
what is asked. Here the tools are a world's, and the judge is a rule: 1 when what was given back holds something that the answer needs, though it was
found before. With ``judge`` at "endpoint" the worker's judge model is asked instead, with the question and one output at a time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.judges.output_judge import ask_output_verdicts
from trainers.judges.step_judge import require_judge
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.worlds.base import Replay
from trainers.worlds.observations import Observation, holds_evidence, list_observations
from trainers.worlds.replays import replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

QUADRANTS = {  # name -> (whether some call was judged above .5, whether the answer is right)
    "faithful_and_right": (True, True),
    "faithful_and_wrong": (True, False),
    "unfaithful_and_right": (False, True),
    "unfaithful_and_wrong": (False, False),
}


def judge_outputs_by_rule(observations: Sequence[Observation], example: "Example") -> list[float]:
    """r_t of each call."""
    return [float(holds_evidence(one, example)) for one in observations]


def repeats_empty_call(observations: Sequence[Observation]) -> bool:
    """Whether a call is made again, word for word, after the tool had nothing to give back; one that failed may be tried again."""
    empty = set[str]()
    for one in observations:
        if one.call in empty:
            return True
        if one.is_empty:
            empty.add(one.call)
    return False


def crosses_red_line(replay: Replay, observations: Sequence[Observation]) -> bool:
    return bool(replay.state["errors"]) or repeats_empty_call(observations)


def average_scores(scores: Sequence[float]) -> float:
    """The mean over calls; 0 without one."""
    return sum(scores) / len(scores) if scores else 0.0


def reward_tool_use(right: Tensor, tools: Tensor, crossed: Tensor, weights: tuple[float, float, float]) -> Tensor:
    """(B,) each; ``tools``: mean judgement of the calls; ``crossed``: 1 where a red line was; ``weights``: l_acc, l_tool and the penalty."""
    return weights[0] * right + weights[1] * tools - weights[2] * crossed


class Config(Strict):
    answer: float = param(1.0, "Weight of the right answer.", title="Answer (l_acc)", gt=0, le=10)
    tools: float = param(
        0.5, "Weight of the mean judgement of the calls, below the answer's (.5 is ours); 0: none.", title="Tools (l_tool)", ge=0, le=10
    )
    penalty: float = param(0.2, "Taken where a red line was crossed (not published); 0: none.", title="Penalty", ge=0, le=10)
    judge: Literal["rule", "endpoint"] = param("rule", "Who judges an output: the world's rule, or the worker's judge model.", title="Judge")


class CodeVTAPO(Method):
    card = Card(
        name="codev-tapo",
        title="Judged outputs of tools",
        arxiv="2511.19661",
        system="CodeV (TAPO)",
        base="grpo",
        provenance="abstract",
        source="abstract; public notes with the objective",
        fit="needs-modality",
        idea="Show a judge the question and what each tool gave back, never the thought, and pay the mean beside the answer. A text stand-in.",
        formula=(r"R = \lambda_{acc}\, r_{acc} + \lambda_{tool} \frac{1}{|T|} \sum_{t \in T} r_t - c\,[\text{red line}], \quad r_t = J(q, o_t)",),
        reading="the weight of the tools, the penalty, and what crosses a red line",
        departures=(
            "Text stand-in: a world's tools take the place of Python on images; no number compares with the paper's.",
            "Unless the worker's judge model is asked, a rule judges: 1 when the output holds something that the answer needs.",
            "Red lines are turns that cannot be read and empty calls that are repeated; there are no coordinates to be wrong.",
            "The supervised stage before it is the world's cold start.",
        ),
        claim=("codev-tapo/evidence", "higher"),
    )
    Config = Config
    roles = {"rewards": "makes"}
    worlds = frozenset({"entity_search", "graph", "judged_search", "paragraphs", "planned_search", "search", "two_corpora"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        if self.config.judge == "endpoint":
            require_judge(run.judge, self.card.name)

    def judge_outputs(self, seen: Sequence[Sequence[Observation]], examples: "Sequence[Example]") -> list[list[float]]:
        """r_t of each call of each episode."""
        if self.config.judge == "endpoint":
            judge = require_judge(self.run.judge, self.card.name)
            return ask_output_verdicts(judge, examples, [[one.text for one in own] for own in seen])
        return [judge_outputs_by_rule(own, example) for own, example in zip(seen, examples, strict=True)]

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, replays = self.config, replay_texts(self.run.task, batch.examples, batch.texts)
        seen = [list_observations(replay) for replay in replays]
        scores = self.judge_outputs(seen, batch.examples)
        tools = torch.tensor([average_scores(own) for own in scores]).to(rewards)
        crossed = torch.tensor([float(crosses_red_line(replay, one)) for replay, one in zip(replays, seen, strict=True)]).to(rewards)
        self.report(batch.correct.tolist(), scores, crossed)
        return reward_tool_use(batch.correct.to(rewards), tools, crossed, (config.answer, config.tools, config.penalty))

    def report(self, right: Sequence[bool], scores: Sequence[Sequence[float]], crossed: Tensor) -> None:
        """An episode is faithful where some call gave evidence."""
        self.log("red_lines", crossed.mean())
        self.log("calls", sum(map(len, scores)) / len(scores))
        every = [score for own in scores for score in own]
        if every:
            self.log("evidence", sum(every) / len(every))
        kinds = [(max(own, default=0.0) > 0.5, one) for own, one in zip(scores, right, strict=True)]
        for name, kind in QUADRANTS.items():
            self.log(name, kinds.count(kind) / len(kinds))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Calls",
                (Series(f"{name}/evidence", "that gave evidence"), Series(f"{name}/red_lines", "episodes across a red line", dashed=True)),
            ),
            Panel(
                "Faithful and right",
                tuple(Series(f"{name}/{key}", key.replace("_", " ")) for key in QUADRANTS),
                "stack",
                help="Shares of the episodes. Faithful: some call gave evidence.",
            ),
        )
