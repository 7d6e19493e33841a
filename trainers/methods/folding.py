"""Episodes whose context is folded while they are played: what was read is dropped, and the next turn is asked with what the policy has kept of it.

An episode is then several contexts, each a row of its own in training. The policy writes what is kept as a part of the old context, so that it is
trained by what comes of it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from trainers.rollouts.tree import Node, split_contexts
from trainers.worlds.windows import WindowWorld

if TYPE_CHECKING:
    from trainers.methods.session import Session

Decision = Literal["stay", "fold", "end"]


def play_with_folds(session: "Session", roots: Sequence[Node], decide: Callable[[Node], Decision]) -> list[Node]:
    """The leaves that ``roots`` lead to. ``decide`` is asked at each answer of the world whether the episode stays in its context, goes on in a new
    one, or ends there without an outcome (finish "length").
    """
    world = session.run.task
    assert isinstance(world, WindowWorld)
    nodes = list(roots)
    while going := [place for place, node in enumerate(nodes) if not node.finish]:
        for place, node in zip(going, session.play([nodes[place] for place in going], turns=1), strict=True):
            nodes[place] = node if node.finish else apply_decision(session, world, node, decide(node))
    return nodes


def apply_decision(session: "Session", world: WindowWorld, node: Node, decision: Decision) -> Node:
    if decision == "fold":
        return fold_answer(session, world, node)
    if decision == "end":
        node.finish = "length"
    return node


def fold_answer(session: "Session", world: WindowWorld, node: Node) -> Node:
    """A new context in place of the world's answer at ``node``, whose content is in its prompt."""
    turn = find_turn(node)
    node.episode.give_up(node, "abandoned", "folded", turn)
    return session.fold(turn, world.write_window(node.episode.example, turn.state))


def find_turn(node: Node) -> Node:
    """The end of the turn that the world's words at ``node`` answer."""
    turn = node.episode.parent(node)
    assert turn is not None
    assert node.by == "world"
    return turn


def count_contexts(leaf: Node) -> int:
    """Contexts on the way to ``leaf``."""
    return len(split_contexts(leaf.episode.path(leaf)))


def measure_contexts(leaf: Node) -> list[int]:
    """Tokens of each context on the way to ``leaf``, its prompt included."""
    return [sum(len(node.ids) for node in context) for context in split_contexts(leaf.episode.path(leaf))]


def measure_context(node: Node) -> int:
    """Tokens of the context that ends at ``node``, its prompt included."""
    prompt, rest = node.episode.context_ids(node)
    return len(prompt) + len(rest)
