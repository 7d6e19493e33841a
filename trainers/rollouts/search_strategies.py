"""Which positions a search turns to next: best-first, beam, or Monte-Carlo tree search by PUCT. Imports no torch.

Of every strategy ``pick`` names the positions of a tree that a round is about (none: its search is over), ``list_valued`` those to be valued once a
position was expanded, and ``settle`` takes in what the round has found about it.
"""

import math
from dataclasses import dataclass

from trainers.rollouts.search_tree import SearchTree
from trainers.rollouts.tree import Node


def can_expand(how: "Strategy", tree: SearchTree, node: Node) -> bool:
    is_open = not node.finish and node not in tree.steps and node not in tree.closed
    return is_open and tree.expanded < how.nodes and tree.depth(node) < how.depth


@dataclass(frozen=True)
class BestFirst:
    """The open positions of highest value are expanded first, ``at_once`` of each tree in a round.

    ``nodes``: positions of a tree that are expanded at most. ``depth``: turns from the root at most.
    """

    nodes: int
    depth: int
    at_once: int = 1

    def pick(self, tree: SearchTree) -> list[Node]:
        if tree.goal is not None:
            return []
        positions = [tree.root] if not tree.rounds else tree.positions
        open_ = sorted((node for node in positions if can_expand(self, tree, node)), key=lambda node: -tree.values.get(node, 0.0))
        return open_[: min(self.at_once, self.nodes - tree.expanded)]

    def list_valued(self, tree: SearchTree, node: Node) -> list[Node]:
        return tree.steps.get(node, [])

    def settle(self, tree: SearchTree, node: Node) -> None:
        pass


@dataclass(frozen=True)
class Beam:
    """Of all open positions that a round has led to, the ``width`` of highest value go on; the others are closed. Ended episodes take no place.

    ``nodes``, ``depth``: as of ``BestFirst``; a round that would expand more than are left expands the best.
    """

    width: int
    nodes: int
    depth: int

    def pick(self, tree: SearchTree) -> list[Node]:
        if tree.goal is not None:
            return []
        positions = [tree.root] if not tree.rounds else tree.positions
        going = [node for node in positions if can_expand(self, tree, node)]
        beam = sorted(going, key=lambda node: -tree.values.get(node, 0.0))[: min(self.width, self.nodes - tree.expanded)]
        tree.closed |= set(going) - set(beam)
        return beam

    def list_valued(self, tree: SearchTree, node: Node) -> list[Node]:
        return tree.steps.get(node, [])

    def settle(self, tree: SearchTree, node: Node) -> None:
        pass


@dataclass(frozen=True)
class Mcts:
    """Each round goes down from the root by PUCT to a position without steps, expands and values it, and backs its value up to the root:

    a = argmax_a  Q(s, a) + c P(s, a) sqrt(N(s)) / (1 + N(s, a))      (AlphaZero, arXiv 1712.01815)

    N(s) counts the visits of the position itself, its first one included, so that the prior decides about the first step too. Q of a step that was
    never taken is ``unvisited``. ``once``: an ended episode is valued as soon as it is reached and never visited again, so that a small tree is
    searched to its end; without it such a leaf is visited, and counts, as often as the formula leads to it.
    """

    iterations: int
    nodes: int
    depth: int
    exploration: float = 1.5
    unvisited: float = 0.0
    once: bool = False

    def pick(self, tree: SearchTree) -> list[Node]:
        if tree.goal is not None or tree.rounds >= self.iterations or tree.root in tree.closed:
            return []
        node = tree.root
        while going := [step for step in tree.steps.get(node, []) if step not in tree.closed]:
            visits = node.notes["visits"]
            node = max(going, key=lambda step: self.score(step, visits))
        return [node]

    def score(self, step: Node, visits: float) -> float:
        """``visits``: of the position that the step leads on from."""
        own = step.notes.get("visits", 0.0)
        q = step.notes["mean"] if own else self.unvisited
        return compute_puct(q, step.notes.get("prior", 1.0), visits, own, self.exploration)

    def list_valued(self, tree: SearchTree, node: Node) -> list[Node]:
        return [node, *self.list_ended(tree, node)]

    def list_ended(self, tree: SearchTree, node: Node) -> list[Node]:
        """Ends of episodes that expanding ``node`` has led to, where they are valued at once."""
        return [step for step in tree.steps.get(node, []) if step.finish] if self.once else []

    def settle(self, tree: SearchTree, node: Node) -> None:
        back_up(tree, node, tree.values[node])
        if not self.once:
            return
        for step in self.list_ended(tree, node):
            back_up(tree, step, tree.values[step])
            tree.closed.add(step)
        if not tree.steps.get(node):
            tree.closed.add(node)
        for position in reversed(tree.path(node)):
            if not all(step in tree.closed for step in tree.steps.get(position, ())):
                break
            tree.closed.add(position)


def compute_puct(q: float, prior: float, visits: float, own_visits: float, exploration: float) -> float:
    """What a step promises. ``visits``: of the position it leads on from."""
    return q + exploration * prior * math.sqrt(visits) / (1.0 + own_visits)


def back_up(tree: SearchTree, node: Node, value: float) -> None:
    for position in tree.path(node):
        visits = position.notes.get("visits", 0.0) + 1.0
        mean = position.notes.get("mean", 0.0)
        position.notes |= {"visits": visits, "mean": mean + (value - mean) / visits}


Strategy = BestFirst | Beam | Mcts
