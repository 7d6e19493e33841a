"""AI-SearchPlanner: a planner paid for how much its searches help a frozen reader, less what they cost (arXiv 2508.20368).

U_out  = F1(g(q, D), y) - F1(g(q, none), y)        gain of the frozen reader g from the documents D that the planner gathered
U_proc in [0, 1]                                   how sensible the trajectory is
C      = turns / (2 most turns) + queries / (2 most queries)
R      = U_out + w U_proc - lambda C

Then GRPO on the planner alone; what the world writes is masked out of the loss. A larger lambda moves along the front of gain and cost. It differs
from GRPO on the same world in the baseline of the reader, the term of the trajectory and the cost; with w = lambda = 0 it is GRPO: the reader's
answer without documents is the same for a whole group.

This is our interpretation of the abstract and of public reviews; w, lambda and the form of the cost are ours. The paper has a large language model
answer and judge, and trains by PPO. Here the option ``reader`` of the world ``search`` answers by rule: rightly where it has or knows all sentences
that are needed, else with a guess. The judge is a rule too: the share of searches that found something new that was needed; without a search, 1 where
the reader knew enough and 0 where it did not. One turn of the planner is one query.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts.token_overlap import compute_f1, split_answer_words
from trainers.worlds.base import Replay
from trainers.worlds.replays import count_calls, read_final_answer, replay_texts
from trainers.worlds.search import Search

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example


def compute_search_cost(turns: int, most_turns: int, queries: int, most_queries: int) -> float:
    """0 to 1."""
    return 0.5 * turns / most_turns + 0.5 * queries / most_queries


def combine_terms(gain: float, process: float, cost: float, process_weight: float, cost_weight: float) -> float:
    return gain + process_weight * process - cost_weight * cost


def judge_trajectory(replay: Replay, is_right_without: bool) -> float:
    """0 to 1, by rule. ``is_right_without``: the reader's answer is right without a search."""
    searches = count_calls(replay)
    return replay.state["useful"] / searches if searches else float(is_right_without)


class Config(Strict):
    process_weight: float = param(0.5, "Weight of the judged trajectory (ours).", title="Weight of the trajectory (w)", ge=0, le=100)
    cost_weight: float = param(0.1, "Weight of turns and queries (ours).", title="Weight of the cost (lambda)", ge=0, le=100)


class AISearchPlanner(Method):
    card = Card(
        name="ai-searchplanner",
        title="Gain of a frozen reader, less the cost of searching",
        arxiv="2508.20368",
        system="AI-SearchPlanner",
        base="grpo",
        provenance="abstract",
        source="abstract; public reviews and a summary of the paper",
        fit="needs-environment",
        idea="Train only what plans the searches: pay it for how much they help a frozen reader, and charge it for their number.",
        formula=(
            r"R = U_{out} + w\, U_{proc} - \lambda\, C",
            r"U_{out} = F_1(g(q, D), y) - F_1(g(q, \emptyset), y)",
            r"C = \frac{1}{2} \frac{\text{turns}}{T_{max}} + \frac{1}{2} \frac{\text{queries}}{Q_{max}}",
        ),
        reading="the weights and the form of the cost are our choices; the terms are second-hand",
        departures=(
            "A rule of the world search reads and answers, in place of a large language model.",
            "A rule judges the trajectory: the share of searches that found something new that was needed.",
            "The planner is trained by GRPO, not PPO, with one query a turn; the front comes from runs of different lambda.",
        ),
        claim=("heldout/useful", "higher"),
    )
    Config = Config
    roles = {"rewards": "makes"}
    worlds = frozenset({"search"})
    requires = (Requirement("task.options.reader", "equals", True, "what the searches are worth shows in the answers of a frozen reader"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        replays = replay_texts(self.run.task, batch.examples, batch.texts)
        terms = [self.find_terms(replay, example) for replay, example in zip(replays, batch.examples, strict=True)]
        made = [combine_terms(*one, self.config.process_weight, self.config.cost_weight) for one in terms]
        for name, values in zip(("gain", "process", "cost"), zip(*terms, strict=True), strict=True):
            self.log(name, sum(values) / len(values))
        self.log("queries", sum(map(count_calls, replays)) / len(replays))
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def find_terms(self, replay: Replay, example: "Example") -> tuple[float, float, float]:
        """Gain, judged trajectory and cost of an episode; one in broken form has no answer and no judgement."""
        world = self.run.task
        assert isinstance(world, Search)
        gold, answer = split_answer_words(example.reference), read_final_answer(replay)
        without = compute_f1(split_answer_words(world.answer_as_reader(example, [])), gold)
        cost = compute_search_cost(len(replay.turns), world.max_turns, count_calls(replay), world.max_turns - 1)
        if answer is None:
            return -without, 0.0, min(1.0, cost)
        return compute_f1(split_answer_words(answer), gold) - without, judge_trajectory(replay, without == 1), min(1.0, cost)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Terms of the reward",
                (Series(f"{name}/gain", "gain of the reader"), Series(f"{name}/process", "trajectory"), Series(f"{name}/cost", "cost", dashed=True)),
                help="Before they are weighted.",
            ),
            Panel("Queries per episode", (Series(f"{name}/queries", "queries"),)),
        )
