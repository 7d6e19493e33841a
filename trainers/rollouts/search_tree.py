"""What a search over turns has found: positions, where their steps lead, and what is known of them. Imports no torch.

A position is a node where the next turn begins, or where the episode is over. In its notes: ``prior``, ``value`` (what it was said to be worth),
``visits`` and ``mean`` (of the values backed up through it).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainers.rollouts.tree import Node

SEARCHED = "searched"


@dataclass(eq=False)
class SearchTree:
    """What was searched from one root. ``steps``: of each expanded position, where its steps lead, in the order they were made."""

    root: Node
    steps: dict[Node, list[Node]] = field(default_factory=dict)
    above: dict[Node, Node] = field(default_factory=dict)
    values: dict[Node, float] = field(default_factory=dict)
    closed: set[Node] = field(default_factory=set)  # positions that are not visited again
    goal: Node | None = None  # the first position that the search was to find
    rounds: int = 0

    @property
    def expanded(self) -> int:
        """How many positions were expanded."""
        return len(self.steps)

    @property
    def positions(self) -> list[Node]:
        """All positions but the root, in the order they were made."""
        return list(self.above)

    @property
    def best(self) -> Node:
        """The goal; without one, where the most valuable episode ends; where none has ended, the open position that was visited most.

        Between equals the one that was made first.
        """
        if self.goal is not None:
            return self.goal
        ended = [node for node in self.positions if node.finish]
        if ended:
            return max(ended, key=self.estimate)
        return max((node for node in [self.root, *self.positions] if not self.steps.get(node)), key=self.rank_open)

    def estimate(self, node: Node) -> float:
        """The mean of what was backed up through a position; where nothing was, its own value."""
        return node.notes.get("mean", self.values.get(node, -math.inf))

    def rank_open(self, node: Node) -> tuple[float, float]:
        return node.notes.get("visits", 0.0), self.estimate(node)

    def path(self, node: Node) -> list[Node]:
        """The positions from the root to ``node``, both included."""
        found = [node]
        while (above := self.above.get(found[-1])) is not None:
            found.append(above)
        return found[::-1]

    def depth(self, node: Node) -> int:
        return len(self.path(node)) - 1

    def add(self, node: Node, steps: Sequence[Node]) -> None:
        """Raises ValueError for a step that does not lead on from ``node``."""
        for step in steps:
            if step is node or step in self.above or node not in step.episode.path(step):
                raise ValueError(f"node {step.number} is no new step from node {node.number}")
            self.above[step] = node
        self.steps[node] = list(steps)


def keep_paths(tree: SearchTree, ends: Sequence[Node]) -> None:
    """Gives up what the search has made beside the paths to ``ends``."""
    kept = {node for end in ends for node in end.episode.path(end)}
    for position in tree.positions:
        for node in list_step_nodes(tree.above[position], position):
            if node not in kept and node.fate == "kept":
                node.fate = "abandoned"
                above = node.episode.parent(node)
                node.why = node.why or (SEARCHED if above in kept else "")


def list_step_nodes(above: Node, position: Node) -> list[Node]:
    """The nodes of the step from one position to another below it: what was written, and the world's answer."""
    path = position.episode.path(position)
    return path[path.index(above) + 1 :]


def list_step_logprobs(above: Node, position: Node) -> list[float]:
    """Log-probabilities of the tokens that were sampled in a step, nats, at the temperature they were sampled at."""
    return [value for node in list_step_nodes(above, position) if node.by == "policy" for value in node.logprobs]


def write_step(above: Node, position: Node) -> str:
    """What a step says, without the world's answer."""
    return "".join(node.text for node in list_step_nodes(above, position) if node.by in ("policy", "forced")).strip()


def score_path(logprobs: Sequence[Sequence[float]], power: float) -> float:
    """Log-probabilities of the tokens of each of L steps -> their sum over L^power, as BFS-Prover ranks positions (arXiv 2502.03438); 0 for none."""
    return math.fsum(value for step in logprobs for value in step) / max(1, len(logprobs)) ** power


def score_positions(nodes: Sequence[Node], power: float) -> list[float]:
    """``score_path`` of the turns that led to each node."""
    return [score_path([[value for one in turn for value in one.logprobs] for turn in node.episode.turns(node)], power) for node in nodes]
