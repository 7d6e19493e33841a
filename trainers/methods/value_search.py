"""Values of positions for a search: an episode's outcome where it has ended, +1 or -1, and a fitted head's estimate elsewhere."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.maths.value_histogram import ValueLoss
from trainers.policies.value_head import build_value_head, fit_value_head, read_last_states
from trainers.tasks.base import Example

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.search_tree import SearchTree
    from trainers.rollouts.tree import Node

    Judge = Callable[[Session, Node, Node], float]  # session, position, leaf


class ValueSearch:
    """A value head and what it is fitted to. ``steps``, ``rate``: of each fitting. ``loss``: squared error, or classification."""

    def __init__(self, run: "RunContext", steps: int, rate: float, loss: ValueLoss = "mse") -> None:
        self.run, self.steps, self.rate = run, steps, rate
        self.head = build_value_head(run, loss)

    def estimate(self, session: "Session", nodes: "Sequence[Node]") -> list[float]:
        """In [-1, 1]."""
        guessed = iter(self.estimate_open([node for node in nodes if not node.finish]))
        return [score_end(session, node) if node.finish else next(guessed) for node in nodes]

    def estimate_open(self, nodes: "Sequence[Node]") -> list[float]:
        """What the head says of positions that are not ended, in [-1, 1]."""
        return self.head.estimate(read_last_states(self.run, nodes))

    def fit_episodes(self, examples: Sequence[Example], count: int, key: str, max_tokens: int = 0, judge: "Judge | None" = None) -> float:
        """Fits the head to the outcomes of ``count`` whole episodes of each example, at every position on their ways; returns its error.

        ``max_tokens``: of an episode; 0: as many as the run's sampled answers may have. ``judge``: what a position on the way to a leaf is worth, in
        [-1, 1]; None: the outcome.
        """
        states, targets = list[Tensor](), list[float]()
        for start in range(0, len(examples), self.run.attempt.sampling_batch):
            some = examples[start : start + self.run.attempt.sampling_batch]
            session = self.run.session(some, f"{key}/values/{start}", group_size=count, max_tokens=max_tokens)
            leaves = session.play([episode.root for episode in session.begin()])
            seen = [
                (node, judge(session, node, leaf) if judge else score_end(session, leaf)) for leaf in leaves for node in list_open_positions(leaf)
            ]
            states.append(read_last_states(self.run, [node for node, _ in seen]))
            targets += [outcome for _, outcome in seen]
        return self.fit(torch.cat(states), targets, f"{key}/outcomes")

    def fit_trees(self, trees: "Sequence[SearchTree]", key: str) -> float:
        """Fits the head to what was backed up through the open positions of trees; returns its error."""
        seen = [node for tree in trees for node in (tree.root, *tree.positions) if not node.finish and "mean" in node.notes]
        return self.fit(read_last_states(self.run, seen), [node.notes["mean"] for node in seen], f"{key}/trees")

    def fit(self, states: Tensor, targets: Sequence[float], key: str) -> float:
        generator = torch.Generator().manual_seed(self.run.rng("value head", key).randrange(2**31))
        return fit_value_head(self.head, states, torch.tensor(list(targets)), self.steps, self.rate, generator)


def score_end(session: "Session", leaf: "Node") -> float:
    """+1 for a right end, -1 for any other."""
    return 1.0 if session.is_right(leaf) else -1.0


def list_open_positions(leaf: "Node") -> "list[Node]":
    """Where the turns on the way to a leaf began."""
    path = leaf.episode.path(leaf)
    return [node for place, node in enumerate(path) if node.by in ("prompt", "world") and not node.finish and place + 1 < len(path)]
