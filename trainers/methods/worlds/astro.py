"""ASTRO: traces of a tree search, wrong branches and the way back included, are imitated; then GRPO on them (arXiv 2507.00417).

Stage 1 (trainer sft). Of each problem Monte-Carlo tree search builds a tree, whose values are shares of right continuations. A trace visits up to
``branches`` of its wrong ends, the likeliest ones, and then the shortest right one; after each it goes back to step
    j = depth of the last position that both paths have in common
and goes on from there. Cross-entropy on all that the policy says in a trace, wrong branches included. With ``branches`` 0 the trace is the right path
alone: a direct answer. It differs from SFT in its rows.

Stage 2 (trainer grpo). R = 1 for a right answer, on prompts of which the policy solves between ``low`` and ``high`` beforehand. It differs from GRPO
in the prompts and in that the right answer alone pays. Start it from the policy of stage 1.

Our reading of the abstract and a summary: how ends are chosen, the share of prompts, all counts. The authors have a model write the trace in words
("let me go back to step j"); here the world's tool ``back`` says it, in its option ``undo``.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainers.adapters.sft import tokenize_turns
from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.search_traces import linearise_paths
from trainers.data.search_samples import search_examples
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.rollouts.search import sample_steps
from trainers.rollouts.search_strategies import Mcts
from trainers.rollouts.search_tree import write_step
from trainers.worlds.base import World
from trainers.worlds.rewrites import BACK
from trainers.worlds.tool_use import write_call

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.search_tree import SearchTree
    from trainers.rollouts.tree import Node
    from trainers.tasks.base import Example


class Config(Strict):
    branches: int = param(2, "Wrong ends that a trace visits before the right one; 0: direct answers.", title="Wrong branches", ge=0, le=8)
    iterations: int = param(24, "Rounds of the search (our value).", title="Search rounds", ge=1, le=10_000)
    samples: int = param(3, "Turns sampled from a position; equal ones are one step.", title="Turns per expansion", ge=1, le=64)
    continuations: int = param(2, "Continuations that a position's value is the mean of.", title="Continuations", ge=1, le=64)
    exploration: float = param(1.0, "Constant c of PUCT (our value).", title="Exploration (c)", ge=0, le=100, advanced=True)
    low: float = param(0.1, "GRPO: prompts of a lower pass rate are left out.", title="Lowest pass rate", ge=0, le=1)
    high: float = param(0.9, "GRPO: prompts of a higher pass rate are left out.", title="Highest pass rate", ge=0, le=1)
    tries: int = param(8, "GRPO: answers that a prompt's pass rate is the mean of; 0 keeps all prompts.", title="Answers per prompt", ge=0, le=64)


class Astro(Method):
    card = Card(
        name="astro",
        title="Imitated search traces",
        arxiv="2507.00417",
        system="ASTRO",
        base="sft",
        provenance="abstract",
        source="abstract; a summary of others for the search, the traces and the correlation of backtracking with accuracy",
        fit="variant",
        idea="Linearise a search tree into a trace that tries wrong branches and goes back, imitate it, then reinforce right answers.",
        formula=(
            r"j = \mathrm{depth}(\mathrm{LCA}(w, w')), \quad z = \mathrm{path}(w), \text{back to } j, \mathrm{path}(w')_{> j}",
            r"L = -\sum_t \log \pi(z_t | x, z_{<t}), \quad R = 1[\mathrm{right}]",
        ),
        reading="which wrong ends are visited and in which order, the pass rates of the prompts, all counts",
        departures=("A tool of the world says where a trace goes back to; nothing is rewritten in words.",),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"sft", "grpo"})
    worlds = frozenset({"rewrites"})
    requires = (
        Requirement("dataset", "equals", None, "it searches the world's own problems"),
        Requirement("task.options.undo", "equals", True, "an episode can go back with this option of the world"),
    )
    roles = {"data": "makes", "rewards": "makes"}

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        make = self.choose_prompts if run.attempt.spec.training.trainer == "grpo" else self.make_traces
        return ranks.done_by_first(lambda: make(rows, run))

    def make_traces(self, rows: list[Any], run: "RunContext") -> list[dict[str, Any]]:
        world, spec = run.task, run.attempt.spec
        assert isinstance(world, World)
        examples = world.examples("train", len(rows), spec.seed, spec.task.difficulty)
        trees = search_examples(run, examples, "astro", self.search)
        traces = [self.write_trace(tree, world.max_turns) for tree in trees]
        self.report(trees, traces)
        return [
            tokenize_turns(example.prompt, world.tell_turns(example, turns), run.tokenizer)
            for example, turns in zip(examples, traces, strict=True)
            if turns
        ]

    def search(self, session: "Session", roots: "list[Node]") -> "list[SearchTree]":
        config = self.config
        how = Mcts(config.iterations, config.iterations, session.run.task.max_turns, config.exploration, once=True)

        def expand(nodes: "Sequence[Node]") -> "list[list[Node]]":
            open_ = [node for node in nodes if not node.state["stuck"]]
            made = iter(sample_steps(session.engine, open_, config.samples))
            return [[] if node.state["stuck"] else [step for step in next(made) if is_move(step)] for node in nodes]

        def value(nodes: "Sequence[Node]") -> list[float]:
            going = [node for node in nodes if not node.state["stuck"]]
            shares = iter(session.success(going, config.continuations))
            return [0.0 if node.state["stuck"] else next(shares) for node in nodes]

        return session.search(roots, how, expand, value)

    def write_trace(self, tree: "SearchTree", most: int) -> list[str]:
        """The turns of a tree's trace, ``most`` at most; none where no end is right. Wrong ends that leave no room for the right one are left out."""
        ends = [node for node in tree.positions if not tree.steps.get(node)]
        right = sorted((node for node in ends if node.state["reached"]), key=lambda node: len(tree.path(node)))
        wrong = sorted((node for node in ends if node.state["stuck"]), key=lambda node: -multiply_priors(tree, node))
        if not right:
            return []
        chosen = wrong[: self.config.branches]
        while True:
            turns = self.write_turns(tree, [*chosen, right[0]])
            if len(turns) <= most or not chosen:
                return turns
            chosen = chosen[:-1]

    def write_turns(self, tree: "SearchTree", ends: "Sequence[Node]") -> list[str]:
        visited = linearise_paths([tree.path(end)[1:] for end in ends])
        return [write_call(BACK.name, step) if isinstance(step, int) else write_step(tree.above[step], step) for step in visited]

    def report(self, trees: "Sequence[SearchTree]", traces: Sequence[Sequence[str]]) -> None:
        found = [turns for turns in traces if turns]
        self.log("data_solved", len(found) / max(1, len(traces)))
        self.log("data_expanded", sum(tree.expanded for tree in trees) / max(1, len(trees)))
        self.log("data_backs", sum(turn.endswith(BACK.closing) for turns in found for turn in turns) / max(1, len(found)))

    def choose_prompts(self, rows: "list[Example]", run: "RunContext") -> "list[Example]":
        """Those of a pass rate that is neither too low nor too high."""
        if not self.config.tries:
            return rows
        rates = list[float]()
        for start in range(0, len(rows), run.attempt.sampling_batch):
            session = run.session(rows[start : start + run.attempt.sampling_batch], f"astro/{start}")
            rates += session.success([episode.root for episode in session.begin()], self.config.tries)
        kept = [row for row, rate in zip(rows, rates, strict=True) if self.config.low <= rate <= self.config.high]
        self.log("data_kept", len(kept) / len(rows))
        return kept

    def rewards(self, batch: "RolloutBatch", rewards: "Tensor") -> "Tensor":
        return batch.correct.to(rewards)

    def observe(self, batch: "RolloutBatch") -> None:
        backs = [text.count(BACK.closing) for text in batch.texts]
        right = batch.correct.tolist()
        self.log("backs", sum(backs) / len(backs))
        with_back = [good for good, count in zip(right, backs, strict=True) if count]
        if with_back:
            self.log("right_with_back", sum(with_back) / len(with_back))
        if len(with_back) < len(backs):
            self.log("right_without", (sum(right) - sum(with_back)) / (len(backs) - len(with_back)))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Times an episode goes back", (Series(f"{name}/backs", "mean"),)),
            Panel("Right episodes", (Series(f"{name}/right_with_back", "with going back"), Series(f"{name}/right_without", "without"))),
        )


def multiply_priors(tree: "SearchTree", end: "Node") -> float:
    """How likely the policy is to go there."""
    return math.prod(position.notes.get("prior", 1.0) for position in tree.path(end)[1:])


def is_move(position: "Node") -> bool:
    """Whether its last turn was a move that the world could read."""
    turn = position.episode.turns(position)[-1]
    return turn[-1].facts.get("tool") == "move"
