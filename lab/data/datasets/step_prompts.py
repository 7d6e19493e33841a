"""What a branch goes on from, as messages: the question, then what the policy wrote as assistant and what the world answered as tool."""

from __future__ import annotations

from collections.abc import Sequence

from lab.data.datasets.sides import Message
from lab.rollouts.trajectories.turn_tree import TurnNode, TurnTree


class UnusableTurn(Exception):
    """Why a labelled turn gives no row, in the plural."""


def build_step_prompt(tree: TurnTree, node: int, question: Sequence[Message]) -> tuple[list[Message], str]:
    """The messages before the turn that is branched at ``node``, and what of that turn all branches share: it was branched in its middle.

    ``question``: the prompt of the rollout, whose text its first node does not hold. A context that was begun anew is asked by its own prompt alone.
    Raises UnusableTurn.
    """
    branch = tree.nodes.get(node)
    if branch is None or branch.parent not in tree.nodes:
        raise UnusableTurn("turns that are not stored")
    context = take_context(tree.path(branch.parent))
    require_whole(context)
    asked = context[0]
    is_question = asked.by == "prompt" and asked.parent is None and asked.about is None
    messages = [dict(message) for message in question] if is_question else [{"role": "user", "content": asked.text}]
    for one in context[1:] if asked.by == "prompt" else context:
        role = "assistant" if one.is_written else "tool"
        if messages and messages[-1]["role"] == role and one.is_written:
            messages[-1]["content"] += one.text
        elif one.text:
            messages.append({"role": role, "content": one.text})
    begun = messages.pop()["content"] if messages and messages[-1]["role"] == "assistant" else ""
    return messages, begun


def build_turn_text(tree: TurnTree, node: int) -> str:
    """Raises UnusableTurn."""
    turn = tree.turn(node)
    require_whole(turn)
    return "".join(one.text for one in turn)


def take_context(path: Sequence[TurnNode]) -> Sequence[TurnNode]:
    """The end of a path from its last prompt on."""
    start = max((place for place, node in enumerate(path) if node.by == "prompt"), default=0)
    return path[start:]


def require_whole(nodes: Sequence[TurnNode]) -> None:
    if any(node.is_shortened for node in nodes):
        raise UnusableTurn("turns that were too long to be stored whole")
