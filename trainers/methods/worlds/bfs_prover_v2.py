"""BFS-Prover-V2: expert iteration on proofs found by best-first search, without the steps that are trivial or noise (arXiv 2509.06493).

Of each problem a best-first search with the current policy looks for a proof. The open position whose path of steps a_1 .. a_L has the highest
    score = sum_t log pi(a_t | s_t) / L^alpha
is expanded next, by ``samples`` turns. The steps of the proofs that the world has accepted are pairs (s, a); with
    u(s, a) = -(1 / |a|) log pi(a | s)      nats per token, temperature 1
those are kept whose u lies between two quantiles of the round's, and the policy is fine-tuned on their tokens a. It differs from SFT in its rows.

One run is one round, and the next starts from its policy. To leave a plateau, start a run from the base again and name the strongest policy as the
one that searches (``searcher``): the base is retrained on what that one proves, filtered by its own u.

Our reading: the quantiles and counts; the paper says that the distribution's two tails are dropped. The planner of its test time is dsp-plus here.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.data.search_samples import search_examples, tokenize_step
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.rollouts.search_strategies import BestFirst
from trainers.rollouts.search_tree import list_step_nodes, score_positions

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.search_tree import SearchTree
    from trainers.rollouts.tree import Node

MOST_NATS = 4.0  # of the histogram of u
Pair = tuple["Node", "Node"]  # the position before a step and the one after it


def mark_central(values: Sequence[float], low: float, high: float) -> list[bool]:
    """Which values lie between the quantiles ``low`` and ``high`` of all (linear interpolation), both included."""
    if not values:
        return []
    given = torch.tensor(list(values), dtype=torch.float64)
    bounds = torch.quantile(given, torch.tensor([low, high], dtype=torch.float64))
    return [bool(bounds[0] <= value <= bounds[1]) for value in given]


class Config(Strict):
    low: float = param(0.1, "Quantile of u below which steps are dropped as trivial (our value).", title="Lower quantile", ge=0, lt=1)
    high: float = param(0.9, "Quantile of u above which steps are dropped as noise (our value).", title="Upper quantile", gt=0, le=1)
    nodes: int = param(16, "Positions of a problem that are expanded.", title="Expansions", ge=1, le=10_000)
    samples: int = param(4, "Turns sampled from a position; equal ones are one step.", title="Turns per expansion", ge=1, le=64)
    power: float = param(0.5, "Exponent of the path's length in its priority (our value).", title="Length exponent (alpha)", ge=0, le=1)
    temperature: float = param(1.0, "Sampling temperature of the search.", title="Temperature", gt=0, le=10)
    searcher: str = param("", "Folder of the policy that searches; empty: the one in training.", title="Searcher")


class BFSProverV2(Method):
    card = Card(
        name="bfs-prover-v2",
        title="Expert iteration on searched proofs",
        arxiv="2509.06493",
        system="BFS-Prover-V2",
        base="sft",
        provenance="abstract",
        source="abstract, project page and reviews; the score of BFS-Prover (arXiv 2502.03438)",
        fit="needs-environment",
        idea="Search proofs best-first, drop the steps that the policy finds trivial or nearly impossible, and fine-tune on the others.",
        formula=(
            r"u(s, a) = -\frac{1}{|a|} \log \pi(a | s), \quad q_{lo} \le F(u) \le q_{hi}",
            r"\mathrm{score} = \frac{1}{L^{\alpha}} \sum_{t \le L} \log \pi(a_t | s_t)",
        ),
        reading="quantiles of each round in place of the two cut tails; counts and alpha",
        departures=(
            "Rewriting a number by rules takes the place of tactics in Lean, and the world that of its kernel.",
            "A retraining trains on what the strongest policy proves then, without the proofs of earlier rounds.",
            "The planner and the parallel provers of test time are not implemented.",
        ),
    )
    Config = Config
    trains = frozenset({"sft"})
    worlds = frozenset({"rewrites"})
    requires = (Requirement("dataset", "equals", None, "it proves the world's own problems"),)
    roles = {"data": "makes"}

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        return ranks.done_by_first(lambda: self.make_rows(len(rows), run))

    def make_rows(self, count: int, run: "RunContext") -> list[dict[str, Any]]:
        spec, config = run.attempt.spec, self.config
        model = run.load_other(config.searcher) if config.searcher else run.model
        examples = run.task.examples("train", count, spec.seed, spec.task.difficulty)
        trees = search_examples(run, examples, "bfs-prover-v2", self.search, temperature=config.temperature, model=model)
        pairs = [pair for tree in trees if tree.goal is not None for pair in list_proof_steps(tree)]
        nats = self.measure_surprise(pairs, run, model)
        kept = [pair for pair, is_kept in zip(pairs, mark_central(nats, config.low, config.high), strict=True) if is_kept]
        self.report(trees, nats, len(kept))
        return [tokenize_step(above, position, run.tokenizer.decode) for above, position in kept]

    def search(self, session: "Session", roots: "list[Node]") -> "list[SearchTree]":
        how = BestFirst(self.config.nodes, session.run.task.max_turns)
        return session.search(roots, how, self.config.samples, partial(score_positions, power=self.config.power), session.is_right)

    def measure_surprise(self, pairs: Sequence[Pair], run: "RunContext", model: Any) -> list[float]:
        """u of each step, nats per token, under the policy that has searched."""
        session = run.session([], "bfs-prover-v2/surprise", model=model)
        steps = [[id_ for node in list_step_nodes(*pair) if node.by != "world" for id_ in node.ids] for pair in pairs]
        found = session.likelihood([above for above, _ in pairs], steps)
        return [-math.fsum(step) / len(step) for step in found]

    def report(self, trees: "Sequence[SearchTree]", nats: Sequence[float], kept: int) -> None:
        self.log("data_solved", sum(tree.goal is not None for tree in trees) / max(1, len(trees)))
        self.log("data_expanded", sum(tree.expanded for tree in trees) / max(1, len(trees)))
        self.log("data_pairs", len(nats))
        self.log("data_kept", kept)
        self.log_histogram("surprise", torch.tensor(list(nats)), 0.0, MOST_NATS)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Surprise of the steps of proofs (nats per token)", (Series(f"{name}/surprise"),), "histogram", low=0.0, high=MOST_NATS),
            Panel("Problems that the search has solved", (Series(f"{name}/data_solved", "share"),), help="Logged at step 1."),
            Panel("Steps of proofs", (Series(f"{name}/data_pairs", "found"), Series(f"{name}/data_kept", "kept")), help="Logged at step 1."),
        )


def list_proof_steps(tree: "SearchTree") -> list[Pair]:
    """The steps from the root to the goal."""
    assert tree.goal is not None
    path = tree.path(tree.goal)
    return list(pairwise(path))
